"""Named points inside a running model, readable and writable, that cost nothing without a listener.

A model that is called with `taps=None` does no work for them. A `Taps` belongs to one caller, is handed down
the forward pass as an argument and never changed by it: there is no global state, and threads that bring
their own taps cannot meet.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from regard.core.errors import InputError

Listener = Callable[[Any], Tensor | None]


class Taps:
    """Listeners by the name of the point they listen at.

    A listener is called with the value at the point. It returns None to leave it, or a tensor of the same
    shape, dtype and device that the model goes on with.

    Args:
        listeners: from a point's name, or a pattern with `*`, to the listener. Where several match, they are
            called in the order given, each with what the one before left.

    Example:
        >>> from regard.core import Taps
        >>> import torch
        >>> seen = []
        >>> taps = Taps({"layers.*.attention.q": seen.append, "layers.1.output": lambda x: x * 0})
        >>> inner = taps.at("layers.1")
        >>> inner.wants("output"), inner.wants("input")
        (True, False)
        >>> inner.offer("output", torch.ones(2))
        tensor([0., 0.])
    """

    # Made for each layer of each pass: small, and without a dict.
    __slots__ = ("_parts", "_prefix")

    def __init__(self, listeners: Mapping[str, Listener]) -> None:
        self._parts: tuple[_Part, ...] = (_Part(listeners),)
        self._prefix = ""

    def at(self, prefix: str) -> "Taps":
        """The same listeners, seen from inside the part of the model that is called `prefix`."""
        return _made(self._parts, f"{self._prefix}{prefix}.")

    def then(self, others: "Taps | None") -> "Taps":
        """These listeners, and at each point after them the others, who get what these left.

        Both keep their own names and order: where a point has listeners in both, all are called.

        Args:
            others: taps as seen from the same part of the model; None for none.

        Example:
            >>> from regard.core import Taps
            >>> import torch
            >>> both = Taps({"x": lambda x: x + 1}).then(Taps({"*": lambda x: x * 10}))
            >>> both.offer("x", torch.tensor([2.0]))
            tensor([30.])
        """
        if others is None:
            return self
        # The prefix is of these: others are asked for the same points.
        return _made(self._parts + others._parts, self._prefix)

    def wants(self, name: str) -> bool:
        """Whether anybody listens at this point: work that only serves a tap is done only then."""
        return bool(self._at(self._prefix + name))

    def offer(self, name: str, value: Tensor) -> Tensor:
        """Show a tensor to the listeners of this point; returns it, or what they put in its place.

        Raises:
            InputError: a listener returned something that cannot take the tensor's place.
        """
        point = self._prefix + name
        # In order: each is shown what the one before left.
        for listener in self._at(point):
            written = listener(value)
            if written is not None:
                value = _checked(point, value, written)
        return value

    def offer_readonly(self, name: str, record: object) -> None:
        """Show a record, such as the inputs of attention, that listeners can read but not write.

        Raises:
            InputError: a listener returned something; a record cannot be replaced, its tensors can.
        """
        point = self._prefix + name
        for listener in self._at(point):
            if listener(record) is not None:
                raise InputError(
                    f"the listener at {point!r} must return None: what is shown there can be read, not "
                    "written. Write at the point of the tensor instead."
                )

    def check(self, points: Collection[str]) -> None:
        """Raise InputError if a pattern matches none of a model's points: it would never be called."""
        # A plain name must be a point; a pattern must match one.
        known = frozenset(points)
        for pattern in (name for part in self._parts for name in part.listeners):
            if pattern not in known and not any(fnmatchcase(point, pattern) for point in points):
                raise InputError(
                    f"no tap is called {pattern!r}; the model has "
                    f"{', '.join(sorted({_generic(point) for point in points}))} (with i counting from 0)."
                )

    def _at(self, point: str) -> Sequence[Listener]:
        # The usual case, without a list of its own.
        if len(self._parts) == 1:
            return self._parts[0].at(point)
        return [listener for part in self._parts for listener in part.at(point)]


class _Part:
    """The listeners that came together."""

    __slots__ = ("has_patterns", "listeners")

    def __init__(self, listeners: Mapping[str, Listener]) -> None:
        self.listeners = dict(listeners)
        self.has_patterns = any(sign in name for name in listeners for sign in "*?[")

    def at(self, point: str) -> Sequence[Listener]:
        # Plain names are looked up: a trace listens at a hundred points, and asks at each.
        if not self.has_patterns:
            return [self.listeners[point]] if point in self.listeners else ()
        return [each for pattern, each in self.listeners.items() if fnmatchcase(point, pattern)]


def _made(parts: tuple[_Part, ...], prefix: str) -> Taps:
    # Without `__init__`, which would copy the listeners.
    taps = Taps.__new__(Taps)
    taps._parts, taps._prefix = parts, prefix
    return taps


def _generic(point: str) -> str:
    # layers.3.attention.q -> layers.i.attention.q: the message lists a point once.
    return ".".join("i" if part.isdigit() else part for part in point.split("."))


def _checked(point: str, value: Tensor, written: object) -> Tensor:
    # A listener's value goes on through the model: it must be like the one in its place.
    if not isinstance(written, Tensor):
        raise InputError(
            f"the listener at {point!r} must return None or a tensor; got {type(written).__name__}."
        )
    if (written.shape, written.dtype, written.device) != (value.shape, value.dtype, value.device):
        raise InputError(
            f"the listener at {point!r} must return a tensor like the one it was given, "
            f"{tuple(value.shape)} {value.dtype} on {value.device}; "
            f"got {tuple(written.shape)} {written.dtype} on {written.device}."
        )
    return written
