"""ALiBi: scores fall with the distance, in each head at a slope of its own, and nothing is learned."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.errors import InputError


@dataclass(frozen=True)
class Alibi:
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
        >>> Alibi(8).slopes[:3], Alibi(3).slopes
        ((0.5, 0.25, 0.125), (0.0625, 0.00390625, 0.25))
        >>> Alibi(8).block(torch.tensor([2]), torch.arange(3))[0, 0]
        tensor([[-1.0000, -0.5000, -0.0000]])

    Source: Press et al. 2022, arXiv 2108.12409, section 3; slopes of other numbers of heads in their code.
    """

    num_heads: int
    steepest: float = 8.0

    def __post_init__(self) -> None:
        if self.num_heads < 1:
            raise InputError(f"num_heads must be at least 1; got {self.num_heads}.")
        if not 0 < self.steepest < math.inf:
            raise InputError(f"steepest must be a finite number greater than 0; got {self.steepest}.")

    @property
    def slopes(self) -> tuple[float, ...]:
        """One a head."""
        below = 2 ** int(math.log2(self.num_heads))
        exponents = [(head + 1) / below for head in range(below)]
        exponents += [(2 * head + 1) / (2 * below) for head in range(self.num_heads - below)]
        return tuple(2.0 ** (-self.steepest * exponent) for exponent in exponents)

    def __call__(self) -> "Alibi":
        """Itself, so that it stands wherever a `RelativeBias` may."""
        return self

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        """float32 (1, heads, rows, columns); see `Bias`."""
        slopes = torch.tensor(self.slopes, dtype=torch.float32, device=keys.device)
        distance = (queries[:, None] - keys[None, :]).abs()
        return (-slopes[:, None, None] * distance)[None]

    def learned(self) -> tuple[Tensor, ...]:
        """(): nothing is learned."""
        return ()
