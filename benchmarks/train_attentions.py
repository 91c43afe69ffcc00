"""Every attention on the reverse task: from a row of letters to the same row backwards.

    python benchmarks/train_attentions.py [--only NAME ...] [--steps 1200] [--keep]

The script makes its data from a seed: rows of 1 to 6 of ten letters. A decoder reads a row and a bar and
writes the row backwards and a full stop, greedily; an encoder gives each letter the one that stands at its
place in the row backwards. All learn from the same 20,000 rows, with the same sizes, steps and optimiser, and
are scored on the same 400 other rows of 4 letters and more: a row counts where every letter is right. Softmax
attention is the rival of both kinds, in the same run. With --only, --keep renews these rows of the table and
leaves the others.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from _harness import RESULTS, finish, machine

from regard.decoding import decode_texts
from regard.models import Loaded, load_checkpoint
from regard.training import read_settings, train

LETTERS, MOST = "abcdefghij", 6
SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 256}


@dataclass(frozen=True)
class Entry:
    """An attention of the table.

    Args:
        family: of the network.
        model: fields of its config beside the sizes.
        is_decoder: whether it writes, or gives each letter another.
        without: those of the sizes that the family does not have.
    """

    family: str = "gpt2"
    model: dict[str, Any] = field(default_factory=dict)
    is_decoder: bool = True
    without: tuple[str, ...] = ()


ENTRIES = {
    "softmax": Entry(model={"attention_dropout_p": 0.0}),
    "performer": Entry(model={"attention": {"name": "performer", "features": 64}}),
    "linear": Entry(model={"attention": "linear"}),
    "window": Entry(model={"attention": {"name": "window", "width": 8}, "attention_dropout_p": 0.0}),
    # The letter to be written stood an odd number of places before: two apart, none is in reach.
    "window, dilated": Entry(
        model={"attention": {"name": "window", "width": 8, "dilation": 2}, "attention_dropout_p": 0.0}
    ),
    "softmax, rotary": Entry("llama", without=("dropout_p",)),
    "expire-span": Entry(
        "expire-span",
        {"max_span": 16, "ramp": 4, "initial_span": 0.75, "span_penalty": 1e-6},
        without=("dropout_p",),
    ),
    "sru++": Entry("srupp", {"d_attention": 32}, without=("d_ff",)),
    "softmax, encoder": Entry("bert", {"attention_dropout_p": 0.0}, is_decoder=False),
    "performer, encoder": Entry(
        "bert", {"attention": {"name": "performer", "features": 64}}, is_decoder=False
    ),
    "linformer, encoder": Entry("bert", {"attention": {"name": "linformer", "rank": 8}}, is_decoder=False),
    "perceiver io, encoder": Entry("perceiver-io", {"num_latents": 16, "num_bands": 8}, is_decoder=False),
}
"""A line here is a row of the table."""


def rows(count: int, least: int, draw: random.Random) -> list[str]:
    """Rows of chance, of `least` to MOST letters."""
    return ["".join(draw.choices(LETTERS, k=draw.randint(least, MOST))) for _ in range(count)]


def written_for(learned: Sequence[str], entry: Entry, folder: Path) -> tuple[str, dict[str, Any]]:
    """The file to learn from; the objective with the settings of its own."""
    if entry.is_decoder:
        (folder / "rows.txt").write_text("".join(f"{row}|{row[::-1]}.\n" for row in learned))
        return "clm", {"data": {"unit": "line", "train": [str(folder / "rows.txt")]}, "form": "rows"}
    sentences = ("\n".join(f"{a}\t{b}" for a, b in zip(row, row[::-1], strict=True)) for row in learned)
    (folder / "rows.conll").write_text("\n\n".join(sentences) + "\n")
    return "tag", {"data": {"train": [str(folder / "rows.conll")]}, "form": "rows"}


def backwards(model: Loaded, entry: Entry, test: Sequence[str]) -> list[str]:
    """What a trained model makes of rows."""
    tokenizer = model.require_tokenizer()
    if entry.is_decoder:
        prompts = [f"{row}|" for row in test]
        found = decode_texts(model, tokenizer, prompts, max_length=MOST + 2, stop=".")
        return [ways[0].text.removesuffix(".") for ways in found]
    labels: Any = model.network.config
    answers = []
    for row in test:
        encoding = tokenizer.encode(" ".join(row))
        with torch.no_grad():
            logits = model.network(torch.tensor([encoding.token_ids])).logits
        assert logits is not None
        best = logits[0].argmax(dim=1).tolist()
        answers.append("".join(labels.labels[best[word.tokens[0]]] for word in encoding.words))
    return answers


def trained(
    entry: Entry, learned: Sequence[str], test: Sequence[str], steps: int, seed: int
) -> dict[str, Any]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as above:
        objective, own = written_for(learned, entry, Path(above))
        settings = read_settings(
            objective,
            data={**own["data"], "valid_share": 0.02},
            tokenizer={"kind": "characters"},
            family=entry.family,
            model=_sizes(entry),
            batch={"rows": 32, "length": 2 * MOST + 4, "form": own["form"]},
            optimiser={"lr": 3e-3, "schedule": "cosine"},
            steps=steps,
            evaluate_every=600,
            save_every=600,
            seed=seed,
        )
        began = time.perf_counter()
        result = train(settings, Path(above, "run"))
        took = time.perf_counter() - began
        model = load_checkpoint(result.model)
        found = backwards(model, entry, test)
    right = sum(ours == row[::-1] for ours, row in zip(found, test, strict=True))
    return {"seconds": round(took), "right": right / len(test), "loss": result.scores["loss"]}


def _sizes(entry: Entry) -> dict[str, Any]:
    sizes = SIZES | {"dropout_p": 0.0} | entry.model
    return {name: size for name, size in sizes.items() if name not in entry.without}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(ENTRIES), help="these attentions")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    learned = rows(20_000, 1, draw)
    known = set(learned)
    test = [row for row in rows(2000, 4, draw) if row not in known][:400]
    found = []
    print(f"{'attention':24} {'family':12} right    loss  seconds")
    for name in options.only or ENTRIES:
        entry = ENTRIES[name]
        row = trained(entry, learned, test, options.steps, options.seed)
        found.append({"attention": name, "family": entry.family, **row})
        print(
            f"{name:24} {entry.family:12} {100 * row['right']:5.1f} % {row['loss']:6.3f} {row['seconds']:7}",
            flush=True,
        )
    if options.keep and options.only:
        kept = json.loads((RESULTS / "train_attentions.json").read_text())["results"]
        found = [each for each in kept if each["attention"] not in options.only] + found
    facts = machine() | {"seed": str(options.seed), "steps": str(options.steps)}
    finish("train_attentions", facts, found, keep=options.keep)


if __name__ == "__main__":
    main()
