"""What of a row can be embedded: a text that is there, is not blank, and is Unicode."""

from collections.abc import Sequence

from regard.core.errors import InputError
from regard.data import LONGEST, no_text
from regard.text import Words


def problem(text: object) -> str | None:
    """Why a text cannot be embedded; None where it can."""
    reason = no_text("the text", text)
    if reason is not None or not isinstance(text, str):
        return reason
    if not text or text.isspace():
        return "the text is empty"
    return f"the text is longer than {LONGEST:,} characters" if len(text) > LONGEST else None


def joined(parts: Sequence[object]) -> tuple[str | None, str | None]:
    """The text of a row, or why there is none; several columns are joined by line ends, nulls left out.

    A column alone may hold lists of words.
    """
    if len(parts) == 1:
        try:
            text = Words.of(parts[0])
        except InputError as error:
            return None, str(error).rstrip(".")
        reason = "the text is empty" if text == [] else problem(text)
        return (None, reason) if reason is not None else (text, None)
    there = [part for part in parts if part is not None]
    odd = next((part for part in there if not isinstance(part, str)), None)
    reason = problem(odd) if odd is not None else problem("\n".join(map(str, there)) if there else None)
    return (None, reason) if reason is not None else ("\n".join(map(str, there)), None)
