"""Plain arguments, checked: numbers, names and functions. Each error names the argument."""

import math
import operator
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches

from regard.core.errors import InputError


def whole(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Check a whole number and its range, ends included; numpy's integers pass, a bool does not."""
    try:
        # operator.index lets numpy's integers pass; a bool is an integer to it, and never meant as one.
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    fits = number is not None and least <= number and (most is None or number <= most)
    if number is None or not fits or isinstance(value, bool):
        wanted = f"at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} must be a whole number, {wanted}; got {value!r}.")
    return number


def number(name: str, value: object) -> float:
    """Check a finite number; whole and numpy's numbers pass, a bool does not."""
    found = math.nan
    if not isinstance(value, bool | str | bytes):
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):  # the last by a tensor of several
            found = float(value)  # type: ignore[arg-type]
    if not math.isfinite(found):
        raise InputError(f"{name} must be a finite number; got {value!r}.")
    return found


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """Check one of several names; a near one is offered.

    >>> one_of("kind", "cros", ("self", "cross"))
    Traceback (most recent call last):
    regard.core.errors.InputError: kind must be one of self, cross; got 'cros'. Did you mean 'cross'?
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    near = get_close_matches(str(value).lower(), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{name} must be one of {', '.join(names)}; got {value!r}.{hint}")


def check_function(name: str, value: object, what: str, *, optional: bool = False) -> None:
    """Check that a value can be called; `what` describes the function in the message."""
    if not callable(value) and not (optional and value is None):
        raise InputError(f"{name} must be a function, {what}; got {type(value).__name__}.")
