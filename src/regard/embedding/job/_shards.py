"""Writing a shard: a file of Parquet, or of NumPy's arrays, whose bytes follow from its rows alone."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import InputError, OutputError
from regard.core.extras import pyarrow
from regard.embedding._embeddings import arrow
from regard.embedding.job._inputs import Block, Inputs
from regard.embedding.job._work import Column, Piece, Work


def check_names(inputs: Inputs, work: Work) -> None:
    """Refuse columns that are carried along under a name that the result uses itself."""
    own = {"row", "id", *work.sample}
    # The result's own names.
    taken = next((name for name in inputs.columns.keep if name in own), None)
    if taken is not None:
        raise InputError(
            f"--keep {taken!r}: the result has a column of this name of its own; rename it in the input, or "
            "leave it out."
        )


def carried_names(inputs: Inputs) -> list[str]:
    """What the columns that are carried along are called in the result."""
    has_id = inputs.columns.id is not None
    return ["id" if has_id and place == 0 else field.name for place, field in enumerate(inputs.fields)]


def result_schema(inputs: Inputs, work: Work) -> Any:
    """The columns of the result: a row's number, its id, what is carried along, and what is computed."""
    check_names(inputs, work)
    pa, _ = pyarrow()
    # In the order: number, id and columns along, then what was computed.
    carried = [
        pa.field(name, field.type) for name, field in zip(carried_names(inputs), inputs.fields, strict=True)
    ]
    computed = [pa.field(name, _arrow(column).type) for name, column in work.sample.items()]
    return pa.schema([pa.field("row", pa.int64(), nullable=False), *carried, *computed])


def table(schema: Any, block: Block, piece: Piece) -> Any:
    """The rows of the result: number, id, what is carried along, and what was computed."""
    pa, _ = pyarrow()
    numbers, carried = block.take(piece.rows)
    computed = map(_arrow, piece.columns.values())
    return pa.Table.from_arrays([pa.array(numbers), *carried, *computed], schema=schema)


def _arrow(column: Column) -> Any:
    pa, _ = pyarrow()
    return arrow(column) if isinstance(column, np.ndarray) else pa.array(column, pa.string())


def writing(schema: Any) -> dict[str, Any]:
    """How rows of a schema are written: fixed, so that the same rows give the same bytes."""
    # Floats have hardly a value twice, and compress only byte by byte of the same place in each.
    leaves = {leaf: _is_float(type) for field in schema for leaf, type in _leaf(field)}
    return {
        # Everything that changes the bytes is fixed here.
        "version": "2.6",
        "data_page_version": "1.0",
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [leaf for leaf, floats in leaves.items() if not floats],
        "use_byte_stream_split": [leaf for leaf, floats in leaves.items() if floats],
        "write_statistics": [name for name in ("row", "id") if name in schema.names],
        "store_schema": True,
    }


class Form(Protocol):
    """What shards are files of.

    Args:
        ending: of their names.
        library: what writes them, with its version: other versions may write other bytes.
        errors: what writing raises.
    """

    ending: str
    library: tuple[str, str]
    errors: tuple[type[Exception], ...]

    def prepare(self, inputs: Inputs, work: Work) -> None:
        """Makes the columns ready, where there is anything to make, or refuses them."""
        return

    def open(self, path: Path) -> Any:
        """A file that takes rows of the result, and can be closed."""

    def write(self, file: Any, block: Block, piece: Piece) -> None:
        """Adds the rows of a block to a file."""


class Parquet(Form):
    """Parquet, with all columns."""

    ending = ".parquet"

    def __init__(self) -> None:
        pa, self._parquet = pyarrow()
        self.library, self.errors = ("pyarrow", str(pa.__version__)), (OSError, pa.ArrowException)

    def prepare(self, inputs: Inputs, work: Work) -> None:
        # One for all shards, so that they have the same columns.
        self._schema = result_schema(inputs, work)

    def open(self, path: Path) -> Any:
        return self._parquet.ParquetWriter(path, self._schema, **writing(self._schema))

    def write(self, file: Any, block: Block, piece: Piece) -> None:
        rows = table(self._schema, block, piece)
        file.write_table(rows, row_group_size=rows.num_rows)  # a row group of their own


class Arrays(Form):
    """NumPy's arrays, of row numbers and vectors alone: two for each block, one after the other."""

    ending, library, errors = ".npy", ("numpy", np.__version__), (OSError,)

    def open(self, path: Path) -> Any:
        return path.open("wb")

    def write(self, file: Any, block: Block, piece: Piece) -> None:
        vectors = [np.asarray(each) for name, each in piece.columns.items() if name.startswith("vector")]
        np.save(file, block.take(piece.rows)[0])
        # (rows, width), or (rows, layers, width)
        np.save(file, vectors[0] if len(vectors) == 1 else np.stack(vectors, axis=1))


def read_arrays(path: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """The row numbers and the vectors of a shard, block by block."""
    with path.open("rb") as file:
        # Two arrays for each block, to the end of the file.
        while file.peek(1):
            yield np.load(file), np.load(file)


class Shard:
    """A shard that is being written, under another name until it is whole."""

    def __init__(self, unfinished: Path, place: Path, form: Form) -> None:
        self._unfinished, self._place, self._form = unfinished, place, form
        self._rows = self._vectors = 0
        self._rejected: list[dict[str, Any]] = []
        # Summed over the blocks, for the record.
        self._counts: Counter[str] = Counter()
        self._file: Any = None
        with self._writing():
            self._file = form.open(unfinished)

    def add(self, block: Block, piece: Piece | None) -> None:
        """Adds the rows of a block; one without texts has no piece."""
        if piece is not None and len(piece.rows):
            with self._writing():
                self._form.write(self._file, block, piece)
            self._vectors += len(piece.rows)
        if piece is not None:
            self._counts.update(piece.counts)
        self._rejected += block.without(piece.rejected if piece else {})
        self._rows += len(block.rows.numbers)

    def finish(self) -> dict[str, Any]:
        """Moves the file to its place; returns its record."""
        digest, size = hashlib.sha256(), 0
        with self._writing():
            self._file.close()
            self._file = None
            # Read once more: the hash is of what is on the disk.
            with self._unfinished.open("rb+") as file:
                while data := file.read(1 << 20):
                    digest.update(data)
                    size += len(data)
                # On disk before it gets its name.
                os.fsync(file.fileno())
            self._unfinished.replace(self._place)
        return {
            "name": self._place.name,
            "rows": self._rows,
            "texts": self._rows - len(self._rejected),
            "vectors": self._vectors,
            "rejected": self._rejected,
            "counts": {**self._counts, "missing": len(self._rejected) - self._counts["infinite"]},
            "bytes": size,
            "sha256": digest.hexdigest(),
        }

    def abandon(self) -> None:
        """Drops what was written."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):  # the disk may be full; the file goes in any case
                file.close()
        self._unfinished.unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except self._form.errors as error:
            # The file goes, the error stays.
            self.abandon()
            code = getattr(error, "errno", None)
            reason = os.strerror(code) if code else str(error)
            raise OutputError(f"{str(self._place)!r} cannot be written ({reason}).") from error


def _leaf(field: Any) -> list[tuple[str, Any]]:
    """Parquet's names for the values of a column, with their types; nothing nested deeper than a list."""
    pa, _ = pyarrow()
    name, type = field.name, field.type
    # Vectors and lists: their numbers are what is compressed.
    if pa.types.is_fixed_size_list(type) or pa.types.is_list(type) or pa.types.is_large_list(type):
        name, type = f"{name}.list.element", type.value_type
    return [] if pa.types.is_nested(type) else [(name, type)]


def _is_float(type: Any) -> bool:
    pa, _ = pyarrow()
    return bool(pa.types.is_floating(type))
