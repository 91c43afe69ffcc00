"""Inputs as plain lists, and from every shard on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.embedding.job import Columns, Inputs
from regard.embedding.job._inputs import Block


def blocks(inputs: Inputs, *, shard_rows: int = 3, characters: int = 1000) -> list[Block]:
    return list(inputs.blocks(shard_rows=shard_rows, characters=characters))


def rows(path: Path | list[Path], columns: Columns | None = None, **options: Any) -> dict[int, Any]:
    """By number of a row: its text and the values carried along, or the reason why it is rejected."""
    paths = path if isinstance(path, list) else [path]
    found: dict[int, Any] = {}
    for block in blocks(Inputs(paths, columns or Columns(), **options)):
        carried = zip(*(each.to_pylist() for each in block.columns), strict=True)
        values = list(carried) if block.columns else [()] * len(block.texts)
        for row, text, each in zip(block.rows, block.texts, values, strict=True):
            found[row] = (text, *each) if each else text
        for rejected in block.rejected:
            found[rejected["row"]] = [rejected["id"], rejected["reason"]]
    return dict(sorted(found.items()))


def plain(block: Block) -> Any:
    columns = [each.to_pylist() for each in block.columns]
    return (
        (block.shard, block.rows, block.origins, block.texts, columns, block.rejected),
        (block.count, block.closes),
    )
