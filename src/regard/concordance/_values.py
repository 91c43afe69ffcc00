"""What is known of texts: dates in one form, and values that a condition fits."""

import json
import operator
import unicodedata
from datetime import date
from functools import lru_cache
from typing import Any, Final

import regex  # type: ignore[import-untyped, unused-ignore]

PATIENCE: Final = 1.0
"""Seconds in which a regular expression says whether it fits a text."""

SENTENCE_ENDS: Final = regex.compile(r"[.?!…][\"'”’»)\]]*\s|[。？！]")
"""Where a sentence ends, as far as marks say it."""

ORDERS: Final = {"dmy": "d/m/y", "mdy": "m/d/y"}
"""The orders of a date of three numbers whose year comes last."""

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME: Final = rf"(?P<name>(?i:{'|'.join(_MONTHS)}))[a-z]*\.?"
_FORMS: Final = (
    r"(?P<y>\d{3,4})",
    r"(?P<y>\d{4})([-/.])(?P<m>\d{1,2})(\2(?P<d>\d{1,2}))?([T ]\d\d:.*)?",
    r"(?P<y>\d{4})(?P<m>\d\d)(?P<d>\d\d)",
    rf"((?P<d>\d{{1,2}})(st|nd|rd|th|\.)? )?{_NAME},? (?P<y>\d{{4}})",
    rf"{_NAME} (?P<d>\d{{1,2}})(st|nd|rd|th)?,? (?P<y>\d{{4}})",
)
# Three numbers with the year last: only where the order is said.
_ORDERED: Final = {
    "dmy": r"(?P<d>\d{1,2})([-/.])(?P<m>\d{1,2})\2(?P<y>\d{4})",
    "mdy": r"(?P<m>\d{1,2})([-/.])(?P<d>\d{1,2})\2(?P<y>\d{4})",
}


def iso_date(text: str, order: str | None = None) -> str | None:
    """A date as 1999, 1999-12 or 1999-12-31; None of what has no form that is known.

    These are ISO's, with or without a time, 19991231, 1999/12/31, Dec 1999, 31 December 1999 and
    December 31, 1999; and, where `order` says which, 31/12/1999 ("dmy") or 12/31/1999 ("mdy").

    >>> [iso_date(each) for each in ("19991231", "Dec 1999", "850", "31/12/1999", "1999-13")]
    ['1999-12-31', '1999-12', '0850', None, None]
    >>> iso_date("31/12/1999", "dmy")
    '1999-12-31'
    """
    for form in (*_FORMS, *([_ORDERED[order]] if order else [])):
        if (match := regex.fullmatch(form, " ".join(text.split()))) is None:
            continue
        # The first form that fits and is a date.
        parts = match.groupdict()
        named = _MONTHS.index(parts["name"].lower()) + 1 if parts.get("name") else None
        year, month, day = int(parts["y"]), named or parts.get("m"), parts.get("d")
        try:
            # Raises for a 13th month or a 31st of February.
            date(year, int(month or 1), int(day or 1))
        except ValueError:
            continue
        # As exact as it was given: year, month or day.
        return "-".join([f"{year:04d}", *(f"{int(each):02d}" for each in (month, day) if each)])
    return None


# Not "nan", an empty cell to other tools, nor "1_000", a number to Python alone.
_NUMBER: Final = regex.compile(r"\s*[-+]?(?:(\d{1,999})|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


def number(value: Any) -> float | None:
    """A number that a value or its text is; None of another one."""
    match = _NUMBER.fullmatch(str(value))
    # Whole numbers exactly: an identifier may have more digits than a float.
    return None if match is None else (int if match[1] else float)(match[0])


_ORDERINGS: Final = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


@lru_cache(1 << 16)
def holds(value: Any, kind: str | None, sign: str, wanted: str) -> bool:
    """Whether a value fits: of a list one of its values, of a date its beginning, of a number the number.

    What has no value fits none but != and !~.
    """
    # What has no value fits a negation.
    if sign[0] == "!":
        return not holds(value, kind, "=" if sign == "!=" else "~", wanted)
    if value is None:
        return False
    # Lists of a corpus: one of the values is enough.
    if kind == "array":
        return any(
            holds(each, None, sign, wanted) for each in json.loads(value) if not isinstance(each, list | dict)
        )
    if sign == "~":
        return fits(wanted, value)
    compare, asked = _ORDERINGS[sign], number(wanted)
    if kind == "date":
        # By the beginning: all days of a month are within it, as all of a year are within the year.
        return bool(compare(value[: len(wanted)], wanted))
    # A text is compared as a text unless an order between numbers is asked.
    if isinstance(value, str) and (sign == "=" or asked is None):
        return bool(compare(value, wanted))
    own = number(value)
    return own is not None and asked is not None and bool(compare(own, asked))


def fits(pattern: str, value: object) -> bool:
    """Whether a regular expression fits somewhere; TimeoutError where that takes too long."""
    return value is not None and regex.search(pattern, str(value), timeout=PATIENCE) is not None


# Letters that NFKD does not take apart.
_PLAIN: Final = str.maketrans("łŁøØđĐħĦıŧŦ", "lLoOdDhHitT") | str.maketrans(
    {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE"}
)


def bare(text: str) -> str:
    """A text without diacritics, and in the usual width.

    >>> bare("café"), bare("Łukasz"), bare("ｗｉｄｔｈ")
    ('cafe', 'Lukasz', 'width')
    """
    apart = unicodedata.normalize("NFKD", text).translate(_PLAIN)
    # Mn: marks without a width of their own.
    return "".join(each for each in apart if unicodedata.category(each) != "Mn")
