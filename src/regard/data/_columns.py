"""Which columns an input has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.core.errors import InputError

TEXT = "text"
"""What the column of texts is called where nobody says, and the one of plain text."""

_LISTED = 30


def path_to(name: str, record: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The keys that lead to a column: its name, or where no column has it, the parts of a dotted path."""
    if name in record:
        return (name,)
    for end in (place for place in range(len(name) - 1, 0, -1) if name[place] == "."):
        inner = record.get(name[:end])
        if isinstance(inner, Mapping) and (rest := path_to(name[end + 1 :], inner)):
            return (name[:end], *rest)
    return None


def value_at(name: str, record: Mapping[str, Any]) -> Any:
    """The value of a column in a row; None where it has none."""
    value: Any = record if (path := path_to(name, record)) else None
    for key in path or ():
        value = value[key]
    return value


def names_in(record: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The columns of a row, and those inside of them by their paths."""
    for name, value in record.items():
        yield above + name
        if isinstance(value, Mapping):
            yield from names_in(value, f"{above}{name}.")


def check_columns(name: str, there: Sequence[str], wanted: Sequence[str], hint: str) -> None:
    """Refuse an input that lacks a column, or has it twice; the error lists the columns that are there."""
    for each in wanted:
        if each not in there:
            listed = ", ".join(map(repr, there[:_LISTED])) + (", ..." if len(there) > _LISTED else "")
            raise InputError(f"{name} has no column {each!r}; it has {listed or 'none'}. {hint}".rstrip())
        if there.count(each) > 1:
            raise InputError(f"{name} has several columns {each!r}; give them names of their own.")
