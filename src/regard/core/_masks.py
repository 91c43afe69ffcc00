"""Which query may attend to which key: masks as objects, which compute the rows asked for.

A mask answers for any rows and columns, so no caller holds the dense (queries, keys) matrix. True means
"may attend". Masks are conjoined with `&`: `Causal() & Padding(real)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.core.tensors import on_cpu


class Mask(ABC):
    """Which queries may attend to which keys; True = may attend.

    Example:
        >>> from regard.core import Causal, Window
        >>> import torch
        >>> (Causal() & Window(left=1)).dense(3, 3)[0, 0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """

    @abstractmethod
    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The mask of some rows and columns.

        Args:
            queries: int64 (rows,), the positions of the queries.
            keys: int64 (columns,), the positions of the keys.

        Returns:
            bool, four axes that broadcast to (batch, heads, rows, columns).
        """

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        """A half-open range that holds every key which the queries first..last (inclusive) may attend to.

        It may be wider than need be: it saves work, it decides nothing.
        """
        del first_query, last_query
        return 0, k_len

    def parts(self) -> tuple["Mask", ...]:
        """The masks that this one is the conjunction of."""
        return (self,)

    def check(self, *, batch: int, q_len: int, k_len: int) -> None:
        """Raise InputError where the mask cannot belong to attention of this size."""
        del batch, q_len, k_len

    def simplified(self, q_len: int, k_len: int) -> "Mask | None":
        """The same mask on attention of this size, without what hides nothing there; None if nothing does.

        `Causal() & Window(left=4095)` over 512 positions is `Causal()`, which torch's kernel takes without
        a matrix. Numbers in a tensor are looked at only where that is free: on the CPU, where the answer
        need not be waited for. Elsewhere a padding without padding stays.
        """
        del q_len, k_len
        return self

    def since(self, query: int, key: int = 0) -> "Mask":
        """The same mask for queries and keys that are counted from a later one: what a cache leaves to do.

        Args:
            query: the position of what is query 0 now.
            key: the position of what is key 0 now.

        Example:
            >>> from regard.core import Causal
            >>> Causal().since(3), Causal().since(3, 2).dense(1, 3).int().tolist()
            (Causal(offset=3), [[[[1, 1, 0]]]])
        """
        # A general wrapper; masks that are a rule of positions shift their offset instead.
        return self if query == key == 0 else _Since(self, query, key)

    def dense(self, q_len: int, k_len: int, device: torch.device | None = None) -> Tensor:
        """The whole mask, bool, broadcastable to (batch, heads, q_len, k_len); O(N^2), to look at."""
        return self.block(torch.arange(q_len, device=device), torch.arange(k_len, device=device))

    def __and__(self, other: "Mask") -> "Mask":
        # Flat: a conjunction never holds a conjunction that was joined by `&`.
        return Conjunction(self.parts() + other.parts())


@dataclass(frozen=True)
class Conjunction(Mask):
    """All of several masks at once; `a & b` makes one."""

    masks: tuple[Mask, ...]

    def __post_init__(self) -> None:
        if not self.masks:
            raise InputError("masks must hold at least one mask; got none. Use mask=None to mask nothing.")

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        allowed = self.masks[0].block(queries, keys)
        for mask in self.masks[1:]:
            allowed = allowed & mask.block(queries, keys)
        return allowed

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        ranges = [mask.key_range(first_query, last_query, k_len) for mask in self.masks]
        # A key must lie in all ranges; where they do not meet, the range is empty.
        start = max(start for start, _ in ranges)
        return start, max(start, min(stop for _, stop in ranges))

    def parts(self) -> tuple[Mask, ...]:
        return tuple(part for mask in self.masks for part in mask.parts())

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        # Each part alone may turn out to hide nothing here.
        simple = [part.simplified(q_len, k_len) for part in self.parts()]
        left = [part for part in simple if part is not None]
        causal = [part for part in left if isinstance(part, Causal)]
        if len(causal) > 1:  # the one that hides most
            least = min(causal, key=lambda part: part.offset)
            left = [least, *(part for part in left if not isinstance(part, Causal))]
        if len(left) < 2:
            return left[0] if left else None
        # The same object where nothing changed: callers compare by `is`.
        return self if left == list(self.masks) else Conjunction(tuple(left))

    def since(self, query: int, key: int = 0) -> Mask:
        return Conjunction(tuple(part.since(query, key) for part in self.parts()))

    def check(self, *, batch: int, q_len: int, k_len: int) -> None:
        for mask in self.masks:
            mask.check(batch=batch, q_len=q_len, k_len=k_len)


@dataclass(frozen=True, eq=False)
class _Since(Mask):
    """Any mask, asked from a later query and a later key on; its own check is of the whole sequence."""

    mask: Mask
    query: int
    key: int

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.mask.block(queries + self.query, keys + self.key)

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        # Asked in the old numbering, answered in the new one.
        start, stop = self.mask.key_range(first_query + self.query, last_query + self.query, k_len + self.key)
        return max(0, start - self.key), max(0, stop - self.key)

    def check(self, *, batch: int, q_len: int, k_len: int) -> None:
        self.mask.check(batch=batch, q_len=q_len + self.query, k_len=k_len + self.key)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """No query attends to padding keys.

    Args:
        real: bool (batch, keys), True where there is a token.
    """

    real: Tensor

    def __post_init__(self) -> None:
        if self.real.dtype != torch.bool or self.real.ndim != 2:
            raise InputError(
                "real must be a bool tensor of shape (batch, keys), True where there is a token; "
                f"got {self.real.dtype} of shape {tuple(self.real.shape)}. Convert 0/1 with .bool()."
            )

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        # (batch, 1, 1, keys): one row for all heads and queries.
        return self.real.index_select(1, keys)[:, None, None]

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        del q_len, k_len
        return None if _holds_everywhere(self.real) else self

    def since(self, query: int, key: int = 0) -> Mask:
        del query
        return self if key == 0 else Padding(self.real[:, key:])

    def check(self, *, batch: int, q_len: int, k_len: int) -> None:
        if self.real.shape[1] != k_len or self.real.shape[0] not in (1, batch):
            raise InputError(
                f"padding must have shape (batch, keys) = ({batch}, {k_len}); got {tuple(self.real.shape)}."
            )


@dataclass(frozen=True)
class Causal(Mask):
    """Query i attends to the keys j <= i + offset.

    Args:
        offset: 0 where queries and keys are the same positions; with a cache of n earlier keys, n
            (`k_len - q_len`). Given, never guessed: torch aligns the top left, others the bottom right.
    """

    offset: int = 0

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (keys[None, :] <= queries[:, None] + self.offset)[None, None]

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        return 0, min(k_len, max(0, last_query + self.offset + 1))

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        del q_len
        # Query 0 sees the last key: then all queries see all.
        return None if self.offset >= k_len - 1 else self

    def since(self, query: int, key: int = 0) -> Mask:
        # New query i is old i + query, new key j is old j + key: j + key <= i + query + offset.
        return Causal(self.offset + query - key)


@dataclass(frozen=True)
class Window(Mask):
    """Query i attends to the keys i + offset - left .. i + offset + right; None is without limit.

    Args:
        left: how many keys before its own position a query sees (Mistral's window of w is `left=w - 1`).
        right: how many after it; conjoin with `Causal` for a causal window.
        offset: as in `Causal`.
    """

    left: int | None
    right: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        for name, value in (("left", self.left), ("right", self.right)):
            if value is not None and value < 0:
                raise InputError(f"{name} must be at least 0, or None for no limit; got {value}.")

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        # How far a key stands after the query.
        distance = keys[None, :] - (queries[:, None] + self.offset)
        allowed = torch.ones_like(distance, dtype=torch.bool)
        if self.left is not None:
            allowed = allowed & (distance >= -self.left)
        if self.right is not None:
            allowed = allowed & (distance <= self.right)
        return allowed[None, None]

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        # The first query sees furthest to the left, the last one furthest to the right.
        start = 0 if self.left is None else min(k_len, max(0, first_query + self.offset - self.left))
        stop = k_len if self.right is None else min(k_len, max(0, last_query + self.offset + self.right + 1))
        return start, max(start, stop)

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        left, right = self.left, self.right
        # The last query still sees the first key: the left end cuts nothing off.
        if left is not None and q_len - 1 + self.offset - left <= 0:
            left = None
        # The first query sees the last key: the right end cuts nothing off.
        if right is not None and self.offset + right >= k_len - 1:
            right = None
        # Without a left end it is a causal mask.
        if left is None and right is not None:
            return Causal(self.offset + right)
        if left is None:
            return None
        return self if right == self.right else Window(left, right, self.offset)

    def since(self, query: int, key: int = 0) -> Mask:
        return Window(self.left, self.right, self.offset + query - key)


@dataclass(frozen=True, eq=False)
class Segments(Mask):
    """Attention within a segment only: several texts packed into one row do not see each other.

    Args:
        queries: int (batch or 1, queries), the segment of each query.
        keys: int (batch or 1, keys); by default the same tensor.
    """

    queries: Tensor
    keys: Tensor | None = None

    def __post_init__(self) -> None:
        for name, value in (("queries", self.queries), ("keys", self.keys)):
            if value is not None and (value.ndim != 2 or value.is_floating_point()):
                raise InputError(
                    f"{name} must be integers of shape (batch, positions), the segment of each position; "
                    f"got {value.dtype} of shape {tuple(value.shape)}."
                )

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        # Without keys of its own, queries and keys are the same positions.
        of_key = self.queries if self.keys is None else self.keys
        return (self.queries[:, queries, None] == of_key[:, None, keys])[:, None]

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        del k_len
        # The widest range of the rows asked for; other segments within it stay hidden by `block`.
        starts, stops = self._ranges
        stop = max(stops[first_query : last_query + 1])
        return min(stop, *starts[first_query : last_query + 1]), stop

    @cached_property
    def _ranges(self) -> tuple[list[int], list[int]]:
        """For each query the first key of its segment in any row, and the one after the last."""
        of_key = self.queries if self.keys is None else self.keys
        rows = max(len(self.queries), len(of_key))
        k_len, starts, stops = of_key.shape[1], [], []
        at = torch.arange(k_len, device=of_key.device)
        for queries, keys in zip(self.queries.expand(rows, -1), of_key.expand(rows, -1), strict=True):
            # Segments by small numbers 0, 1, .. that queries and keys share.
            _, of_both = torch.unique(torch.cat((queries, keys)), return_inverse=True)
            query, key = of_both[: len(queries)], of_both[len(queries) :]
            empty = torch.zeros_like(of_both)
            # The first key of each segment; k_len where it has no key.
            starts.append((empty + k_len).scatter_reduce(0, key, at, "amin")[query])
            # One after its last key; 0 where it has none, which makes the range empty.
            stops.append(empty.scatter_reduce(0, key, at + 1, "amax")[query])
        return torch.stack(starts).amin(dim=0).tolist(), torch.stack(stops).amax(dim=0).tolist()

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        del q_len, k_len
        # One segment over the whole row hides nothing.
        first = self.queries[:, :1]
        one = _holds_everywhere(self.queries == first)
        return None if one and (self.keys is None or _holds_everywhere(self.keys == first)) else self

    def check(self, *, batch: int, q_len: int, k_len: int) -> None:
        of_key = self.queries if self.keys is None else self.keys
        for name, segments, length in (("queries", self.queries, q_len), ("keys", of_key, k_len)):
            if segments.shape[1] != length or segments.shape[0] not in (1, batch):
                raise InputError(
                    f"segments of {name} must have shape ({batch}, {length}); got {tuple(segments.shape)}."
                )


@dataclass(frozen=True)
class Predicate(Mask):
    """Any rule: `allowed(queries, keys)` on position tensors of shapes (rows, 1) and (1, columns).

    Args:
        allowed: returns bool of shape (rows, columns), or four axes that broadcast to
            (batch, heads, rows, columns).

    Example:
        >>> from regard.core import Predicate
        >>> every_second = Predicate(lambda query, key: (query - key) % 2 == 0)
        >>> every_second.dense(1, 4).int()
        tensor([[[[1, 0, 1, 0]]]], dtype=torch.int32)
    """

    allowed: Callable[[Tensor, Tensor], Tensor]

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        allowed = self.allowed(queries[:, None], keys[None, :])
        if allowed.dtype != torch.bool or allowed.ndim not in (2, 4):
            raise InputError(
                "a predicate must return bool with two axes (rows, columns) or four "
                f"(batch, heads, rows, columns); got {allowed.dtype} of shape {tuple(allowed.shape)}."
            )
        # A rule of positions alone is the same for all heads and rows of the batch.
        return allowed if allowed.ndim == 4 else allowed[None, None]


@dataclass(frozen=True, eq=False)
class TensorMask(Mask):
    """A mask that is there as the model's own tensor, which it holds without a copy.

    Args:
        values: four axes that broadcast to (batch, heads, queries, keys): bool, True = may attend; or
            floating point, added to the scores: what is hardly above the type's lowest number forbids.
    """

    values: Tensor

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        # An axis of size 1 stands for all positions.
        rows = self.values if self.values.shape[2] == 1 else self.values.index_select(2, queries)
        picked = rows if rows.shape[3] == 1 else rows.index_select(3, keys)
        return picked if picked.dtype == torch.bool else ~self.forbids(picked)

    @staticmethod
    def forbids(values: Tensor) -> Tensor:
        """Which entries of an additive mask forbid: also the lowest number with a position's bias on it."""
        # Models add the lowest number, or -inf; half of it leaves room for a bias on top.
        return values <= torch.finfo(values.dtype).min / 2


def _holds_everywhere(answers: Tensor) -> bool:
    """Whether all are true; False where asking would make a device wait."""
    return on_cpu(answers) and bool(answers.all())


@dataclass(frozen=True)
class DilatedWindow(Mask):
    """Query i attends to the keys i + offset + dilation * m, for m from -left to right.

    A window of left + 1 + right keys, `dilation` apart, reaches `dilation` times as far as `Window`. It is
    exact: the softmax is over these keys, and a trace shows its weights.

    Args:
        left, right: how many keys before and after its own position a query sees; conjoin with `Causal`, or
            take right=0, for a causal one.
        dilation: how far apart they are, at least 1, which is a plain window.
        offset: as in `Causal`.

    Raises:
        InputError: numbers below these.

    Example:
        >>> from regard.core import DilatedWindow
        >>> DilatedWindow(left=1, right=1, dilation=2).dense(5, 5)[0, 0].int()
        tensor([[1, 0, 1, 0, 0],
                [0, 1, 0, 1, 0],
                [1, 0, 1, 0, 1],
                [0, 1, 0, 1, 0],
                [0, 0, 1, 0, 1]], dtype=torch.int32)

    Source: Beltagy et al. 2020 (Longformer), arXiv 2004.05150, section 3.1, figure 2c.
    """

    left: int
    right: int
    dilation: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("left", self.left, 0),
            ("right", self.right, 0),
            ("dilation", self.dilation, 1),
        ):
            if value < least:
                raise InputError(f"{name} must be at least {least}; got {value}.")

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = keys[None, :] - (queries[:, None] + self.offset)
        # Within the ends, and a whole number of steps away.
        near = (distance >= -self.left * self.dilation) & (distance <= self.right * self.dilation)
        return (near & (torch.remainder(distance, self.dilation) == 0))[None, None]

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        # The steps leave keys out, but reach no further than the window.
        return self._window().key_range(first_query, last_query, k_len)

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        return self._window().simplified(q_len, k_len) if self.dilation == 1 else self

    def since(self, query: int, key: int = 0) -> Mask:
        return replace(self, offset=self.offset + query - key)

    def _window(self) -> Window:
        return Window(self.left * self.dilation, self.right * self.dilation, self.offset)
