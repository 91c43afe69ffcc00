"""Which columns of the input are used, and of which type those are that are carried along."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.data import no_text


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
            found = no_text(f"column {self.name!r}", value)
            if found is not None:
                return found
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
    for type in (pa.bool_(), pa.int64(), pa.float64(), pa.string()):
        if there and all(_fits(value, type) for value in there):
            return Carried(name, type)
    return Carried(name, pa.string(), as_json=True)


def _fits(value: object, type: Any) -> bool:
    pa, _ = pyarrow()
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
