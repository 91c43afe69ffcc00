"""What of a row can be embedded: a text that is there, is not blank, and is Unicode."""

from collections.abc import Sequence

LONGEST = 4_000_000
"""Bytes of a line, and characters of a CSV field: no model takes as much, and a file without line ends would
fill the memory."""


def problem(text: object) -> str | None:
    """Why a text cannot be embedded; None where it can."""
    if text is None:
        return "the text is null"
    if not isinstance(text, str):
        return f"the text is {_a(text)}, not a string"
    if not text or text.isspace():
        return "the text is empty"
    if len(text) > LONGEST:
        return f"the text is longer than {LONGEST:,} characters"
    return not_unicode("the text", text)


def not_unicode(what: str, text: str) -> str | None:
    """Where a string holds half of a surrogate pair, which UTF-8 has no form for; None where it does not."""
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"{what} holds half of a surrogate pair at character {error.start}"
    return None


def joined(parts: Sequence[object]) -> tuple[str | None, str | None]:
    """The text of a row, or why there is none; several columns are joined by line ends, nulls left out."""
    if len(parts) == 1:
        reason = problem(parts[0])
        return (None, reason) if reason is not None else (str(parts[0]), None)
    there = [part for part in parts if part is not None]
    odd = next((part for part in there if not isinstance(part, str)), None)
    reason = problem(odd) if odd is not None else problem("\n".join(map(str, there)) if there else None)
    return (None, reason) if reason is not None else ("\n".join(map(str, there)), None)


def _a(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list"}
    return names.get(type(value), f"of type {type(value).__name__}")
