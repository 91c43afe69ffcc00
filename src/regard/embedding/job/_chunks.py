"""What sources hold, as chunks: texts that can be embedded, and the columns that are carried along."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.data import (
    ROWS,
    JsonSource,
    ParquetSource,
    Record,
    Source,
    TextSource,
    column_values,
    is_text,
    is_words,
)
from regard.embedding.job._columns import Carried, Columns, infer
from regard.embedding.job._rows import Chunk
from regard.embedding.job._texts import joined


def fields(source: Source, columns: Columns) -> list[Carried]:
    """The columns that are carried along, with their types.

    Raises:
        InputError: the source lacks a column, or one is of a type that cannot be used.
    """
    name = source.opened.name
    if isinstance(source, TextSource) and (named := columns.carried or columns.text):
        raise InputError(
            f"{name} is plain text, which has no columns, and so no {named[0]!r}; a row of it is known by "
            "its number."
        )
    source.check(columns.texts, "Name one of them with --text-column.")
    if columns.id is not None:
        source.check((columns.id,), "Name one of them with --id-column.")
    source.check(columns.keep, "Name one of them with --keep.")
    if isinstance(source, ParquetSource):
        return _parquet_fields(source, columns)
    if isinstance(source, JsonSource):
        return [infer(name, source.values(name)) for name in columns.carried]
    return [Carried(name, pyarrow()[0].string()) for name in columns.carried]


def _parquet_fields(source: ParquetSource, columns: Columns) -> list[Carried]:
    pa, _ = pyarrow()
    for name in columns.texts:
        type = source.type(name)
        if not (is_text(type) or is_words(type) or pa.types.is_null(type)):
            raise InputError(
                f"{source.opened.name}: column {name!r} must hold text, or lists of words; it holds {type}."
            )
    if columns.id is not None:
        type = source.type(columns.id)
        if not (is_text(type) or pa.types.is_integer(type)):
            raise InputError(
                f"{source.opened.name}: column {columns.id!r} must hold whole numbers or text to be the id; "
                f"it holds {type}."
            )
    return [Carried(name, source.type(name)) for name in columns.carried]


def chunks(source: Source, columns: Columns, fields: list[Carried]) -> Iterator[Chunk]:
    """All rows of a source. Row n counts from 0, whatever line it begins in.

    Raises:
        InputError: it cannot be read on.
    """
    if isinstance(source, ParquetSource):
        yield from _arrow_chunks(source, columns)
    else:
        records = source.records(columns.texts, columns.carried)
        yield from _gathered(source, columns, fields, records)


def _gathered(
    source: Source, columns: Columns, fields: list[Carried], records: Iterator[Record]
) -> Iterator[Chunk]:
    first, split = 0, len(columns.texts)
    no_id, told = (None, "null or missing") if isinstance(source, JsonSource) else ("", "empty")
    while batch := list(islice(records, ROWS)):
        texts: list[str | None] = []
        reasons: dict[int, str] = {}
        kept: list[list[object]] = [[] for _ in fields]
        for place, (found, broken, _) in enumerate(batch):
            values = found[split:]
            text, reason = joined(found[:split])
            reason = broken or reason
            if reason is None and columns.id is not None and values[0] == no_id:
                reason = f"the id is {told} (column {columns.id!r})"
            problems = [field.problem(value) for field, value in zip(fields, values, strict=True)]
            reason = reason or next(filter(None, problems), None)
            if reason is not None:
                reasons[place] = reason
            texts.append(text if reason is None else None)
            # Of a bad row only the id is used, where it is a good one.
            for column, value, bad in zip(kept, values, problems, strict=True):
                column.append(None if bad else value)
        yield Chunk(
            name=source.opened.label,
            first=first,
            texts=texts,
            reasons=reasons,
            columns=[field.arrow(column) for field, column in zip(fields, kept, strict=True)],
        )
        first += len(batch)


def _arrow_chunks(source: ParquetSource, columns: Columns) -> Iterator[Chunk]:
    """The columns that are carried along stay Arrow's: no value of them is converted."""
    first = 0
    for batch in source.batches((*columns.texts, *columns.carried)):
        parts = [column_values(batch[name]) for name in columns.texts]
        carried = [_sound(batch[name]) for name in columns.carried]
        texts: list[str | None] = []
        reasons: dict[int, str] = {}
        for place, row in enumerate(zip(*parts, strict=True)):
            text, reason = joined(row)
            if any(isinstance(each, bytes) for each in row):
                reason = "the text is not UTF-8"
            bad = next((n for n, (_, broken) in enumerate(carried) if place in broken), None)
            if bad is not None:
                reason = reason or f"column {columns.carried[bad]!r} is not UTF-8"
            if reason is None and columns.id is not None and not carried[0][0][place].is_valid:
                reason = f"the id is null (column {columns.id!r})"
            texts.append(text if reason is None else None)
            if reason is not None:
                reasons[place] = reason
        yield Chunk(
            name=source.opened.label,
            first=first,
            texts=texts,
            reasons=reasons,
            columns=[array for array, _ in carried],
        )
        first += len(texts)


def _sound(array: Any) -> tuple[Any, set[int]]:
    """A column with null for what is not UTF-8, which nobody could read, and the rows where that is."""
    if not (is_text(array.type) or is_words(array.type)):
        return array, set()
    values = column_values(array)
    broken = {place for place, each in enumerate(values) if isinstance(each, bytes)}
    if broken:
        array = pyarrow()[0].array(
            [None if n in broken else each for n, each in enumerate(values)], array.type
        )
    return array, broken
