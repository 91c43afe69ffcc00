"""Inputs as plain lists, and from every shard on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from regard.embedding.job import Columns, Inputs
from regard.embedding.job._inputs import Block


def blocks(inputs: Inputs, *, shard_rows: int = 3, characters: int = 1000) -> list[Block]:
    return list(inputs.blocks(shard_rows=shard_rows, characters=characters))


def rows(path: Path | list[Path], columns: Columns | None = None, **options: Any) -> dict[int, Any]:
    """By number of a row: its text and the values carried along, or the reason why it is rejected."""
    paths = path if isinstance(path, list) else [path]
    found: dict[int, Any] = {}
    for block in blocks(Inputs(paths, columns or Columns(), **options)):
        numbers, columns = block.take(np.arange(len(block.texts)))
        carried = zip(*(each.to_pylist() for each in columns), strict=True)
        values = list(carried) if columns else [()] * len(block.texts)
        for row, text, each in zip(numbers.tolist(), block.texts, values, strict=True):
            found[row] = (text, *each) if each else text
        for rejected in block.without({}):
            found[rejected["row"]] = [rejected["id"], rejected["reason"]]
    return dict(sorted(found.items()))


def plain(block: Block) -> Any:
    *lists, carried = block.rows
    return block.shard, block.closes, block.texts, lists, [each.to_pylist() for each in carried]
