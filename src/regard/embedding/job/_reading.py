"""What sources hold, as batches of rows: texts to embed, and the columns that are carried along."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.data import (
    LONGEST,
    ROWS,
    JsonSource,
    ParquetSource,
    Source,
    TextSource,
    column_values,
    is_text,
    is_words,
    no_text,
)
from regard.text import Words


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of the input that are used.

    Args:
        text: what is embedded; of several columns, their texts joined by line ends. None is the column
            "text", and the lines of plain text.
        id: what a row is known by; None for its number alone.
        keep: columns that are carried along.
    """

    text: tuple[str, ...] | None = None
    id: str | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # An empty tuple names nothing; None is the default.
        if self.text == ():
            raise InputError("--text-column must name a column.")
        if len(set(self.keep)) < len(self.keep):
            raise InputError(f"--keep must name each column once; got {', '.join(self.keep)}.")

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of text, by name."""
        return self.text or ("text",)

    @property
    def carried(self) -> tuple[str, ...]:
        """The id, where there is one, and the columns that are kept."""
        return self.keep if self.id is None else (self.id, *self.keep)


@dataclass(frozen=True)
class Carried:
    """A column that is carried along, with its Arrow type; `as_json` where values of any type stand in it."""

    name: str
    type: Any
    as_json: bool = False

    @property
    def stated(self) -> str:
        """Its type, as the manifest states it."""
        return "json" if self.as_json else str(self.type)

    def problem(self, value: object) -> str | None:
        """Why a value of a JSON line cannot stand in the column; None where it can."""
        if isinstance(value, str):
            problem = no_text(f"column {self.name!r}", value)
            if problem is not None:
                return problem
        if value is None or self.as_json or _fits(value, self.type):
            return None
        return f"column {self.name!r} holds {_short(value)}, not {self.stated} as in the first rows"

    def arrow(self, values: Sequence[object]) -> Any:
        """Values that have no problem, as an Arrow array."""
        pa, _ = pyarrow()
        if self.as_json:
            values = [None if each is None else _as_json(each) for each in values]
        return pa.array(values, self.type)


def infer(name: str, values: Iterable[object]) -> Carried:
    """The type of a column of JSON lines, from its values in the first rows.

    Whole numbers, numbers, true and false, and text have a type of their own; anything else, and a mixture,
    is written as JSON.
    """
    pa, _ = pyarrow()
    there = [value for value in values if value is not None]
    # From the narrowest type to the widest that all values fit.
    for type in (pa.bool_(), pa.int64(), pa.float64(), pa.string()):
        if there and all(_fits(value, type) for value in there):
            return Carried(name, type)
    return Carried(name, pa.string(), as_json=True)


def _fits(value: object, type: Any) -> bool:
    pa, _ = pyarrow()
    # A bool is an int to Python, and fits no other type.
    if type == pa.bool_() or isinstance(value, bool):
        return type == pa.bool_() and isinstance(value, bool)
    if type == pa.int64():
        return isinstance(value, int) and -(2**63) <= value < 2**63
    if type == pa.float64():
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT)
    return type == pa.string() and isinstance(value, str)


# Up to here a double holds every whole number.
_EXACT = 2**53


def _as_json(value: object) -> str:
    # ASCII: half of a surrogate pair, deep inside, stays an escape.
    return json.dumps(value, ensure_ascii=True)


def _short(value: object) -> str:
    shown = _as_json(value)
    return shown if len(shown) <= 40 else shown[:39] + "…"


class Batch(NamedTuple):
    """Rows of the inputs, in order, column by column: as they are read, embedded, and written.

    Args:
        numbers: of each row, through all sources, from 0.
        origins: of each row, its id, the name of its source, and the number in it, from 1.
        texts: one a row; None where the row is rejected.
        reasons: why it is rejected; None where it is not.
        carried: an Arrow array for each column that is carried along, the id first where there is one.
    """

    numbers: Sequence[int]
    origins: Sequence[tuple[object, str, int]]
    texts: Sequence[str | None]
    reasons: Sequence[str | None]
    carried: Sequence[Any]

    def take(self, places: Sequence[int]) -> "Batch":
        """The rows at some places."""
        lists = ([each[place] for place in places] for each in self[:4])
        # Arrow takes many rows in one call: row by row that would be slow.
        return Batch._make([*lists, [each.take(np.array(places, np.int64)) for each in self.carried]])

    @classmethod
    def joined(cls, parts: Sequence["Batch"]) -> "Batch":
        """The rows of several, one after the other."""
        lists = (list(chain(*same)) for same in zip(*(each[:4] for each in parts), strict=True))
        carried = zip(*(each.carried for each in parts), strict=True)
        return cls._make([*lists, [pyarrow()[0].concat_arrays(same) for same in carried]])


def fields(source: Source, columns: Columns) -> list[Carried]:
    """The columns that are carried along, with their types; a source without one is refused."""
    name = source.opened.name
    if isinstance(source, TextSource) and (named := columns.carried or columns.text):
        raise InputError(
            f"{name} is plain text, which has no columns, and so no {named[0]!r}; a row of it is known by "
            "its number."
        )
    # Each error names the option that would mend it.
    source.check(columns.texts, "Name one of them with --text-column.")
    if columns.id is not None:
        source.check((columns.id,), "Name one of them with --id-column.")
    source.check(columns.keep, "Name one of them with --keep.")
    # Parquet has types; JSON lines show them; all else is text.
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


def read(sources: Iterable[Source], columns: Columns, fields: list[Carried]) -> Iterator[Batch]:
    """All rows of all sources. Row n counts from 0, whatever line it begins in."""
    number = 0
    for source in sources:
        name, begin = source.opened.label, number
        # Four things for each batch: texts, and what is wrong with rows.
        for rows, broken, unfit, carried in _read(source, columns, fields):
            pairs = [_joined(values) for values in rows]
            # The first fault counts: unreadable, then the text, then the other columns.
            reasons = [broken.get(n) or reason or unfit.get(n) for n, (_, reason) in enumerate(pairs)]
            texts = [None if reason else text for (text, _), reason in zip(pairs, reasons, strict=True)]
            numbers = range(number, number + len(rows))
            ids = [None] * len(rows) if columns.id is None else carried[0].to_pylist()
            origins = [(id, name, n - begin + 1) for id, n in zip(ids, numbers, strict=True)]
            yield Batch(numbers, origins, texts, reasons, carried)
            number += len(rows)


_Rows = Iterator[tuple[list[Sequence[object]], dict[int, str], dict[int, str], list[Any]]]
"""Rows: the values of their text columns, why some are broken, why others are unfit, other columns."""


def _read(source: Source, columns: Columns, fields: list[Carried]) -> _Rows:
    """From lines: the values of columns that are carried along become Arrow's."""
    if isinstance(source, ParquetSource):
        yield from _arrow(source, columns)
        return
    records, split = source.records(columns.texts, columns.carried), len(columns.texts)
    # What stands for no id differs by format.
    no_id, in_words = (None, "null or missing") if isinstance(source, JsonSource) else ("", "empty")
    while batch := list(islice(records, ROWS)):
        unfit: dict[int, str] = {}
        if columns.id is not None:
            without = (n for n, record in enumerate(batch) if record.values[split] == no_id)
            unfit = dict.fromkeys(without, f"the id is {in_words} (column {columns.id!r})")
        arrays = []
        for at, field in enumerate(fields, split):
            values = [record.values[at] for record in batch]
            bad = {n: why for n, value in enumerate(values) if (why := field.problem(value))}
            # A bad row keeps only its id, where that is a good one.
            arrays.append(field.arrow([None if n in bad else value for n, value in enumerate(values)]))
            unfit = bad | unfit
        broken = {n: record.reason for n, record in enumerate(batch) if record.reason is not None}
        yield [record.values[:split] for record in batch], broken, unfit, arrays


def _arrow(source: ParquetSource, columns: Columns) -> _Rows:
    """From Parquet: columns that are carried along stay Arrow's, and no value is converted."""
    for batch in source.batches((*columns.texts, *columns.carried)):
        # Only the texts become Python's.
        parts = [column_values(batch[name]) for name in columns.texts]
        broken = dict.fromkeys((n for part in parts for n in _bytes_in(part)), "the text is not UTF-8")
        unfit: dict[int, str] = {}
        arrays = []
        for name in columns.carried:
            array, bad = _sound(batch[name])
            arrays.append(array)
            unfit = dict.fromkeys(bad, f"column {name!r} is not UTF-8") | unfit
        if columns.id is not None and arrays[0].null_count:
            without = (n for n, is_there in enumerate(arrays[0].is_valid().to_pylist()) if not is_there)
            unfit = dict.fromkeys(without, f"the id is null (column {columns.id!r})") | unfit
        yield list(zip(*parts, strict=True)), broken, unfit, arrays


def _sound(array: Any) -> tuple[Any, list[int]]:
    """A column with null in place of texts that are not UTF-8, and the rows of these."""
    if not (is_text(array.type) or is_words(array.type)):
        return array, []
    # Converted only to find what cannot be decoded.
    values = column_values(array)
    broken = _bytes_in(values)
    if broken:
        values = [None if isinstance(each, bytes) else each for each in values]
        array = pyarrow()[0].array(values, array.type)
    return array, broken


def _bytes_in(values: list[object]) -> list[int]:
    """Where a column of texts holds bytes, which are no text."""
    return [n for n, each in enumerate(values) if isinstance(each, bytes)]


def _problem(text: object) -> str | None:
    """Why a text cannot be embedded; None where it can."""
    reason = no_text("the text", text)
    if reason is not None or not isinstance(text, str):
        return reason
    if not text or text.isspace():
        return "the text is empty"
    return f"the text is longer than {LONGEST:,} characters" if len(text) > LONGEST else None


def _joined(parts: Sequence[object]) -> tuple[str | None, str | None]:
    """The text of a row, or why there is none; several columns are joined by line ends, nulls left out.

    A column alone may hold lists of words.
    """
    # One column may hold lists of words; several are texts.
    if len(parts) == 1:
        try:
            text = Words.if_listed(parts[0])
        except InputError as error:
            return None, str(error).rstrip(".")
        reason = "the text is empty" if text == [] else _problem(text)
        return (None, reason) if reason is not None else (text, None)
    # A null column is left out of the joined text.
    there = [part for part in parts if part is not None]
    odd = next((part for part in there if not isinstance(part, str)), None)
    reason = _problem(odd) if odd is not None else _problem("\n".join(map(str, there)) if there else None)
    return (None, reason) if reason is not None else ("\n".join(map(str, there)), None)
