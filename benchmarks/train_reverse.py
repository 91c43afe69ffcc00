"""The reverse task: from a row of letters to the same row backwards, also of lengths never seen in training.

    python benchmarks/train_reverse.py [--family marian] [--steps 4000] [--keep]

The script makes its data from a seed: rows of 1 to 20 of ten letters, none of length 7, 13 or 17. `regard
train seq2seq` learns from 20,000 of them, a letter a token. Then 200 others of each length are reversed
greedily, also of those three lengths, and of 21 to 24, which are longer than all that was learned from. A row
counts where every letter of it is right.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from _harness import finish, machine

from regard.decoding import decode_texts
from regard.models import load_checkpoint
from regard.training import read_journal, read_settings, train

LETTERS, MOST, UNSEEN, LONGER = "abcdefghij", 20, (7, 13, 17), (21, 22, 23, 24)
SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 256}


def rows(count: int, lengths: list[int], draw: random.Random) -> list[str]:
    """Rows of chance, a length each in turn."""
    return ["".join(draw.choices(LETTERS, k=lengths[place % len(lengths)])) for place in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--family", default=None, help="t5, bart ...; by default the Transformer of the paper"
    )
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    seen = [length for length in range(1, MOST + 1) if length not in UNSEEN]
    learned = rows(20_000, seen, draw)
    with tempfile.TemporaryDirectory() as above:
        source, target = Path(above, "rows"), Path(above, "reversed")
        source.write_text("".join(f"{row}\n" for row in learned))
        target.write_text("".join(f"{row[::-1]}\n" for row in learned))
        settings = read_settings(
            "seq2seq",
            data={"train": [str(source)], "train_target": [str(target)], "valid_share": 0.02},
            tokenizer={"kind": "characters"},
            family=options.family,
            model=SIZES | ({} if options.family else {"dropout_p": 0.0}),
            task={"smoothing": 0.0, "bleu_texts": 0},
            batch={"rows": 64, "length": 32},
            optimiser={"lr": 1e-3, "schedule": "cosine"},
            steps=options.steps,
            evaluate_every=500,
            save_every=500,
            seed=options.seed,
        )
        began = time.perf_counter()
        folder = Path(above, "run")
        result = train(settings, folder)
        took = time.perf_counter() - began
        model = load_checkpoint(result.model)
        curve = [
            [each["step"], round(each["valid_loss"], 5)]
            for each in read_journal(folder)
            if "valid_loss" in each
        ]
        known, found = set(learned), {}
        for length in (*range(1, MOST + 1), *LONGER):
            test = [row for row in rows(400, [length], draw) if row not in known or length < 4][:200]
            written = decode_texts(model, model.require_tokenizer(), test, max_length=length + 5)
            right = sum(ours[0].text == row[::-1] for ours, row in zip(written, test, strict=True))
            found[length] = right / len(test)
    print("length  right")
    for length, share in found.items():
        mark = (
            " (length not learned from)"
            if length in UNSEEN
            else " (longer than any)"
            if length > MOST
            else ""
        )
        print(f"{length:6}  {100 * share:5.1f} %{mark}")

    def mean(lengths: Any) -> float:
        return sum(found[length] for length in lengths) / len(lengths)

    row = {
        "family": options.family or "the paper's",
        "seconds": round(took),
        "seen": mean(seen),
        "unseen": mean(UNSEEN),
        "longer": mean(LONGER),
        "by_length": {str(length): share for length, share in found.items()},
        "curve": curve,
    }
    facts = machine() | {"seed": str(options.seed), "steps": str(options.steps)}
    finish("train_reverse", facts, [row], keep=options.keep)


if __name__ == "__main__":
    main()
