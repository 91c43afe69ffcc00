"""Parquet, batch by batch."""

from collections.abc import Iterator
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.embedding.job._columns import Carried, Columns
from regard.embedding.job._lines import ROWS
from regard.embedding.job._opening import Opened
from regard.embedding.job._rows import Chunk
from regard.embedding.job._texts import joined


class ParquetSource:
    """A Parquet file.

    Args:
        opened: the input.
        columns: which columns are used.
    """

    def __init__(self, opened: Opened, columns: Columns) -> None:
        self.opened = opened
        self._columns = columns
        with _file(opened) as file:
            schema = file.schema_arrow
            self.rows = int(file.metadata.num_rows)
        columns.check(schema.names, opened.name)
        pa, _ = pyarrow()
        for name in columns.texts:
            type = _plain(schema.field(name).type)
            if not (_is_text(type) or pa.types.is_null(type)):
                raise InputError(
                    f"{opened.name}: column {name!r} must hold text to be embedded; it holds {type}."
                )
        self.fields = [Carried(name, _plain(schema.field(name).type)) for name in columns.carried]
        if columns.id is not None:
            type = self.fields[0].type
            if not (_is_text(type) or pa.types.is_integer(type)):
                raise InputError(
                    f"{opened.name}: column {columns.id!r} must hold whole numbers or text to be the id; it "
                    f"holds {type}."
                )

    def chunks(self, fields: list[Carried]) -> Iterator[Chunk]:
        """As of a `LineSource`."""
        pa, _ = pyarrow()
        wanted = list(dict.fromkeys((*self._columns.texts, *self._columns.carried)))
        first = 0
        try:
            with _file(self.opened) as file:
                for batch in file.iter_batches(batch_size=ROWS, columns=wanted):
                    yield self._chunk(batch, first)
                    first += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.opened.name} is damaged ({_line(error)}).") from error

    def _chunk(self, batch: Any, first: int) -> Chunk:
        columns = {name: _decoded(batch.column(name)) for name in batch.schema.names}
        parts = [_texts(columns[name]) for name in self._columns.texts]
        carried = [_sound(columns[name]) for name in self._columns.carried]
        texts: list[str | None] = []
        reasons: dict[int, str] = {}
        for place, row in enumerate(zip(*parts, strict=True)):
            text, reason = joined(row)
            if any(isinstance(each, bytes) for each in row):
                reason = "the text is not UTF-8"
            bad = next((n for n, (_, broken) in enumerate(carried) if place in broken), None)
            if bad is not None:
                reason = reason or f"column {self._columns.carried[bad]!r} is not UTF-8"
            if reason is None and self._columns.id is not None and not carried[0][0][place].is_valid:
                reason = f"the id is null (column {self._columns.id!r})"
            texts.append(text if reason is None else None)
            if reason is not None:
                reasons[place] = reason
        return Chunk(
            name=self.opened.label,
            first=first,
            texts=texts,
            reasons=reasons,
            columns=[array for array, _ in carried],
        )


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


def _is_text(type: Any) -> bool:
    pa, _ = pyarrow()
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def _decoded(array: Any) -> Any:
    pa, _ = pyarrow()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _texts(array: Any) -> list[object]:
    """The texts of a column; one that is not UTF-8 comes as its bytes."""
    pa, _ = pyarrow()
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        return [_text(each) for each in array.cast(pa.large_binary()).to_pylist()]


def _text(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _sound(array: Any) -> tuple[Any, set[int]]:
    """A column with null for what is not UTF-8, which nobody could read, and the rows where that is."""
    if not _is_text(array.type):
        return array, set()
    values = _texts(array)
    broken = {place for place, each in enumerate(values) if isinstance(each, bytes)}
    if broken:
        array = pyarrow()[0].array(
            [None if n in broken else each for n, each in enumerate(values)], array.type
        )
    return array, broken
