"""A tiny run of each objective that is watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.text import write_tokenizer
from regard.training import Result, read_settings, train
from unit.training import small

SENTENCE = "the river bank of the money sat by the river bank"
WATCHED = {"clm": [SENTENCE, "a loan"], "seq2seq": [f"{SENTENCE} => a loan of the bank", "fishing"]}
FAMILIES = {"clm": "gpt2", "seq2seq": "marian"}


def run(
    folder: Path,
    name: str = "run",
    *,
    objective: str = "clm",
    on_report: Callable[[Mapping[str, Any]], None] = lambda _: None,
    **more: Any,
) -> Result:
    """Train in `folder / name`, twelve steps."""
    data = {"train": [str(folder / "text.txt")], "valid_share": 0.0}
    (folder / "text.txt").write_text("\n".join(small.TEXTS * 4) + "\n")
    if objective == "seq2seq":
        data |= {"train_target": [str(folder / "text.txt")]}
    vocabulary = folder / "tokenizer"
    if not vocabulary.exists():
        vocabulary.mkdir()
        write_tokenizer(small.tokenizer(), vocabulary, max_length=31)
    given: dict[str, Any] = {"steps": 12, "evaluate_every": 5, "save_every": 5, "watch_every": 4, "seed": 3}
    given["model"] = small.SIZES
    settings = read_settings(
        objective,
        data=data,
        tokenizer={"path": str(vocabulary)},
        family=FAMILIES[objective],
        batch={"length": 16, "rows": 3},
        optimiser={"lr": 0.01, "warmup": 1},
        **(given | more),
    )
    return train(settings, folder / name, on_report=on_report)
