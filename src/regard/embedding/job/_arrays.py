"""Sentence vectors as one NumPy file, put together from the shards of a job."""

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.core.files import write_whole
from regard.embedding.job._folder import Folder
from regard.embedding.job._inputs import Inputs
from regard.embedding.job._job import SHARD_ROWS, OpenWork, Progress, Spread, Summary, run
from regard.embedding.job._shards import result_schema
from regard.embedding.job._work import Work

SUFFIXES = (".npy", ".npz")
"""What a NumPy file can end in."""


def run_to_array(
    inputs: Inputs,
    out: Path,
    open_work: OpenWork,
    *,
    shard_rows: int = SHARD_ROWS,
    on_progress: Callable[[Progress], object] | None = None,
    spread: Spread | None = None,
) -> Summary:
    """As `run`, into one file: a `.npy` with the vectors, or a `.npz` with their rows and ids too.

    The job runs in the folder OUT.parts beside the file, from which it goes on when it was interrupted, and
    which goes away at the end. Neither takes more memory than a shard.

    In a `.npy`, vector n is of row n, and one of NaN stands for a row that was rejected; so it needs floats.
    A `.npz` holds `vectors`, `row`, and `id` where there is one; for int8 also `scale`. Rejected rows
    are left out, and their reasons are in OUT.quarantine.jsonl.

    Raises:
        InputError: as `run`; or columns are to be kept, a text has several vectors, or a `.npy` is to hold
            whole numbers.
        OutputError: as `run`.
    """
    parts = out.with_name(out.name + ".parts")
    kept: dict[str, Any] = {}

    def checked(earlier: Any) -> Work:
        work = open_work(earlier)
        _check(inputs, work, out)
        kept["schema"] = result_schema(inputs, work)
        return work

    summary = run(inputs, parts, checked, shard_rows=shard_rows, on_progress=on_progress, spread=spread)
    vectors = [name for name in kept["schema"].names if name.startswith("vector")]
    with Folder.locked(parts) as folder:
        shards = [folder.part(number) for number in range(summary.shards)]
        array = _Array(shards, vectors, shard_rows, summary)
        if out.suffix == ".npy":
            write_whole(out, array.write_npy)
        else:
            write_whole(out, lambda path: array.write_npz(path, kept["schema"].names))
        quarantine = out.with_name(out.name + ".quarantine.jsonl")
        if summary.rejected:
            write_whole(quarantine, (parts / "_quarantine.jsonl").read_bytes())
        else:
            quarantine.unlink(missing_ok=True)
        folder.remove()
    parts.rmdir()
    return replace(summary, folder=str(out), bytes=out.stat().st_size)


def _check(inputs: Inputs, work: Work, out: Path) -> None:
    pa, _ = pyarrow()
    if inputs.columns.keep:
        raise InputError("--keep goes with a folder of Parquet files; a NumPy file holds vectors only.")
    if any(field.name == "text" for field in work.fields):
        raise InputError(
            "a NumPy file holds one vector a text; for tokens and words give -o a folder, for Parquet files."
        )
    vectors = [field for field in work.fields if field.name.startswith("vector")]
    floats = all(pa.types.is_floating(each.type.value_type) for each in vectors)
    if out.suffix == ".npy" and (inputs.columns.id is not None or not floats):
        raise InputError("a .npy file holds vectors of floats and no ids; give -o a .npz file, or a folder.")


class _Array:
    def __init__(self, shards: list[Path], vectors: list[str], shard_rows: int, summary: Summary) -> None:
        self._shards, self._vectors = shards, vectors
        self._shard_rows, self._summary = shard_rows, summary

    def write_npy(self, path: Path) -> None:
        with path.open("wb") as file:
            for first, (block, rows) in enumerate(self._blocks()):
                if first == 0:
                    _header(file, block.dtype, (self._summary.rows, *block.shape[1:]))
                count = min(self._shard_rows, self._summary.rows - first * self._shard_rows)
                full = np.full((count, *block.shape[1:]), np.nan, block.dtype)
                full[rows - first * self._shard_rows] = block
                file.write(full.data)

    def write_npz(self, path: Path, names: list[str]) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            self._write(archive, "vectors", (block for block, _ in self._blocks()))
            for name in names:
                if name in ("row", "id") or name.startswith("scale"):
                    self._write(archive, name, self._columns(name))

    def _write(self, archive: zipfile.ZipFile, name: str, blocks: Iterator[NDArray[Any]]) -> None:
        # Without a time of its own an entry is of 1980, so the same vectors give the same bytes.
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            for number, block in enumerate(blocks):
                if number == 0:
                    _header(file, block.dtype, (self._summary.vectors, *block.shape[1:]))
                file.write(np.ascontiguousarray(block).data.cast("B") if block.size else b"")

    def _blocks(self) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """The vectors of each shard, (rows, width) or (rows, layers, width), and the numbers of the rows."""
        _, parquet = pyarrow()
        for path in self._shards:
            rows = parquet.read_table(path, columns=["row", *self._vectors], partitioning=None)
            found = []
            for name in self._vectors:
                column = rows.column(name).combine_chunks()
                found.append(column.flatten().to_numpy().reshape(-1, column.type.list_size))
            stacked = found[0] if len(found) == 1 else np.stack(found, axis=1)
            yield stacked, rows.column("row").to_numpy()

    def _columns(self, name: str) -> Iterator[NDArray[Any]]:
        _, parquet = pyarrow()
        arrays = (
            parquet.read_table(path, columns=[name], partitioning=None).column(name) for path in self._shards
        )
        if name != "id" or self._id_is_number():
            yield from (each.to_numpy() for each in arrays)
            return
        width = 1  # NumPy's strings have one width: it is looked for first
        for path in self._shards:
            ids = parquet.read_table(path, columns=[name], partitioning=None).column(name)
            width = max([width, *(len(each) for each in ids.to_pylist())])
        yield from (np.array(each.to_pylist(), f"<U{width}") for each in arrays)

    def _id_is_number(self) -> bool:
        pa, parquet = pyarrow()
        return bool(pa.types.is_integer(parquet.read_schema(self._shards[0]).field("id").type))


def _header(file: IO[bytes], dtype: Any, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
