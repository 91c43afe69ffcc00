"""Scoring a model that was read from disk, beside the forward pass of training on the same texts.

    python benchmarks/bench_eval.py [--families gpt2 bert] [--tokens 20000] [--width 128] [--repeats 5]

The regime: a network of 4 layers of 4 heads, float32, all cores, no dropout, rows of 64 tokens. `eval` is
what `regard eval MODEL FILE` does: read the model, encode the text, score it. `forward` is training's own
pass over the same batches, as before a backward pass, with a network that was made here and never stored.

The answers are checked first: both have the same loss. The last line is the result as JSON.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from _harness import PARAGRAPH, finish, machine, seconds

from regard.models import load_checkpoint
from regard.training import read_settings, score, train
from regard.training._ranks import Ranks
from regard.training._run import Run, prepare

OBJECTIVES = {"gpt2": "clm", "bert": "mlm"}
SAME = 1e-4


def forward(run: Run) -> float:
    """The loss of training's own pass over the texts."""
    run.task.train()
    loss = targets = 0.0
    for batch in run.train.in_order():
        with run.computing():
            loss += float(run.task(batch)["loss"].detach())
        targets += batch.counts["loss"]
    return loss / targets


def measure(family: str, tokens: int, width: int, repeats: int, place: Path) -> dict[str, Any]:
    """One family's row."""
    text = place / "text.txt"
    lines = [PARAGRAPH[start : start + 60] for start in range(0, len(PARAGRAPH) - 60, 7)]
    text.write_text("\n".join((lines * (1 + tokens // (60 * len(lines))))[: tokens // 60]) + "\n")
    files = (str(text),)
    settings = read_settings(
        OBJECTIVES[family],
        family=family,
        data={"train": files, "valid_share": 0.0},
        tokenizer={"kind": "wordpiece" if OBJECTIVES[family] == "mlm" else "characters", "size": 100},
        batch={"length": 64, "rows": 12, "form": "packed" if OBJECTIVES[family] == "mlm" else "blocks"},
        model={"d_model": width, "d_ff": 4 * width, "dropout_p": 0.0},
        steps=1,
    )
    trained = train(settings, place / "run").model
    with prepare(settings, place / "run", Ranks(), lambda _: None) as run:
        run.task.network.load_state_dict(load_checkpoint(trained).network.state_dict())
        found = score(trained, files)
        apart = abs(found.scores["loss"] - forward(run))
        assert apart < SAME, f"the losses are {apart:.2g} apart"
        took = seconds({"eval": lambda: score(trained, files), "forward": lambda: forward(run)}, repeats)
    return {
        "family": family,
        "tokens": found.tokens,
        "d_model": width,
        **{f"{name}_tokens_s": round(found.tokens / each) for name, each in took.items()},
        "eval_over_forward": round(took["eval"] / took["forward"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=sorted(OBJECTIVES), default=["gpt2", "bert"])
    parser.add_argument("--tokens", type=int, default=20_000, help="about as many as are read")
    parser.add_argument("--width", type=int, default=128, help="d_model")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    rows = []
    print(f"{'family':>10} {'eval':>14} {'forward':>14}   eval's time over forward's")
    for family in options.families:
        with tempfile.TemporaryDirectory() as place:
            row = measure(family, options.tokens, options.width, options.repeats, Path(place))
        rows.append(row)
        rates = " ".join(f"{row[f'{name}_tokens_s']:8,} tok/s" for name in ("eval", "forward"))
        print(f"{family:>10} {rates}   {row['eval_over_forward']:.2f}", flush=True)
    finish("eval", machine(), rows, keep=options.keep)


if __name__ == "__main__":
    main()
