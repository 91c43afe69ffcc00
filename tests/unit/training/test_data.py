"""The tokenizer that a run learns for itself, by the command line's own way in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.text import Tokenizer
from regard.training import Settings, read_settings, train

TEXT = "the cat sat on the mat\nand the dog on the rug\n\n" * 20
TINY = {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 11}


def settings(objective: str, folder: Path, **more: object) -> Settings:
    (folder / "a.txt").write_text(TEXT)
    data = {"train": [str(folder / "a.txt")]}
    if objective == "seq2seq":
        data["train_target"] = data["train"]
    more = {"batch": {"length": 24, "rows": 3}, "tokenizer": {"size": 280}} | more
    return read_settings(objective, data=data, steps=1, model=TINY, **more)


@pytest.mark.parametrize(
    ("objective", "kind", "special"),
    [
        ("clm", "bpe", {"bos", "eos"}),
        ("clm", "characters", {"unk"}),
        ("mlm", "wordpiece", {"mask", "cls", "sep", "pad", "unk"}),
        ("mlm", "bpe", {"mask", "cls", "sep", "pad", "unk"}),
        ("seq2seq", "bpe", {"eos", "pad", "unk"}),
    ],
)
def test_a_tokenizer_is_learned_with_the_marks_of_the_objective(
    objective: str, kind: str, special: set[str], tmp_path: Path
) -> None:
    given = settings(objective, tmp_path, tokenizer={"kind": kind, "size": 280})
    train(given, tmp_path / "run")
    made = Tokenizer.from_folder(tmp_path / "run" / "model", tokenizer_class="GPT2Tokenizer")
    assert made is not None
    assert {name for name in special if getattr(made.special_ids, name) is not None} == special


def test_a_text_goes_on_over_its_lines_for_clm_alone(tmp_path: Path) -> None:
    train(settings("clm", tmp_path, tokenizer={"kind": "characters"}), tmp_path / "clm")
    train(settings("mlm", tmp_path), tmp_path / "mlm")
    rows = {
        name: json.loads((tmp_path / name / "data" / "train.json").read_text())["rows"]
        for name in ("clm", "mlm")
    }
    assert rows["clm"] == 1
    assert rows["mlm"] > 30
