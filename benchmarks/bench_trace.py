"""A trace beside transformers' two forward passes, and TransformerLens' run_with_cache, in one run.

    python benchmarks/bench_trace.py [--parts short long memory] [--tokens 32 128 512] [--repeats 15]

short    the default model, batch 1, float32: `model.trace(text)`, from the text to the record of q, k, v and
         the residual stream; the rivals are given token ids. `eager` returns every attention matrix, `fused`
         returns none. `all weights` computes every weight of every layer and head from the trace.
long     the shape of GPT-2 small with random weights, at --long tokens, from token ids: the time of a trace,
         of regard's own pass and of transformers' fused one, in turns; eager, and TransformerLens where
         --transformer-lens-python names an interpreter that has it, once.
memory   the same shape, each length of --lengths in a process of its own: what the peak grows by over the
         loaded model, beside the forecast.

In short and long the answer is checked before it is timed. The last line is the result as JSON; --keep writes
it, and the picture of the memory where matplotlib is there, into benchmarks/results/.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _gpt2 import regard_model, token_ids, transformers_model
from _harness import RESULTS, finish, machine, seconds, text_of
from transformers import AutoModel

import regard

CHILD = Path(__file__).parent / "_trace_child.py"
PARTS = ("short", "long", "memory")
COLUMNS = ("all", "qk", "own-forward", "fused", "fused-no-cache")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--parts", nargs="+", choices=PARTS, default=["short"])
    arguments.add_argument("--tokens", type=int, nargs="+", default=[32, 128, 512])
    arguments.add_argument("--repeats", type=int, default=15)
    arguments.add_argument("--long", type=int, default=4096, help="tokens of the long part")
    arguments.add_argument("--lengths", type=int, nargs="+", default=[2**n for n in range(10, 16)])
    arguments.add_argument("--columns", nargs="+", default=COLUMNS, help="what the memory part measures")
    arguments.add_argument("--no-eager", action="store_true", help="leave the slow ones out of the long part")
    arguments.add_argument("--transformer-lens-python", help="an interpreter that imports transformer_lens")
    arguments.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = arguments.parse_args()
    for part in options.parts:
        rows = {"short": short, "long": long, "memory": memory}[part](options)
        name = "trace" if part == "short" else f"trace_{part}"
        finish(name, machine("transformers"), rows, keep=options.keep)


def short(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The default model on short texts."""
    model = regard.load()
    folder = str(model.loaded.source.folder)
    eager, fused = (
        AutoModel.from_pretrained(folder, attn_implementation=kind, dtype=torch.float32).eval()
        for kind in ("eager", "sdpa")
    )
    rows: list[dict[str, Any]] = []
    print(
        f"{'tokens':>6} {'trace':>9} {'+ all weights':>14} {'eager':>9} {'fused':>9}   trace / eager, / fused"
    )
    for tokens in options.tokens:
        text = text_of(tokens, lambda text: len(model.tokenizer.encode(text).tokens))
        trace = model.trace(text)
        ids = torch.tensor([trace.token_ids])

        def all_weights(text: str = text) -> None:
            traced = model.trace(text)
            for layer in range(traced.num_layers):
                traced.weights(layer)

        with torch.inference_mode():
            attentions = eager(ids, output_attentions=True).attentions
            difference = max(
                (trace.weights(layer) - attention[0]).abs().max().item()
                for layer, attention in enumerate(attentions)
            )
            assert difference < 1e-5, f"the weights differ from eager's by {difference}"
            took = seconds(
                {
                    "trace": lambda text=text: model.trace(text),
                    "all_weights": all_weights,
                    "eager": lambda ids=ids: eager(ids, output_attentions=True),
                    "fused": lambda ids=ids: fused(ids),
                },
                options.repeats,
            )
        rows.append(
            {
                "tokens": tokens,
                **{f"{name}_ms": round(1000 * value, 3) for name, value in took.items()},
                "trace_over_eager": round(took["trace"] / took["eager"], 3),
                "trace_over_fused": round(took["trace"] / took["fused"], 3),
                "largest_difference_from_eager": difference,
            }
        )
        print(
            f"{tokens:>6} {1000 * took['trace']:>7.1f}ms {1000 * took['all_weights']:>12.1f}ms "
            f"{1000 * took['eager']:>7.1f}ms {1000 * took['fused']:>7.1f}ms   "
            f"{took['trace'] / took['eager']:.2f}, {took['trace'] / took['fused']:.2f}"
        )
    return rows


def long(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The time of a trace of a long text, and beside it the slow ones, each in a process of its own."""
    row = _timed(options.long, min(options.repeats, 5))
    if not options.no_eager:
        row["eager"] = _child(sys.executable, "eager", options.long)
        interpreter = options.transformer_lens_python
        row["transformer_lens"] = (
            _child(interpreter, "transformer-lens", options.long)
            if interpreter
            else "skipped: no interpreter given"
        )
    for name, value in row.items():
        print(f"{name:<30} {value}")
    return [row]


def _timed(tokens: int, repeats: int) -> dict[str, Any]:
    ids = token_ids(tokens)
    model, fused = regard_model(tokens), transformers_model(tokens)
    with torch.inference_mode():
        theirs = fused(ids).last_hidden_state
        ours = model.trace(token_ids=ids, keep="residual", layers=-1).embeddings()
        apart = ((ours - theirs[0]).abs().max() / theirs.abs().max()).item()
        assert apart < 1e-4, f"the trace differs from transformers' by {apart} of the largest entry"
        took = seconds(
            {
                "trace": lambda: model.trace(token_ids=ids),
                "trace_qk": lambda: model.trace(token_ids=ids, keep="qk"),
                "own_forward": lambda: model(ids, logits=False),
                "fused": lambda: fused(ids),
                "fused_no_cache": lambda: fused(ids, use_cache=False),
            },
            repeats,
        )
    row: dict[str, Any] = {"tokens": tokens, **{f"{name}_s": round(each, 3) for name, each in took.items()}}
    row |= {
        "trace_over_fused": round(took["trace"] / took["fused"], 3),
        "difference_from_transformers": apart,
    }
    row["trace_qk_over_fused"] = round(took["trace_qk"] / took["fused"], 3)
    return row


def memory(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The growth of the peak over the loaded model, each measured in a process of its own."""
    rows = []
    columns = options.columns
    print(f"{'tokens':>6} " + " ".join(f"{name:>14}" for name in columns) + "   forecast (MB)")
    for tokens in options.lengths:
        found = {name: _child(sys.executable, name, tokens) for name in columns}
        forecasts = [f"{name} {each['forecast_mb']}" for name, each in found.items() if "forecast_mb" in each]
        rows.append({"tokens": tokens, **found})
        print(
            f"{tokens:>6} "
            + " ".join(f"{found[name].get('grew_mb', float('nan')):>11.0f} MB" for name in columns)
            + f"   {', '.join(forecasts)}",
            flush=True,
        )
    if options.keep:
        _draw(rows, columns)
    return rows


def _child(interpreter: str, what: str, tokens: int) -> dict[str, Any]:
    """What the child measured; its error, where memory or patience ended."""
    command = [interpreter, str(CHILD), what, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"ended by signal {-done.returncode}"]
        return {"failed": reason[0][:200]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _draw(rows: list[dict[str, Any]], columns: Sequence[str]) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in columns:
        found = [(row["tokens"], row[name]["grew_mb"]) for row in rows if "grew_mb" in row[name]]
        axes.plot(*zip(*found, strict=True), marker="o", label=name)
    axes.set(xlabel="tokens", ylabel="MB over the loaded model", title="GPT-2 small: the peak of one pass")
    axes.legend()
    figure.savefig(RESULTS / "trace_memory.svg")


if __name__ == "__main__":
    main()
