"""Parquet, batch by batch."""

from collections.abc import Iterator, Sequence
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.data._opening import Opened
from regard.data._records import Record, check_columns, leaves, names_in, path_to

ROWS = 1024
"""Rows of a batch."""


class ParquetSource:
    """A Parquet file.

    Args:
        opened: the input.
    """

    unit = "row"

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        with _file(opened) as file:
            self._schema = file.schema_arrow
            # Columns within columns, for dotted names.
            self._tree = {field.name: _tree(field.type) for field in self._schema}
            self.rows = int(file.metadata.num_rows)

    def check(self, names: Sequence[str], hint: str = "") -> None:
        """Refuse columns that the file does not have.

        Raises:
            InputError: it has no such column.
        """
        # Only in the message: what could have been meant.
        inner = [name for name in dict.fromkeys(names_in(self._tree)) if name not in self._tree]
        check_columns(self.opened.name, [*self._schema.names, *inner], names, hint)

    def type(self, name: str) -> Any:
        """The Arrow type of a column; of a dictionary, of its values."""
        return _plain(_inner(self._schema.empty_table(), self._path(name)).type)

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """All rows: for each column an Arrow array of some of them.

        Raises:
            InputError: the file is damaged.
        """
        pa, _ = pyarrow()
        paths = {name: self._path(name) for name in names}
        try:
            with _file(self.opened) as file:
                # Columns that are not asked for are not read.
                for batch in file.iter_batches(batch_size=ROWS, columns=list(paths)):
                    yield {name: _decoded(_inner(batch, path)) for name, path in paths.items()}
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.opened.name} is damaged ({_line(error)}).") from error

    def _path(self, name: str) -> tuple[str, ...]:
        path = path_to(name, self._tree)
        assert path is not None, "checked"
        return path

    def records(
        self, names: Sequence[str], also: Sequence[str] = (), *, rest: bool = False
    ) -> Iterator[Record]:
        """All rows."""
        first, asked = 1, len(names) + len(also)
        others = [name for name, _ in leaves(self._tree, (*names, *also))] if rest else []
        wanted = (*names, *also, *others)
        for batch in self.batches(wanted):
            columns = [column_values(batch[name]) for name in wanted]
            for line, row in enumerate(zip(*columns, strict=True), first):
                # Bytes in a column of texts: not UTF-8.
                bad = [place for place, value in enumerate(row) if _broken(value, batch[wanted[place]])]
                values = [None if place in bad else value for place, value in enumerate(row)]
                bad = [place for place in bad if place < asked]
                reason = f"column {wanted[bad[0]]!r} is not UTF-8" if bad else None
                yield Record(values[:asked], reason, line, dict(zip(others, values[asked:], strict=True)))
            first += len(columns[0])


def _tree(type: Any) -> dict[str, Any] | None:
    """The fields within a struct, by name; None of another type."""
    return {each.name: _tree(each.type) for each in type} if pyarrow()[0].types.is_struct(type) else None


def _inner(batch: Any, path: Sequence[str]) -> Any:
    from pyarrow.compute import struct_field  # type: ignore[import-untyped, unused-ignore]

    return struct_field(batch.column(path[0]), list(path[1:])) if path[1:] else batch.column(path[0])


def _broken(value: object, array: Any) -> bool:
    return isinstance(value, bytes) and (is_text(array.type) or is_words(array.type))


def _file(opened: Opened) -> Any:
    pa, parquet = pyarrow()
    try:
        return parquet.ParquetFile(
            opened.copy or opened.path,
            # Read as it is needed, and not a whole row group ahead: memory stays the same for any row group.
            buffer_size=1 << 20,
            pre_buffer=False,
            page_checksum_verification=True,
        )
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{opened.name} is damaged, or not a Parquet file ({_line(error)}).") from error


def _line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _plain(type: Any) -> Any:
    pa, _ = pyarrow()
    return type.value_type if pa.types.is_dictionary(type) else type


def is_text(type: Any) -> bool:
    """Whether an Arrow type is one of texts."""
    pa, _ = pyarrow()
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def is_words(type: Any) -> bool:
    """Whether an Arrow type is one of lists of texts."""
    pa, _ = pyarrow()
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_list(type) for is_list in lists) and is_text(_plain(type.value_type))


def _decoded(array: Any) -> Any:
    pa, _ = pyarrow()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def column_values(array: Any) -> list[object]:
    """The values of an Arrow column; bytes where one holds a text that is not UTF-8."""
    try:
        # All at once; one by one only where one cannot be decoded.
        return list(array.to_pylist())
    except UnicodeDecodeError:
        return [_value(each) for each in array]


def _value(scalar: Any) -> object:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return b""
