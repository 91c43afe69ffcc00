"""Examples on disk give back what was written, and say when they are others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.core.errors import CheckpointError, InputError, OutputError
from regard.training import _batch
from regard.training._batch import Examples

COLUMNS = ("tokens", "label")


def rows(seed: int = 0, count: int = 50) -> list[dict[str, list[int]]]:
    drawn = random.Random(seed)
    return [
        {
            "tokens": [drawn.randrange(-100, 2**31) for _ in range(drawn.choice([0, 1, 7]))],
            "label": [drawn.randrange(3)],
            "more": [1],
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("waiting", [1, 5, 1 << 18])
def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int) -> None:
    monkeypatch.setattr(_batch, "_FLUSHED", waiting)
    wanted = rows()
    written = Examples.write(tmp_path / "a", iter(wanted), COLUMNS)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    for examples in (written, Examples.open(tmp_path / "a")):
        assert (len(examples), examples.columns) == (50, COLUMNS)
        found = [{name: each.tolist() for name, each in example.items()} for example in examples]
        assert found == [{name: row[name] for name in COLUMNS} for row in wanted]
        assert examples.lengths("tokens").tolist() == [len(row["tokens"]) for row in wanted]
        assert examples.flat("label").tolist() == [label for row in wanted for label in row["label"]]
    with pytest.raises(IndexError):
        written[50]
    with pytest.raises(ValueError, match="read-only"):
        written.flat("label")[0] = 1


def test_a_column_of_nothing(tmp_path: Path) -> None:
    examples = Examples.write(tmp_path / "a", [{"tokens": [1], "label": []}], COLUMNS)
    assert examples[0]["label"].tolist() == []


def broken() -> Iterator[Any]:
    yield {"tokens": [1], "label": [2]}
    raise RuntimeError("the source broke")


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ([], InputError, "at least one example"),
        ([{"tokens": [1]}], InputError, "example 1 has no column 'label'"),
        ([{"tokens": [2**31], "label": [1]}], InputError, "example 1: column 'tokens' must hold whole"),
        ([{"tokens": [1.5], "label": [1]}], InputError, "example 1: column 'tokens' must hold whole"),
        ([{"tokens": 3, "label": [1]}], InputError, "example 1: column 'tokens' must hold whole"),
        (broken(), RuntimeError, "the source broke"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path: Path, given: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        Examples.write(tmp_path / "a", given, COLUMNS)
    assert list(tmp_path.iterdir()) == []


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    examples = Examples.write(tmp_path / "a", rows(), COLUMNS)
    with pytest.raises(OutputError, match="is there already"):
        Examples.write(tmp_path / "a", rows(), COLUMNS)
    with pytest.raises(OutputError, match="cannot be written"):
        Examples.write(tmp_path / "none" / "a", rows(), COLUMNS)
    with pytest.raises(InputError, match="column must be one of tokens, label; got 'no'"):
        examples.lengths("no")
    path = tmp_path / "a" / "tokens.values"
    np.append(examples.flat("tokens"), np.int32(1)).tofile(path)
    with pytest.raises(CheckpointError, match=r"holds no whole examples \(tokens\.values has \d+ bytes\)"):
        Examples.open(tmp_path / "a")
    with pytest.raises(CheckpointError, match="no such file"):
        Examples.open(tmp_path / "b")
