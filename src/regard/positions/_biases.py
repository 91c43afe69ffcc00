"""Positions in the scores: a bias that falls with the distance (ALiBi), or is learned for it (T5)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.core import Bias
from regard.core.arguments import Count, Limited, Positive
from regard.core.errors import InputError


@dataclass(frozen=True)
class Alibi(Limited):
    """An additive bias -slope_h * |i - j| of query i and key j, an object to hand in as `bias`.

    With n heads, n a power of two, head h = 1 .. n has slope 2^(-steepest h / n). Otherwise, with m the power
    of two below n, the first m heads have the slopes of m heads, and the rest every other one of 2m heads.

    BLOOM and MPT add slope_h * j instead, which differs by one number a row and gives the same weights where
    the query's own and earlier keys are all there is (`Causal`).

    Args:
        num_heads: query heads.
        steepest: minus the exponent of the last slope (MPT's `alibi_bias_max`); 8 in the paper.

    Raises:
        InputError: no heads, or an exponent that is not positive.

    Example:
        >>> import torch
        >>> from regard.positions import Alibi
        >>> Alibi(8).slopes[:3], Alibi(3).slopes
        ((0.5, 0.25, 0.125), (0.0625, 0.00390625, 0.25))
        >>> Alibi(8).block(torch.tensor([2]), torch.arange(3))[0, 0]
        tensor([[-1.0000, -0.5000, -0.0000]])

    Source: Press et al. 2022, arXiv 2108.12409, section 3; slopes of other numbers of heads in their code.
    """

    num_heads: Count
    steepest: Positive = 8.0

    @property
    def slopes(self) -> tuple[float, ...]:
        """One a head."""
        # The power of two at or below num_heads: so many heads have the slopes of the paper.
        below = 2 ** int(math.log2(self.num_heads))
        exponents = [(head + 1) / below for head in range(below)]
        # The heads beyond take every other slope of twice as many heads, as in the authors' code.
        exponents += [(2 * head + 1) / (2 * below) for head in range(self.num_heads - below)]
        return tuple(2.0 ** (-self.steepest * exponent) for exponent in exponents)

    def __call__(self) -> "Alibi":
        """Itself, so that it stands wherever a `RelativeBias` may."""
        return self

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        """float32 (1, heads, rows, columns); see `Bias`."""
        # (heads,) to (1, heads, rows, columns)
        slopes = torch.tensor(self.slopes, dtype=torch.float32, device=keys.device)
        distance = (queries[:, None] - keys[None, :]).abs()
        return (-slopes[:, None, None] * distance)[None]

    def learned(self) -> tuple[Tensor, ...]:
        """(): nothing is learned."""
        return ()


def relative_buckets(
    distances: Tensor, *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> Tensor:
    """The bucket of each distance: one for each near one, wider and wider ones for the far.

    With n = |distance| (not bidirectional: n = max(-distance, 0)), b buckets a direction and e = b // 2:

        n                                                         for n < e
        min(e + floor(ln(n / e) / ln(max_distance / e) * (b - e)), b - 1)      else

    and b more where the key comes after the query. b is half of `num_buckets` if bidirectional, else all.

    Args:
        distances: int64 of any shape, position of the key minus position of the query.
        num_buckets: how many there are.
        max_distance: from here on all distances share the last bucket of their direction.
        bidirectional: whether keys after the query are told from those before.

    Returns:
        int64 of the same shape, 0 .. num_buckets - 1.

    Raises:
        InputError: too few buckets, or a `max_distance` that the near buckets already reach.

    Example:
        >>> relative_buckets(torch.tensor([-1000, -8, -7, -1, 0, 1, 7, 8, 1000]))
        tensor([15,  8,  7,  1,  0, 17, 23, 24, 31])
        >>> relative_buckets(torch.tensor([-1000, -16, -1, 0, 1]), bidirectional=False)
        tensor([31, 16,  1,  0,  0])

    Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1; the formula is in their code. In float32, as in
    `transformers`: a distance on the border of two buckets falls on the same side.
    """
    # Half of the buckets for each direction; half of these hold one distance each.
    a_side = num_buckets // 2 if bidirectional else num_buckets
    near = a_side // 2
    if near < 1:
        raise InputError(f"num_buckets must be at least {4 if bidirectional else 2}; got {num_buckets}.")
    if max_distance <= near:
        raise InputError(
            f"max_distance must be greater than {near}, where {num_buckets} buckets stop to be one distance "
            f"each; got {max_distance}."
        )
    # (…) distances without their signs; in a decoder a key after the query counts as distance 0.
    n = distances.abs() if bidirectional else (-distances).clamp(min=0)
    # The logarithm of 0 would not convert; distances below `near` do not come from here anyway.
    ratio = torch.log(n.clamp(min=near).float() / near) / math.log(max_distance / near)
    # The logarithm stretches near .. max_distance over the buckets that are left; beyond is the last
    # one.
    far = (near + (ratio * (a_side - near)).to(torch.int64)).clamp(max=a_side - 1)
    buckets = torch.where(n < near, n, far)
    # Keys after the query have the second half of the buckets.
    return buckets + (distances > 0) * a_side if bidirectional else buckets


_FURTHEST = 2**24
"""A bucket is kept for every distance: more than any text has tokens would only fill memory."""


class RelativeBias(nn.Module):
    """An additive bias table[bucket(j - i), h] for query i, key j and head h; one for all layers of a stack.

    Args:
        num_heads: query heads.
        num_buckets, max_distance: as in `relative_buckets`.
        bidirectional: True in encoders, False in decoders, where no key comes after the query. MPNet's
            buckets are the bidirectional ones.

    Raises:
        InputError: no heads, or sizes that `relative_buckets` does not take.

    Attributes:
        table: nn.Embedding(num_buckets, num_heads).

    Example:
        >>> import torch
        >>> from regard.positions import RelativeBias
        >>> bias = RelativeBias(2, num_buckets=4, max_distance=8)
        >>> _ = bias.table.weight.data.copy_(torch.arange(8.0).view(4, 2))
        >>> bias().block(torch.arange(3), torch.arange(3))[0, 0].tolist()
        [[0.0, 6.0, 6.0], [2.0, 0.0, 6.0], [2.0, 2.0, 0.0]]

    Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        *,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise InputError(f"num_heads must be at least 1; got {num_heads}.")
        if max_distance > _FURTHEST:
            raise InputError(f"max_distance must be at most {_FURTHEST}; got {max_distance}.")
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self._buckets(torch.device("cpu"))  # refuses what does not fit
        self.table = nn.Embedding(num_buckets, num_heads)

    def _buckets(self, device: torch.device) -> Tensor:
        """The buckets of the distances -max_distance .. max_distance: beyond, nothing changes."""
        return relative_buckets(
            torch.arange(-self.max_distance, self.max_distance + 1, device=device),
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )

    def forward(self, query_offset: int = 0) -> Bias:
        """The bias as an object, to hand to attention.

        Args:
            query_offset: where query 0 stands among the keys; with a cache of n earlier keys, n.
        """
        # The buckets are worked out anew at each call, on the table's device: 2 max_distance + 1
        # numbers.
        weight = self.table.weight
        return BucketBias(weight, self._buckets(weight.device), query_offset)


@dataclass(frozen=True, eq=False)
class BucketBias:
    """A `Bias`: O(rows * columns) numbers are read from one short vector a head."""

    weight: Tensor
    buckets: Tensor
    query_offset: int

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(1, heads, rows, columns), in the table's dtype; the gradient goes to the table."""
        of_distance = self.weight[self.buckets].T.contiguous()  # (heads, distances)
        queries = queries + self.query_offset
        if _is_run(queries) and _is_run(keys):
            # Each row is the one above it moved on by one: windows of one line, the last row's first.
            # From keys[0] - queries[-1] to keys[-1] - queries[0]: one number for each diagonal.
            steps = torch.arange(len(queries) + len(keys) - 1, device=keys.device)
            line = of_distance[:, self._index(steps + (keys[0] - queries[-1]))]
            # (heads, rows, columns), a view: nothing of the size of the scores is written but by `flip`.
            return line.unfold(1, len(keys), 1).flip(1)[None]
        # Positions with gaps, as of packed or padded texts: an index for each pair.
        index = self._index(keys[None, :] - queries[:, None])
        return of_distance.index_select(1, index.flatten()).view(1, of_distance.shape[0], *index.shape)

    def _index(self, distances: Tensor) -> Tensor:
        """Where a distance stands in `buckets`; beyond the furthest nothing changes."""
        furthest = len(self.buckets) // 2
        return (distances + furthest).clamp_(0, 2 * furthest)

    def learned(self) -> tuple[Tensor, ...]:
        """The table's weight."""
        return (self.weight,)


def _is_run(positions: Tensor) -> bool:
    """Whether positions follow one another; False where the answer would have to be waited for."""
    # On a GPU the comparison would make the processor wait; while compiling it has no answer.
    look = positions.is_cpu and not torch.compiler.is_compiling()
    return look and len(positions) > 0 and bool((positions.diff() == 1).all())
