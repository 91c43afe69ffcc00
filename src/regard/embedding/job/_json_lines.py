"""Vectors as JSON lines, for a few texts."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from regard.core.extras import pyarrow
from regard.embedding.job._inputs import Inputs
from regard.embedding.job._job import SHARD_ROWS
from regard.embedding.job._rows import rejected_row
from regard.embedding.job._shards import result_schema, table
from regard.embedding.job._work import Work


def json_lines(
    inputs: Inputs,
    work: Work,
    *,
    on_rejected: Callable[[dict[str, Any]], object],
    shard_rows: int = SHARD_ROWS,
) -> Iterator[str]:
    """The rows of the result, each as a line of JSON without its end.

    Numbers of single precision are written with as many digits as tell them apart.

    Args:
        inputs: the rows.
        work: the model.
        on_rejected: called with each row that cannot be embedded.
        shard_rows: rows that are packed together at most, as for `run`.

    Raises:
        InputError: an input cannot be read.
    """
    schema = result_schema(inputs, work)
    for block in inputs.blocks(shard_rows=shard_rows, characters=work.characters):
        rejected = list(block.rejected)
        if block.texts:
            piece = work.embed(block.texts)
            for place, reason in piece.rejected.items():
                id = block.columns[0][place].as_py() if inputs.columns.id is not None else None
                rejected.append(rejected_row(block.rows[place], *block.origins[place], id, reason))
            rows = table(schema, block, piece)
            columns = {name: _plain(rows.column(name).combine_chunks()) for name in schema.names}
            for values in zip(*columns.values(), strict=True):
                yield json.dumps(dict(zip(columns, values, strict=True)), default=str)
        for row in sorted(rejected, key=lambda row: int(row["row"])):
            on_rejected(row)


def _plain(array: Any) -> list[Any]:
    pa, _ = pyarrow()
    if pa.types.is_fixed_size_list(array.type):
        numbers = array.flatten().to_numpy().reshape(-1, array.type.list_size)
        return [[_number(each) for each in row] for row in numbers]
    if pa.types.is_temporal(array.type):  # Python has no nanoseconds
        array = array.cast(pa.int64() if pa.types.is_duration(array.type) else pa.string())
    return list(array.to_pylist())


def _number(value: Any) -> float | int:
    return int(value) if isinstance(value, np.integer) else float(str(value))
