"""How error messages list things and quote other people's errors: always on one line."""

from collections.abc import Iterable

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
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
