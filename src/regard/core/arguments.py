"""Arguments and settings, checked: each error names what was given, "NAME must be ...; got ...".

Files hold tables of plain values, and so does what somebody types; the code has dataclasses. A value must be
of its field's type: a plain one, `X | None`, a `Literal`, a tuple, a table, or a dataclass, which is a table
again.
"""

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, partial
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from regard.core.errors import InputError


def whole(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Check a whole number and its range, ends included; numpy's integers pass, a bool does not."""
    try:
        # operator.index lets numpy's integers pass; a bool is an integer to it, and never meant as one.
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    # One message for a wrong type and for a wrong range: it says both.
    fits = number is not None and least <= number and (most is None or number <= most)
    if number is None or not fits or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, {_range(least, most)}; got {value!r}.")
    return number


def _range(least: int, most: int | None) -> str:
    return f"at least {least}" if most is None else f"from {least} to {most}"


def several(name: str, values: Any, what: str) -> list[Any]:
    """A list of several values; `what` names them in the message.

    >>> several("sort", "L1", "keys")
    Traceback (most recent call last):
    regard.core.errors.InputError: sort must be several keys, such as a list; got one: write ['L1'].
    """
    # A text would be read letter by letter.
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be several {what}, such as a list; got one: write [{shown(values)}].")
    return list(values)


def path_of(name: str, value: object) -> Path:
    """Where a file or a folder is.

    >>> path_of("folder", 3)
    Traceback (most recent call last):
    regard.core.errors.InputError: folder must be a string or a path; got int.
    """
    if not isinstance(value, str | PathLike):
        raise InputError(f"{name} must be a string or a path; got {type(value).__name__}.")
    return Path(value)


def number(name: str, value: object) -> float:
    """Check a finite number; whole and numpy's numbers pass, a bool does not."""
    # NaN until the conversion works: then one check covers all failures.
    converted = math.nan
    if not isinstance(value, bool | str | bytes):
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):  # the last by a tensor of several
            converted = float(value)  # type: ignore[arg-type]
    if not math.isfinite(converted):
        raise InputError(f"{name} must be a finite number; got {value!r}.")
    return converted


def counted(value: object, count: int) -> int | None:
    """The number from 0 to count - 1 that is meant, negative ones from the end, or None."""
    try:
        index = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    # A bool is an integer to Python, and never meant as a number here.
    return index % count if -count <= index < count and not isinstance(value, bool) else None


def index_of(name: str, value: object, count: int, *, what: str = "", also: str = "", hint: str = "") -> int:
    """The number from 0 to count - 1 that is meant; negative ones count from the end.

    `what` is counted, where the name does not tell; `also` is what else may be given.

    >>> index_of("layer", -1, 6)
    5
    >>> index_of("layer", 6, 6)
    Traceback (most recent call last):
    regard.core.errors.InputError: layer must be from 0 to 5, or negative to count from the end; got 6.
    """
    index = counted(value, count)
    if index is None:
        raise InputError(
            f"{name} must be {what}from 0 to {count - 1}, or negative to count from the end{also}; got "
            f"{value!r}.{hint}"
        )
    return index


def one_of(
    name: str,
    value: object,
    known: Iterable[str],
    *,
    hint: str = "",
    error: Callable[[str], Exception] = InputError,
) -> str:
    """Check one of several names; a near one is offered, then a hint that is given.

    >>> one_of("kind", "cros", ("self", "cross"))
    Traceback (most recent call last):
    regard.core.errors.InputError: kind must be one of self, cross; got 'cros'. Did you mean 'cross'?
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    # Names are mostly in lower case: "GELU" is near "gelu".
    near = get_close_matches(str(value).lower(), names, n=1)
    nearest = f" Did you mean {near[0]!r}?" if near else ""
    raise error(f"{name} must be one of {', '.join(names)}; got {value!r}.{nearest}{hint}")


def check_function(name: str, value: object, what: str, *, optional: bool = False) -> None:
    """Check that a value can be called; `what` describes the function in the message."""
    if not callable(value) and not (optional and value is None):
        raise InputError(f"{name} must be a function, {what}; got {type(value).__name__}.")


@dataclass(frozen=True, repr=False)
class Limit:
    """What a value must be beside its type, stated in the annotation: `width: Annotated[int, wholes(1)] = 8`.

    Attributes:
        words: the limit as --help prints it.
        check: raises InputError for a name and a value beyond the limit.
    """

    words: str
    check: Callable[[str, Any], object]

    def __repr__(self) -> str:  # a signature then reads Annotated[int, 'at least 1']
        return repr(self.words)


def wholes(least: int, most: int | None = None) -> Limit:
    """The limit of a whole number, ends included."""
    return Limit(_range(least, most), partial(whole, least=least, most=most))


def numbers(words: str, fits: Callable[[float], bool], hint: str = "") -> Limit:
    """The limit of a finite number: a condition in words, and as a test; the hint ends the error."""

    # The type first, then the condition.
    def check(name: str, value: object) -> None:
        if not fits(number(name, value)):
            raise InputError(f"{name} must be {words}; got {value!r}.{hint}")

    return Limit(words, check)


def names(known: Iterable[str]) -> Limit:
    """The limit of a text that is one of several names; a `Literal` states it too."""
    return Limit(f"one of {', '.join(known)}", partial(one_of, known=known))


Natural = Annotated[int, wholes(0)]
Count = Annotated[int, wholes(1)]
Finite = Annotated[float, Limit("a finite number", number)]
Positive = Annotated[float, numbers("above 0", lambda value: value > 0)]
NotNegative = Annotated[float, numbers("at least 0", lambda value: value >= 0)]
Share = Annotated[float, numbers("from 0 to 1", lambda value: 0 <= value <= 1)]
BelowOne = Annotated[float, numbers("from 0 to below 1", lambda value: 0 <= value < 1)]


class Limited:
    """A dataclass that holds its fields to their limits, and to their `Literal`s, when it is made.

    >>> @dataclass(frozen=True)
    ... class Beam(Limited):
    ...     width: Count = 4
    >>> Beam(width=0)
    Traceback (most recent call last):
    regard.core.errors.InputError: width must be a whole number, at least 1; got 0.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)


def check_fields(values: object, section: str = "") -> None:
    """Hold the fields of a dataclass, and of those in it, to their limits; errors name the section too."""
    # Cached by class: a settings object is made often, its annotations stay.
    for name, limit in _limits(type(values)):  # type: ignore[arg-type]  # classes can be hashed
        limit.check(_within(section, name), getattr(values, name))


@cache
def _limits(kind: type) -> list[tuple[str, Limit]]:
    kinds = get_type_hints(kind, include_extras=True)
    # Fields without a limit in their annotation are not checked here.
    stated = [(each.name, limit_of(kinds[each.name])) for each in fields(kind)]
    return [(name, limit) for name, limit in stated if limit is not None]


def limit_of(kind: Any) -> Limit | None:
    """The limit that an annotation states, of a value that is not None; in a tuple that of each.

    >>> limit_of(Count | None)
    'at least 1'
    """
    origin, inner = get_origin(kind), get_args(kind)
    # A section within a section: errors then name both.
    if is_dataclass(kind):
        return Limit("", lambda name, value: check_fields(value, name))
    if origin is Literal:
        return names(inner)
    if origin is Annotated:
        # Annotated holds the type and, beside other notes, the limit.
        return next((each for each in inner if isinstance(each, Limit)), None)
    # tuple[X, ...] and X | None have the limit of X.
    limit = limit_of(inner[0]) if origin is tuple or inner[1:] == (NoneType,) else None
    if limit is None:
        return None
    # Each value of a tuple by itself.
    if origin is tuple:
        return Limit(limit.words, lambda name, value: [limit.check(name, each) for each in value])
    return Limit(limit.words, lambda name, value: value is None or limit.check(name, value))


_T = TypeVar("_T")

KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    list: "a list",
    dict: "a table",
}
"""The plain types, as errors call them."""


def check_names(given: Iterable[str], known: Collection[str], section: str = "") -> None:
    """Raise InputError for a key that is not known, with the near ones.

    >>> check_names({"d_mode": 8}, {"d_model"}, "model")
    Traceback (most recent call last):
    regard.core.errors.InputError: model.d_mode is not a setting; did you mean model.d_model?
    """
    for name in given:
        if name not in known:
            # Near names if there are any, else all: a typing error, or a guess.
            near = [_within(section, each) for each in get_close_matches(name, known, n=3, cutoff=0.5)]
            listed = near or [_within(section, each) for each in sorted(known)] or ["none"]
            words = f"did you mean {' or '.join(listed)}?" if near else f"there are {', '.join(listed)}."
            raise InputError(f"{_within(section, name)} is not a setting; {words}")


def built(name: str, values: object, kind: type[_T]) -> _T:
    """A dataclass from a table of its fields; InputError for one that is unknown, missing or wrong."""
    # What is given is checked first: a typing error explains what seems to be missing.
    known, kinds = fields(kind), get_type_hints(kind)  # type: ignore[arg-type]
    arguments = table(name, values, {each.name: kinds[each.name] for each in known})
    for each in known:
        if each.name not in arguments and each.default is MISSING and each.default_factory is MISSING:
            raise InputError(f"{_within(name, each.name)} must be given.")
    return kind(**arguments)


def table(name: str, values: object, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose keys are among those of `kinds`, each value as the annotation there has it."""
    if not isinstance(values, Mapping):
        raise InputError(f"{name} must be a table of settings; got {shown(values)}.")
    # The unknown key before the wrong value.
    check_names(values, kinds, name)
    return {key: typed(_within(name, key), value, kinds[key]) for key, value in values.items()}


def typed(name: str, value: object, kind: Any) -> Any:
    """A value as an annotation has it: a tuple where a list was written; InputError for another."""
    origin, inner = get_origin(kind), get_args(kind)
    # From the inside out: sections, optional values, names, lists, plain types.
    if is_dataclass(kind):
        return value if isinstance(value, kind) else built(name, value, kind)  # type: ignore[arg-type]
    if NoneType in inner:
        # TOML has no null, so that a file says "none": of a text it would be one.
        is_none = value is None or (value == "none" and inner[0] is not str)
        return None if is_none else typed(name, value, inner[0])
    if origin is Literal:
        return one_of(name, value, inner)
    # One text is not taken for a list of its letters.
    if origin is tuple:
        return _listed(name, [value] if isinstance(value, str) else value, inner)
    if origin is not None:  # Mapping[str, Any], which is read by whom it is for
        return plain(name, dict(value) if isinstance(value, Mapping) else value, dict)
    if kind is str and type(value) is int:  # such as the column 1
        return str(value)
    return plain(name, value, kind)


def _listed(name: str, values: object, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    is_open = kinds[-1] is Ellipsis
    if not isinstance(values, list | tuple) or not (is_open or len(values) == len(kinds)):
        wanted = "a list" if is_open else f"a list of {len(kinds)}"
        raise InputError(f"{name} must be {wanted}; got {shown(values)}.")
    return tuple(typed(name, each, kinds[0]) for each in values)


def plain(name: str, value: object, kind: type[_T]) -> _T:
    """A value of a plain type. A whole number is a number too; a bool is none, and neither is infinity.

    >>> plain("lr", 1, float)
    1.0
    >>> plain("lr", True, float)
    Traceback (most recent call last):
    regard.core.errors.InputError: lr must be a finite number; got True.
    """
    # 1 is written for 1.0; an int too large for a float stays one, and is refused.
    if kind is float and type(value) is int:
        with suppress(OverflowError):
            value = float(value)
    # True is an int to Python; infinity and NaN are floats.
    is_strange = isinstance(value, bool) is not (kind is bool) or (
        isinstance(value, float) and not math.isfinite(value)
    )
    if isinstance(value, kind) and not is_strange:
        return value
    raise InputError(f"{name} must be {KINDS[kind]}; got {shown(value)}.")


def shown(value: object) -> str:
    """A value as errors quote it: its beginning, where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _within(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name
