"""How messages list things, quote other people's errors and show text from outside: safely, on one line."""

from collections.abc import Iterable
from unicodedata import category

# About as many names as a message can hold and still be read.
_LISTED_AT_MOST = 20

DOWNLOAD_AGAIN = "download it again"
"""The way out of a damaged file."""


def joined(items: Iterable[str], most: int = _LISTED_AT_MOST) -> str:
    """The items in one line, shortened after twenty or another number.

    >>> joined(["a", "b"])
    'a, b'
    >>> joined(str(number) for number in range(22))
    '0, 1, ..., 19 and 2 more'
    """
    listed = list(items)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


def reason(error: BaseException) -> str:
    """What an error says, on one line; its type where it says nothing. Callers name the file themselves.

    >>> reason(ValueError("first\\n  second"))
    'first second'
    >>> reason(FileNotFoundError(2, "No such file or directory", "/x"))
    'No such file or directory'
    >>> reason(TimeoutError())
    'TimeoutError'
    """
    # An OSError's own text names the file, and so does the caller.
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


# Unicode's pictures stand for controls below a blank, escapes for those above and for those of direction.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡", 0x0A: "↵", 0x09: "⇥"}
_C1 = {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
# The controls of bidirectional text, which can make a line read as another, and the two other line ends.
_UNSEEN = {
    code: f"\\u{code:04x}"
    for code in (0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_SIGNS = _PICTURES | _C1 | _UNSEEN


def printable(text: str) -> str:
    """The text in one line, with a visible sign for every character that a terminal would obey."""
    return text.translate(_SIGNS)


BLANK = "␣"
"""The sign of a blank at an end; `printable` has those of a line's end, "↵", and of a tab, "⇥"."""


def visible(text: str) -> str:
    r"""A token in one line, with a sign for what nobody would see, as views/static/base/dom.js writes it.

    >>> visible(" a bank"), visible("\n\t"), visible("\u200b")
    ('␣a bank', '↵⇥', 'U+200B')
    """
    # Only blanks at the ends are unseen; those within stand between letters.
    after = text.lstrip(" ")
    inner = after.rstrip(" ")
    blanks = BLANK * (len(text) - len(after)), BLANK * (len(after) - len(inner))
    signed = inner.translate(_PICTURES).join(blanks)
    # Nothing but controls, marks and separators: the code points, since no sign would be seen.
    if all(category(each)[0] in "CMZ" for each in signed):
        return " ".join(f"U+{ord(each):04X}" for each in signed) or "(empty)"
    return printable(signed)


def excerpt(text: str, cells: int) -> str:
    """The text as it can be printed, cut to so many columns of a terminal; an ellipsis shows the cut."""
    # Columns and not letters: Chinese takes two each.
    from rich.cells import cell_len, set_cell_size

    text = printable(text)
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"
