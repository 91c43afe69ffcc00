"""What a job would take, from a look at all rows and from a sample that is really embedded."""

import io
import random
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.core.extras import pyarrow
from regard.embedding.job._inputs import Inputs
from regard.embedding.job._job import SHARD_ROWS
from regard.embedding.job._shards import result_schema, table, writing
from regard.embedding.job._work import Work


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a job would take.

    Args:
        rows: that there are.
        texts: that can be embedded, as far as can be seen without the model.
        rejected: the others.
        sample: how many texts were embedded for it, drawn evenly from all.
        exact: whether these are all texts; else tokens, vectors, seconds and bytes are estimates.
        tokens: of all texts.
        vectors: rows of the result.
        seconds: at the sample's speed.
        bytes: of the result.
    """

    rows: int
    texts: int
    rejected: int
    sample: int
    exact: bool
    tokens: int
    vectors: int
    seconds: float
    bytes: int


def estimate(inputs: Inputs, work: Work, *, sample: int = 256) -> Estimate:
    """Reads all rows, and embeds a sample of them.

    Args:
        inputs: the rows.
        work: the model.
        sample: texts that are embedded at most; the same ones every time.

    Returns:
        The counts; those of rows are exact.

    Raises:
        InputError: an input cannot be read.
    """
    pa, parquet = pyarrow()
    schema = result_schema(inputs, work)
    draw = random.Random(0)
    kept: list[tuple[int, str, list[Any]]] = []
    rows = texts = weight = 0
    for block in inputs.blocks(shard_rows=SHARD_ROWS, characters=work.characters):
        rows += block.count
        for place, text in enumerate(block.texts):
            # Every text has the same chance, without knowing how many come (Vitter 1985, algorithm R).
            slot = texts if texts < sample else draw.randrange(texts + 1)
            texts += 1
            weight += len(text)
            if slot < sample:
                one = (block.rows[place], text, [each.take([place]) for each in block.columns])
                kept[slot : slot + 1] = [one]
    if not kept:
        return Estimate(
            rows=rows, texts=0, rejected=rows, sample=0, exact=True, tokens=0, vectors=0, seconds=0.0, bytes=0
        )
    drawn = [text for _, text, _ in kept]
    work.embed(drawn[:4])  # the first call is slow
    began = time.perf_counter()
    piece = work.embed(drawn)
    seconds = time.perf_counter() - began
    rows_of = [row for row, _, _ in kept]
    columns = [pa.concat_arrays(same) for same in zip(*(each for _, _, each in kept), strict=True)]
    file = io.BytesIO()
    with parquet.ParquetWriter(file, schema, **writing(schema)) as writer:
        empty = file.tell()
        writer.write_table(table(schema, rows_of, columns, piece))
    # By characters: the sample's texts may be longer or shorter than all are.
    factor = weight / max(1, sum(map(len, drawn)))
    return Estimate(
        rows=rows,
        texts=texts - len(piece.rejected) if texts == len(kept) else texts,
        rejected=rows - texts + (len(piece.rejected) if texts == len(kept) else 0),
        sample=len(kept),
        exact=texts == len(kept),
        tokens=round(piece.counts.get("tokens", 0) * factor),
        vectors=round(len(piece.rows) * (factor if _many(piece.rows) else texts / len(kept))),
        seconds=seconds * factor,
        bytes=round((file.tell() - empty) * (factor if _many(piece.rows) else texts / len(kept))),
    )


def _many(rows: Any) -> bool:
    """Whether a text can have several rows of the result."""
    return bool((np.diff(rows) == 0).any())
