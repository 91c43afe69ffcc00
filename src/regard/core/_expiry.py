"""Keys that expire: each has a span, how many later positions can attend to it, and is then forgotten.

With e_i the span of key i and R the length of a ramp, for the query at position t

    r_ti = e_i - (t - i)                          what remains of the span
    m_ti = max(0, min(1, 1 + r_ti / R))           1 within the span, falling to 0 over R further positions
    a'_ti = m_ti a_ti / sum_j m_tj a_tj           the softmax's weights a, masked and normed again

The last line is the softmax of (score + log m): so a mask hides the keys with m = 0, a bias adds log m to the
scores of the others, and every form of attention, every trace and every measure that knows masks and biases
knows these.

Source: Sukhbaatar et al. 2021 (Expire-Span), arXiv 2105.06548, section 4.1.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.core._cache import KeyValueCache
from regard.core._masks import Conjunction, Mask, Padding
from regard.core.errors import InputError
from regard.core.tensors import on_cpu

# Room is taken back once a quarter of what is kept has expired: moving the rest costs as much as it holds.
_WORTH_MOVING = 4


def _check_spans(spans: Tensor, ramp: float, positions: Tensor | None) -> None:
    if spans.ndim != 2 or not spans.is_floating_point():
        raise InputError(
            f"spans must be floating point of shape (batch, keys); got {spans.dtype} of shape "
            f"{tuple(spans.shape)}."
        )
    if not ramp > 0:
        raise InputError(f"ramp must be greater than 0; got {ramp}.")
    if positions is not None and positions.shape != spans.shape[1:]:
        raise InputError(
            f"positions must have one number for each key, {spans.shape[1]}; got {tuple(positions.shape)}."
        )


def _share(spans: Tensor, at: Tensor, queries: Tensor, ramp: float) -> Tensor:
    """1 + r / R before it is cut off: (batch, 1, rows, columns), of keys with these spans and positions."""
    # r = e - (query - key); the share of a key is 1 while r >= 0, and falls to 0 at r = -R.
    distance = queries[:, None] - at[None, :]
    return (1.0 + (spans[:, None, :] - distance) / ramp)[:, None]


@dataclass(frozen=True, eq=False)
class Unexpired(Mask):
    """A query attends to the keys whose m is above 0: until the span and the ramp behind it have passed.

    Args:
        spans: e, floating point (batch or 1, keys).
        ramp: R, in positions.
        first: the position of query 0.
        positions: int64 (keys,), rising, where the keys stand; by default 0, 1, ...

    Raises:
        InputError: a ramp that is not above 0, or shapes that do not fit.

    Example:
        >>> Unexpired(torch.tensor([[0.0, 3.0, 1.0, 0.0]]), ramp=1.5).dense(4, 4)[0, 0].int()
        tensor([[1, 1, 1, 1],
                [1, 1, 1, 1],
                [0, 1, 1, 1],
                [0, 1, 1, 1]], dtype=torch.int32)
    """

    spans: Tensor
    ramp: float
    first: int = 0
    positions: Tensor | None = None

    def __post_init__(self) -> None:
        _check_spans(self.spans, self.ramp, self.positions)

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        # Where the cache let keys go, columns are no longer positions.
        at = keys if self.positions is None else self.positions[keys]
        return _share(self.spans.detach()[:, keys], at, queries + self.first, self.ramp) > 0

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        del last_query
        # Asking for a number would make the device finish its work first.
        if not on_cpu(self.spans):
            return 0, k_len
        # One position more, for what rounding takes from the sum of a large position and a span.
        alive = (self._last >= first_query + self.first - 1).nonzero()
        return (int(alive[0]) if len(alive) else k_len), k_len

    @cached_property
    def _last(self) -> Tensor:
        """(keys,), a position after which no query sees the key, in any row."""
        # A key is seen until its position + span + ramp.
        at = torch.arange(self.spans.shape[1]) if self.positions is None else self.positions
        return (self.spans.detach() + at + self.ramp).amax(dim=0)

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        del k_len
        # The last query is at q_len + first - 1: if every key lives longer, the mask hides nothing.
        hides = not on_cpu(self.spans) or bool((self._last <= q_len + self.first).any())
        return self if hides else None

    def check(self, *, batch: int, q_len: int, k_len: int) -> None:
        del q_len
        if self.spans.shape[1] != k_len or self.spans.shape[0] not in (1, batch):
            raise InputError(
                f"spans must have shape (batch, keys) = ({batch}, {k_len}); got {tuple(self.spans.shape)}."
            )


@dataclass(frozen=True, eq=False)
class Ramp:
    """The bias log m, for the keys that `Unexpired` shows; finite for the others, which it hides.

    Args:
        spans, ramp, first, positions: as of `Unexpired`.

    Example:
        >>> bias = Ramp(torch.tensor([[1.0, 1.0, 1.0]]), ramp=2.0)
        >>> bias.block(torch.tensor([2]), torch.arange(3)).exp()
        tensor([[[[0.5000, 1.0000, 1.0000]]]])
    """

    spans: Tensor
    ramp: float
    first: int = 0
    positions: Tensor | None = None

    def __post_init__(self) -> None:
        _check_spans(self.spans, self.ramp, self.positions)

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        # As in `Unexpired`.
        at = keys if self.positions is None else self.positions[keys]
        share = _share(self.spans[:, keys], at, queries + self.first, self.ramp)
        # Below the least number the gradient of `clamp` is 0: an expired key gets none, as in the paper.
        return share.clamp(torch.finfo(share.dtype).tiny, 1.0).log()

    def learned(self) -> tuple[Tensor, ...]:
        return (self.spans,)


class ForgettingCache(KeyValueCache):
    """Keys and values that are let go once their spans have passed.

    `remember` the spans of the next positions, then `append` their keys and values. A key stays as long as
    any row of the batch may attend to it, and until a quarter of all have expired.

    Args:
        ramp: R, in positions.
        back: how many positions can be taken back by `cut` at any time.

    Attributes:
        spans: (batch, kept), of the keys that are left; None before the first.
        positions: int64 (kept,), where they stand.

    Example:
        >>> cache = ForgettingCache(ramp=1.0)
        >>> for token in range(50):
        ...     _ = cache.remember(torch.full((1, 1), 9.0))
        ...     k, v = cache.append(torch.randn(1, 2, 1, 5), torch.randn(1, 2, 1, 5))
        >>> cache.length, k.shape[2] <= 14
        (50, True)
    """

    def __init__(self, *, ramp: float, back: int = 0) -> None:
        super().__init__(back=back)
        self.ramp = ramp
        self.spans: Tensor | None = None
        self.positions: Tensor | None = None
        self._forgot = 0  # the position of the first query for which keys were let go

    def remember(self, spans: Tensor) -> tuple[Tensor, Tensor]:
        """Take in the spans of the positions whose keys come next, and forget what has expired.

        Args:
            spans: (batch, new).

        Returns:
            The spans and the positions of all that is kept, the new ones last.
        """
        # Before the new spans come: `spans` and keys then have the same columns.
        self._forget()
        # The positions of the new keys.
        at = torch.arange(self.length, self.length + spans.shape[1], device=spans.device)
        if self.spans is not None and self.positions is not None:
            spans, at = torch.cat((self.spans, spans), dim=1), torch.cat((self.positions, at))
        self.spans, self.positions = spans, at
        return spans, at

    def since(self, position: int) -> tuple[Tensor, Tensor]:
        """What is left of the keys and values from a position on."""
        return super().since(max(position, self._base))

    def pick(self, rows: Tensor) -> None:
        super().pick(rows)
        if self.spans is not None:
            self.spans = self.spans.index_select(0, rows)

    def cut(self, length: int) -> None:
        # Earlier queries would see keys that have been let go.
        if not self._forgot <= length <= self.length:
            raise InputError(
                f"length must be from {self._forgot} to {self.length} (what expired before is forgotten); "
                f"got {length}."
            )
        super().cut(length)
        if self.spans is not None and self.positions is not None:
            kept = length - self._base
            self.spans, self.positions = self.spans[:, :kept], self.positions[:kept]

    def _forget(self) -> None:
        if self.spans is None or self.positions is None or self._held is None:
            return
        # The earliest query that may still come: `cut` goes back as far as this.
        query = max(0, self.length - self.back)
        now = torch.tensor([query], device=self.spans.device)
        # A key stays while it lives in one row of the batch.
        left = (_share(self.spans, self.positions, now, self.ramp) > 0).any(dim=0).flatten()
        lost = len(left) - int(left.sum())
        # Not worth moving yet.
        if not lost or lost * _WORTH_MOVING < len(left):
            return
        # Spans, positions, keys and values: all by the same index.
        index = left.nonzero().flatten()
        k, v = self.since(0)
        self._held = k.index_select(2, index), v.index_select(2, index)
        self._base += lost
        self.spans, self.positions = self.spans[:, index], self.positions[index]
        self._forgot = query


def of_keys(mask: Mask | None, positions: Tensor) -> Mask | None:
    """A mask of all keys, of those at some positions only.

    Args:
        mask: over the keys from 0 on; None hides nothing.
        positions: int64 (kept,), rising.
    """
    if mask is None:
        return None
    parts = [
        # Padding stays Padding, so that its keys are found and silenced.
        Padding(part.real[:, positions]) if isinstance(part, Padding) else _OfKeys(part, positions)
        for part in mask.parts()
    ]
    return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))


@dataclass(frozen=True, eq=False)
class _OfKeys(Mask):
    mask: Mask
    positions: Tensor

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.mask.block(queries, self.positions[keys])
