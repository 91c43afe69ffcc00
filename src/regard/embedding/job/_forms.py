"""Other forms of a result: an estimate of it, one NumPy file, and values for JSON lines."""

import io
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.core.files import write_whole
from regard.embedding.job._folder import QUARANTINE, Folder
from regard.embedding.job._inputs import Block, Inputs
from regard.embedding.job._job import SHARD_ROWS, JobState, OpenWork, Spread, Summary, run
from regard.embedding.job._reading import Batch
from regard.embedding.job._shards import (
    Arrays,
    carried_names,
    check_names,
    read_arrays,
    result_schema,
    table,
    writing,
)
from regard.embedding.job._work import Column, Work


def run_to_array(
    inputs: Inputs,
    out: Path,
    open_work: OpenWork,
    *,
    shard_rows: int = SHARD_ROWS,
    on_progress: Callable[[JobState], object] | None = None,
    spread: Spread | None = None,
) -> Summary:
    """As `run`, into one `.npy` file: vector n is that of row n, NaN where the row was rejected.

    The job runs in the folder OUT.parts beside the file, from which it goes on when it was interrupted, and
    which goes away at the end. Neither takes more memory than a shard. The reasons of rejected rows are in
    OUT.quarantine.jsonl. No file is made where no row has a vector.

    Raises:
        InputError: as `run`; or the file is there already, columns are to be kept or ids, a text has several
            vectors, or they are whole numbers.
        OutputError: as `run`.
    """
    # Shards first, so that it can go on; one file at the end.
    parts = out.with_name(out.name + ".parts")
    if out.exists() and not parts.exists():
        raise InputError(f"{str(out)!r} is there already; remove it, or choose another name.")

    def checked(earlier: Any) -> Work:
        # Checked as soon as the columns are known, before anything is written.
        work = open_work(earlier)
        _check(inputs, work)
        return work

    form = Arrays()
    summary = run(
        inputs, parts, checked, shard_rows=shard_rows, on_progress=on_progress, spread=spread, form=form
    )
    with Folder.locked(parts, form.ending) as folder:
        shards = [folder.part(number) for number in range(summary.shards)]
        if summary.vectors:
            write_whole(out, lambda path: _write(path, shards, shard_rows, summary.rows))
        quarantine = out.with_name(out.name + ".quarantine.jsonl")
        if summary.rejected:
            write_whole(quarantine, (parts / QUARANTINE).read_bytes())
        else:
            quarantine.unlink(missing_ok=True)
        folder.remove()
    parts.rmdir()
    return replace(summary, folder=str(out), bytes=out.stat().st_size if summary.vectors else 0)


def _check(inputs: Inputs, work: Work) -> None:
    if inputs.columns.carried:
        raise InputError("a .npy file holds vectors only; for --id-column and --keep give -o a folder.")
    if "text" in work.sample:
        raise InputError("a .npy file holds one vector a text; for tokens and words give -o a folder.")
    vectors = [np.asarray(column) for name, column in work.sample.items() if name.startswith("vector")]
    if not all(np.issubdtype(each.dtype, np.floating) for each in vectors):
        raise InputError("a .npy file holds vectors of floats; for whole numbers give -o a folder.")


def _write(path: Path, shards: list[Path], shard_rows: int, rows: int) -> None:
    # Any block tells the type and the shape.
    _, some = next(block for shard in shards for block in read_arrays(shard))
    shape, dtype, descr = some.shape[1:], some.dtype, np.lib.format.dtype_to_descr(some.dtype)
    with path.open("wb") as file:
        header = {"descr": descr, "fortran_order": False, "shape": (rows, *shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for number, shard in enumerate(shards):
            first = number * shard_rows
            # A shard at a time; rows without a vector stay NaN.
            full = np.full((min(shard_rows, rows - first), *shape), np.nan, dtype)
            for there, vectors in read_arrays(shard):
                full[there - first] = vectors
            file.write(full.data)


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
    # As for shards: no two columns of one name.
    check_names(inputs, work)
    names = ["row", *carried_names(inputs), *work.sample]
    for block in inputs.blocks(shard_rows=shard_rows, characters=work.characters):
        reasons: Mapping[int, str] = {}
        if block.texts:
            piece = work.embed(block.texts)
            reasons = piece.rejected
            # A row's number, what is carried along, what was computed.
            numbers, carried = block.take(piece.rows)
            computed = map(_plain, piece.columns.values())
            for values in zip(numbers.tolist(), *map(_values, carried), *computed, strict=True):
                yield dict(zip(names, values, strict=True))
        for row in block.without(reasons):
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
    # By its text: float32 0.1 is written 0.1, not 0.10000000149.
    return int(value) if isinstance(value, np.integer) else float(str(value))


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
    _, parquet = pyarrow()
    schema = result_schema(inputs, work)
    draw = random.Random(0)
    # The sample, drawn while all rows are read once.
    kept: list[Batch] = []
    rows = texts = weight = 0
    for block in inputs.blocks(shard_rows=SHARD_ROWS, characters=work.characters):
        rows += len(block.rows.numbers)
        for place, text in enumerate(block.texts):
            # Every text has the same chance, without knowing how many come (Vitter 1985, algorithm R).
            slot = texts if texts < sample else draw.randrange(texts + 1)
            texts += 1
            weight += len(text)
            if slot < sample:
                kept[slot : slot + 1] = [block.rows.take([block.good[place]])]
    if not kept:
        return Estimate(
            rows=rows, texts=0, rejected=rows, sample=0, exact=True, tokens=0, vectors=0, seconds=0.0, bytes=0
        )
    # The sample as one block.
    drawn = Block(0, Batch.joined(kept), True)
    work.embed(drawn.texts[:4])  # the first call is slow
    began = time.perf_counter()
    piece = work.embed(drawn.texts)
    seconds = time.perf_counter() - began
    file = io.BytesIO()
    with parquet.ParquetWriter(file, schema, **writing(schema)) as writer:
        # What a file has without rows.
        empty = file.tell()
        writer.write_table(table(schema, drawn, piece))
    # By characters: the sample's texts may be longer or shorter than all are.
    factor = weight / max(1, sum(map(len, drawn.texts)))
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
