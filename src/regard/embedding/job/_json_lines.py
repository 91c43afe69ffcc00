"""Vectors as plain values, for JSON lines of a few texts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from regard.core.extras import pyarrow
from regard.embedding.job._inputs import Inputs
from regard.embedding.job._job import SHARD_ROWS
from regard.embedding.job._shards import carried_names, check_names
from regard.embedding.job._work import Column, Work


def json_lines(
    inputs: Inputs,
    work: Work,
    *,
    on_rejected: Callable[[dict[str, Any]], object],
    shard_rows: int = SHARD_ROWS,
) -> Iterator[dict[str, Any]]:
    """The rows of the result, each with its values by column.

    Numbers of single precision have as many digits as tell them apart.

    Args:
        inputs: the rows.
        work: the model.
        on_rejected: called with each row that cannot be embedded.
        shard_rows: rows that are packed together at most, as for `run`.

    Raises:
        InputError: an input cannot be read, or there are no rows.
    """
    check_names(inputs, work)
    names = ["row", *carried_names(inputs), *work.sample]
    for block in inputs.blocks(shard_rows=shard_rows, characters=work.characters):
        reasons: Mapping[int, str] = {}
        if block.texts:
            piece = work.embed(block.texts)
            reasons = piece.rejected
            columns = [
                [block.rows[place] for place in piece.rows],
                *(_values(each.take(piece.rows)) for each in block.columns),
                *map(_plain, piece.columns.values()),
            ]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, values, strict=True))
        for row in block.without(reasons, has_id=inputs.columns.id is not None):
            on_rejected(row)


def _values(array: Any) -> list[Any]:
    """Those of an Arrow array."""
    pa, _ = pyarrow()
    if pa.types.is_temporal(array.type):  # Python has no nanoseconds
        array = array.cast(pa.int64() if pa.types.is_duration(array.type) else pa.string())
    return list(array.to_pylist())


def _plain(column: Column) -> list[Any]:
    if not isinstance(column, np.ndarray):
        return list(column)
    if column.ndim == 1:
        return [_number(each) for each in column]
    return [[_number(each) for each in row] for row in column]


def _number(value: Any) -> float | int:
    if isinstance(value, np.bool_):
        return bool(value)
    return int(value) if isinstance(value, np.integer) else float(str(value))
