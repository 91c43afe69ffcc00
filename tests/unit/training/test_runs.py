"""A run of every objective, in a folder: it writes what can be loaded, and goes on where it was killed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import InputError
from regard.models import load_checkpoint, write_checkpoint
from regard.text import write_tokenizer
from regard.training import Settings, read_journal, read_settings, score, train
from regard.training._data import splits_of
from regard.training._run import check
from tolerances import FP32_OF_LARGEST
from unit.training.small import LABELS, PAIRS, SMALLEST, TAGGED, TEXTS, Killed, kill_at, network, tokenizer

ROWS: dict[str, list[Any]] = {
    "clm": [{"text": text} for text in TEXTS],
    "mlm": [{"text": text} for text in TEXTS],
    "seq2seq": [{"text": text, "target": target} for text, target in PAIRS],
    "classify": [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)],
    "pairs": [
        {"text": text, "target": target, "label": place % 2} for place, (text, target) in enumerate(PAIRS)
    ],
    "electra": [{"text": text} for text in TEXTS],
    "distil": [{"text": text} for text in TEXTS],
    "tag": [{"words": words, "tags": tags} for words, tags in TAGGED],
}
"""Rows of data by objective; the two texts of "pairs" are classified."""


def settings_of(name: str, folder: Path, **more: Any) -> Settings:
    """A run of six steps on tiny files in a folder."""
    data = folder / f"{name}.jsonl"
    if not data.exists():
        data.write_text("".join(json.dumps(row) + "\n" for row in ROWS[name] * 3))
        (folder / "tokenizer").mkdir(exist_ok=True)
        write_tokenizer(tokenizer(), folder / "tokenizer")
    more_of: dict[str, Any] = {}
    if name == "pairs":
        more_of = {"task": {"pairs": True}}
    elif name == "seq2seq":
        more_of = {"task": {"bleu_texts": 2}}  # each score is a search
    elif name == "distil":
        teacher = network("bert", head="masked-lm", num_layers=3)
        if not (folder / "teacher").exists():
            write_checkpoint(teacher, folder / "teacher", tokenizer=tokenizer())
        more_of = {"task": {"teacher": str(folder / "teacher")}, "model": {}, "tokenizer": {}}
    given: dict[str, Any] = {
        "data": {"train": [str(data)], "valid": [str(data)]},
        "tokenizer": {"path": str(folder / "tokenizer")},
        "batch": {"length": 16, "rows": 2},
        "model": SMALLEST | ({"d_embedding": 8} if name == "electra" else {}),
        "steps": 6,
        "evaluate_every": 3,
        "save_every": 2,
    }
    return read_settings("classify" if name == "pairs" else name, **(given | more_of | more))


# "pairs" is the classifier, of two texts.
@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"classify"}))
def test_a_run_that_was_killed_goes_on_to_the_same_model(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path, save_every=4)
    whole = train(settings, tmp_path / "whole")
    with pytest.raises(Killed):
        train(settings, tmp_path / "killed", on_report=kill_at(5))
    again = train(settings, tmp_path / "killed")
    assert again.scores == whole.scores
    read = score(tmp_path / "whole", settings.data.valid).scores
    # GPT-2's file has its matrices transposed, and they are read so: their products round otherwise.
    assert read == pytest.approx(whole.scores, rel=FP32_OF_LARGEST if name == "clm" else 0.0, abs=0.0)
    assert (again.step, "loss" in again.scores) == (whole.step, True)
    ours, theirs = (load_checkpoint(result.model).network.state_dict() for result in (again, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[each], theirs[each]) for each in ours)
    journals = [
        [{**line, "seconds": 0} for line in read_journal(tmp_path / each)] for each in ("whole", "killed")
    ]
    assert journals[0] == journals[1]


def test_a_run_takes_more_or_fewer_steps_where_its_steps_so_far_were_the_same(tmp_path: Path) -> None:
    stable = {"schedule": "stable", "warmup": 1}  # it falls over the last fifth
    settings = settings_of("clm", tmp_path, optimiser=stable, steps=10)
    with pytest.raises(Killed):
        train(settings, tmp_path / "run", on_report=kill_at(5))
    with pytest.raises(InputError, match=r"other settings: steps is 10 there and 4 here\. Give the same "):
        train(replace(settings, steps=4), tmp_path / "run")  # whose last step was with another rate
    shorter = replace(settings, steps=6)
    found = [train(shorter, tmp_path / each) for each in ("run", "whole")]
    assert [result.step for result in found] == [6, 6]
    ours, theirs = (load_checkpoint(result.model).network.state_dict() for result in found)
    assert all(torch.equal(ours[each], theirs[each]) for each in theirs)
    with pytest.raises(InputError, match="steps is 6 there and 9 here"):
        train(replace(settings, steps=9), tmp_path / "run")


def test_labels_are_sorted_kept_and_written(tmp_path: Path) -> None:
    result = train(settings_of("classify", tmp_path), tmp_path / "run")
    config: Any = load_checkpoint(result.model).network.config
    assert config.labels == ("both", "money", "water")
    assert json.loads((result.model / "config.json").read_text())["label2id"] == {
        "both": 0,
        "money": 1,
        "water": 2,
    }
    numbers = train(settings_of("pairs", tmp_path), tmp_path / "numbers")
    assert load_checkpoint(numbers.model).network.config.labels == ("0", "1")  # type: ignore[attr-defined]


def test_a_checkpoint_gets_a_new_head_or_keeps_its_own(tmp_path: Path) -> None:
    first = train(settings_of("mlm", tmp_path), tmp_path / "mlm")
    more: dict[str, Any] = {"start": str(first.model), "model": {}, "tokenizer": {}, "steps": 1}
    classified = train(settings_of("classify", tmp_path, **more), tmp_path / "classify")
    before, after = (load_checkpoint(result.model).network for result in (first, classified))
    apart = [
        float((ours - theirs).abs().max().detach())
        for ours, theirs in zip(
            before.stack("encoder").parameters(), after.stack("encoder").parameters(), strict=True
        )
    ]
    assert max(apart) < 1e-3  # one step of the optimiser
    more["start"] = str(classified.model)
    (tmp_path / "fewer.jsonl").write_text('{"text": "the bank", "label": "water"}\n' * 4)
    more["data"] = {"train": [str(tmp_path / "fewer.jsonl")], "valid_share": 0.0}
    kept = train(settings_of("classify", tmp_path, **more), tmp_path / "again")
    assert load_checkpoint(kept.model).network.config.labels == ("both", "money", "water")  # type: ignore[attr-defined]


_BEST = "best must be loss or perplexity or accuracy or .*; got "
CANNOT_BE: list[tuple[str, dict[str, Any], str]] = [
    ("seq2seq", {"best": "blue"}, f"{_BEST}'blue'"),
    ("seq2seq", {"best": "bleu", "task": {"bleu_texts": 0}}, f"{_BEST}'bleu'"),
    ("seq2seq", {"best": "f1"}, f"{_BEST}'f1'"),
    ("distil", {"task": {}}, r"task\.teacher must name the model to learn from"),
    ("distil", {"model": {"d_model": 8}}, "model must be left out, or set .* has its sizes; got d_model"),
    ("clm", {"batch": {"length": 10**9}}, "a network of 12,000,00.* needs 134.* lower batch.length or the"),
    ("clm", {"watch": ["the " * 17]}, "^watch: 'the the.*cannot be traced: .*16"),
    ("clm", {"watch_every": 0}, "^watch_every must be a whole number, at least 1; got 0"),
    ("clm", {"tokenizer": {"path": "nowhere.json"}}, "tokenizer.path must be .*; nowhere.json: No such"),
    ("clm", {"data": {"train": ["-"]}}, "data.train must be files"),
    ("clm", {"epochs": 1.0}, "steps must be None where epochs says"),
]


@pytest.mark.parametrize(("name", "more", "told"), CANNOT_BE)
def test_settings_that_cannot_be_are_refused_before_the_first_step(
    name: str, more: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=told):
        train(settings_of(name, tmp_path, **more), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


REFUSED = {
    "label": (
        "classify",
        [{"text": "the bank", "label": "sky"}],
        "line 1 of .*label must be one of both, money, wat",
    ),
    "no list": (
        "tag",
        [{"words": "the bank", "tags": ["O"]}],
        "must hold a list of words and a list of tags",
    ),
    "lengths": ("tag", [{"words": ["the", "bank"], "tags": ["O"]}], "as many words as tags; got 2 and 1"),
    "number": ("mlm", [{"text": 3}], "line 1 of .*must hold a text; got int"),
}


@pytest.mark.parametrize(("name", "row", "told"), REFUSED.values(), ids=REFUSED)
def test_rows_that_cannot_be_used_are_refused(name: str, row: Any, told: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path)
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(row[0]) + "\n")
    settings = settings_of(name, tmp_path, data={"train": list(settings.data.train), "valid": [str(bad)]})
    with pytest.raises(InputError, match=told):
        train(settings, tmp_path / "run")


def test_one_label_is_no_choice(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\nthe bank,water\n")
    with pytest.raises(InputError, match="at least two labels in the data; there is only 'water'"):
        train(
            settings_of("classify", tmp_path, data={"train": [str(tmp_path / "one.csv")]}), tmp_path / "run"
        )


def test_csv_with_backslashes_and_no_header(tmp_path: Path) -> None:
    """Also to tell that there are columns for pairs, and what a text is."""
    path = tmp_path / "pairs.csv"
    path.write_text('"the \\"river\\"";das Ufer\n"a; bank";eine Bank\n' * 2)
    form = {"csv": {"delimiter": ";", "escape": "\\", "header": False}, "text": "1", "target": "2"}
    data = {"train": [str(path)], "train_target": [], "valid_share": 0.0, **form}
    settings = settings_of("seq2seq", tmp_path, data=data)
    texts = [values for values, _ in splits_of(settings, check(settings))[0]]
    assert texts == [('the "river"', "das Ufer"), ("a; bank", "eine Bank")] * 2


def test_tags_stand_in_columns_of_plain_text_too(tmp_path: Path) -> None:
    (tmp_path / "some.conll").write_text(
        "-DOCSTART- O\n\nthe DT O\nbank NN B-PLACE\n\n# a remark\na DT O\nriver NN I-PLACE\n"
    )
    settings = settings_of(
        "tag", tmp_path, data={"train": [str(tmp_path / "some.conll")], "valid_share": 0.0}, steps=1
    )
    train(settings, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "labels.json").read_text()) == ["B-PLACE", "I-PLACE", "O"]
    assert json.loads((tmp_path / "run" / "data" / "train.json").read_text())["rows"] == 2
