"""Every family beside the transformers library's fastest exact implementation of it.

    python benchmarks/bench_models.py [--families bert gpt2 ...] [--parts forward loading lens]

forward  the last hidden state of a batch of 1 and 8 texts of 32 and 512 tokens, in float32 and bfloat16, both
         sides from the same folder, in turns and in alternating order. The sizes are those of a published
         model, the weights are random, and there are few layers (4 for 32 tokens, at 512 one of each kind):
         layers are alike. A decoder that reads an encoder has as many tokens as that.
loading  a folder of BERT-base's size, 418 MiB, in fresh processes: until the model is there, until its first
         answer, and what memory has grown by then.
lens     `regard.lens(model, None).trace(...)` over the model's own forward pass, both under no_grad: a trace
         cannot be made under inference_mode, whose tensors nobody could take gradients of afterwards.

The answers are compared first: float32 has to agree to 1e-4 of the largest entry; in bfloat16 regard may be
no further than one and a half times as far from float32 as its rival is. A family that regard lacks is
skipped by name. The last line is the result as JSON.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from _families import RIVALS, VOCAB, Rival
from _harness import finish, machine

import regard
from regard.models import FAMILIES

SIZES = [(1, 32), (8, 32), (1, 512), (8, 512)]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FP32, BF16 = 1e-4, 1.5


def in_turns(ours: Callable[[], object], theirs: Callable[[], object], budget: float) -> tuple[float, float]:
    """Median seconds of each; who goes first alternates, so that neither profits from the other's cache."""
    works = (ours, theirs)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + 2 * budget
    turn = 0
    # A slow pair is told apart by two turns, a very slow one by one (transformers' GPT-2 takes minutes in
    # bfloat16 on processors that lack it), and a quick one by no more than fifty.
    while turn < 50 and (time.perf_counter() < end or turn < (1 if times[1] and max(times[1]) > 20 else 2)):
        for side in ((0, 1), (1, 0))[turn % 2]:
            start = time.perf_counter()
            works[side]()
            times[side].append(time.perf_counter() - start)
        turn += 1
    return statistics.median(times[0]), statistics.median(times[1])


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    return float((one.double() - other.double()).abs().max() / other.double().abs().max())


def inputs(rival: Rival, batch: int, length: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Token ids, and those of the decoder where there is one besides the encoder; none is padding."""
    draw = torch.Generator().manual_seed(batch * length)
    ids, target = (torch.randint(4, VOCAB, (batch, length), generator=draw) for _ in range(2))
    return ids, {"decoder": target} if rival.both else {}


def runs(rival: Rival, ours: Any, theirs: Any, batch: int, length: int) -> tuple[Callable[[], Any], ...]:
    """The two forward passes on the same ids, each giving the last hidden state."""
    ids, more = inputs(rival, batch, length)
    own = {"decoder_token_ids": more["decoder"]} if more else {}
    foreign = {"decoder_input_ids": more["decoder"]} if more else {}
    return (
        lambda: ours(ids, logits=False, **own).last_hidden_state,
        lambda: theirs(ids, **foreign).last_hidden_state,
    )


def forward(name: str, rival: Rival, folder: Path, budget: float) -> list[dict[str, Any]]:
    """The rows of one family."""
    rows = []
    for lengths, layers in ((32, max(4, rival.kinds)), (512, rival.kinds)):
        place = folder / f"{name}-{layers}"
        rival.save(place, layers)
        exact: dict[tuple[int, int], torch.Tensor] = {}
        for dtype_name, dtype in DTYPES.items():
            theirs = rival.load(place, dtype)
            ours = regard.load(place, dtype=dtype).network
            for batch, length in [size for size in SIZES if size[1] == lengths]:
                own, foreign = runs(rival, ours, theirs, batch, length)
                with torch.inference_mode():
                    own_state, foreign_state = own(), foreign()
                    reference = exact.setdefault((batch, length), foreign_state)
                    difference, rival_difference = (
                        apart(own_state, reference),
                        apart(foreign_state, reference),
                    )
                    if difference > (FP32 if dtype == torch.float32 else BF16 * rival_difference):
                        raise SystemExit(
                            f"{name} {dtype_name} {batch} x {length}: wrong answer, {difference:.2g} from "
                            f"float32 (transformers: {rival_difference:.2g})"
                        )
                    own_s, foreign_s = in_turns(own, foreign, budget)
                rows.append(
                    {
                        "family": name,
                        "like": rival.like,
                        "dtype": dtype_name,
                        "batch": batch,
                        "tokens": length,
                        "layers": layers,
                        "regard_ms": round(1000 * own_s, 3),
                        "transformers_ms": round(1000 * foreign_s, 3),
                        "attention": rival.attention,
                        "ratio": round(own_s / foreign_s, 3),
                        "difference": difference,
                    }
                )
            del theirs, ours
            gc.collect()
    cells = "  ".join(f"{row['ratio']:>5.2f}" for row in sorted(rows, key=_order))
    print(f"{name:>12} {rival.attention:>6}  {cells}", flush=True)
    return rows


def _order(row: dict[str, Any]) -> tuple[bool, int, int]:
    return row["dtype"] != "fp32", row["batch"], row["tokens"]


def loading(folder: Path, repeats: int) -> dict[str, Any]:
    """A folder of BERT-base's size, read by fresh processes in turns."""
    torch.manual_seed(0)
    place = folder / "bert-base"
    transformers.BertModel(transformers.BertConfig()).save_pretrained(place)
    size = (place / "model.safetensors").stat().st_size / 2**20
    child = str(Path(__file__).with_name("_load_child.py"))
    told: dict[str, list[dict[str, float]]] = {"regard": [], "transformers": []}
    for turn in range(repeats + 1):
        for kind in sorted(told, reverse=turn % 2 == 1):
            answer = subprocess.run(
                [sys.executable, child, kind, str(place)], capture_output=True, text=True, check=True
            )
            if turn:  # the first brings the file into the page cache
                told[kind].append(json.loads(answer.stdout.splitlines()[-1]))
    answers = {row["answer"] for rows in told.values() for row in rows}
    if max(answers) - min(answers) > FP32:
        raise SystemExit(f"loading: wrong answer, the two differ by {max(answers) - min(answers):.2g}")
    result: dict[str, Any] = {"part": "loading", "file_mib": round(size, 1)}
    for kind, rows in told.items():
        for fact in ("load_s", "first_s", "mib"):
            result[f"{kind}_{fact}"] = round(statistics.median(row[fact] for row in rows), 4)
    for fact in ("load_s", "first_s", "mib"):
        result[f"{fact}_ratio"] = round(result[f"regard_{fact}"] / result[f"transformers_{fact}"], 3)
    result["mib_of_file"] = round(result["regard_mib"] / size, 3)
    for fact, unit in (("load_s", "s"), ("first_s", "s"), ("mib", "MiB")):
        print(
            f"{fact:>12}  regard {result[f'regard_{fact}']:.3f} {unit}, transformers "
            f"{result[f'transformers_{fact}']:.3f} {unit}: {result[f'{fact}_ratio']:.2f}"
        )
    print(f"{'':>12}  regard's memory is {result['mib_of_file']:.2f} of the file's {size:.0f} MiB")
    return result


LENS = {"bert": 12, "gpt2": 12, "llama": 30, "t5": 6}
"""The families that the lens is timed on, with the depth of the published model: what a trace costs once for
a text, whatever the depth, belongs to all of its layers."""


KEPT = ("qk", "all")
"""What the trace keeps: queries and keys show what listening costs; everything costs the system's time to
hand out new memory besides, where the model's own pass takes the same again and again."""


def _check_lens(what: str, whole: regard.Trace, lean: regard.Trace, expected: torch.Tensor) -> None:
    """The last hidden state is the model's, and what is kept alone is what is kept with the rest."""
    passages = [trace.encoder if trace.decoder is None else trace.decoder for trace in (whole, lean)]
    queries = [passage.attention[-1].inputs.q for passage in passages]
    difference = max(apart(passages[0].hidden[-1], expected), apart(*queries))
    if difference > FP32:
        raise SystemExit(f"lens {what}: wrong answer, {difference:.2g} apart")


def through_lens(name: str, rival: Rival, folder: Path, budget: float) -> list[dict[str, Any]]:
    """A trace of transformers' own model over its own forward pass."""
    rows = []
    layers = LENS[name]
    place = folder / f"{name}-lens"
    rival.save(place, layers)
    theirs = rival.load(place, torch.float32)
    lens = regard.lens(theirs, None)
    for length in (32, 512):
        ids, more = inputs(rival, 1, length)
        target = {"target_ids": more["decoder"][0].tolist()} if more else {}
        own = {keep: partial(lens.trace, token_ids=ids[0].tolist(), keep=keep, **target) for keep in KEPT}
        _, foreign = runs(rival, None, theirs, 1, length)
        for keep, trace in own.items():
            with torch.no_grad():
                _check_lens(f"{name} {length}", own["all"](), own["qk"](), foreign()[0])
                own_s, foreign_s = in_turns(trace, foreign, budget)
            rows.append(
                {
                    "part": "lens",
                    "family": name,
                    "tokens": length,
                    "keep": keep,
                    "layers": layers,
                    "lens_ms": round(1000 * own_s, 3),
                    "transformers_ms": round(1000 * foreign_s, 3),
                    "ratio": round(own_s / foreign_s, 3),
                }
            )
    cells = "  ".join(f"{row['tokens']} tokens, {row['keep']} {row['ratio']:.2f}" for row in rows)
    print(f"{name:>12}  {cells}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=sorted(RIVALS), default=list(RIVALS))
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long each side of a cell runs")
    parser.add_argument(
        "--parts", nargs="+", choices=["forward", "loading", "lens"], default=["forward", "loading", "lens"]
    )
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    there = [name for name in options.families if name in FAMILIES]
    for name in options.families:
        if name not in there:
            print(f"{name:>12}  skipped: regard does not have it")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "forward" in options.parts:
            heads = [f"{batch}x{n}" for _ in DTYPES for batch, n in sorted(SIZES)]
            print("regard's time over transformers'; below 1 regard is faster")
            print(f"{'':>12} {'':>6}  {'fp32':<28}{'bf16'}")
            print(f"{'family':>12} {'rival':>6}  {'  '.join(f'{head:>5}' for head in heads)}", flush=True)
            for name in there:
                rows += forward(name, RIVALS[name], folder, options.seconds)
        if "loading" in options.parts:
            rows.append(loading(folder, repeats=5))
        if "lens" in options.parts:
            print("a trace through the lens, over the model's own forward pass (batch 1, fp32)")
            for name in LENS:
                if name in there:
                    rows += through_lens(name, RIVALS[name], folder, options.seconds)
    finish("models", machine("transformers"), rows, keep=options.keep)


if __name__ == "__main__":
    main()
