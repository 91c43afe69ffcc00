"""Which columns an input has."""

from collections.abc import Sequence

from regard.core.errors import InputError

TEXT = "text"
"""What the column of texts is called where nobody says, and the one of plain text."""

_LISTED = 30


def check_columns(name: str, there: Sequence[str], wanted: Sequence[str], hint: str) -> None:
    """Refuse an input that lacks a column, or has it twice.

    Raises:
        InputError: with the columns that are there, and the hint.
    """
    for each in wanted:
        if each not in there:
            listed = ", ".join(map(repr, there[:_LISTED])) + (", ..." if len(there) > _LISTED else "")
            raise InputError(f"{name} has no column {each!r}; it has {listed or 'none'}. {hint}".rstrip())
        if there.count(each) > 1:
            raise InputError(f"{name} has several columns {each!r}; give them names of their own.")
