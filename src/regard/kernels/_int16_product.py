"""Products in 16 bits whose sums cannot overflow."""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from regard.kernels._compiled import ADDRESS, NUMBER, REAL, compiled
from regard.kernels._int16 import kernels
from regard.kernels._kernel_product import KernelProduct
from regard.kernels._panels import panel_of
from regard.kernels._target import Target, here

# One below the largest of 16 bits, for what rounding adds.
_LARGEST = 2**15 - 2
# Rows and columns of codes get norms up to the root of the largest sum of 32 bits, 46,340: then no sum of
# their products is larger, by the inequality of Cauchy and Schwarz.
_NORM = math.isqrt(2**31 - 1)
# The kernel adds squares in float32, in eight parts: below 2e-4 of the norm for 2^16 entries.
_SPARE = 2e-4


class Int16Product(KernelProduct):
    """x -> x W^T + bias, with codes of 16 bits.

        s_i = max(|x_i| / c, max_j |x_ij| / 32766),  a_ij = round(x_ij / s_i)
        t_o = the same of W_o,                       w_oj = round(W_oj / t_o)
        y_io = s_i t_o sum_j a_ij w_oj + b_o

    with c = (46340 - sqrt(depth) / 2) (1 - 2e-4): then |a_i| and |w_o| are below 46,340, roundings counted,
    and by the inequality of Cauchy and Schwarz every sum is below 2^31, so that it is exact. A row's
    numbers are the same whatever else is in the batch. Rounding moves a row by sqrt(depth) / 2 s_i at most:
    by 2.2e-4 of its norm for 384 entries and 4.3e-4 for 1,536, or by 3e-4 and 6e-4 where one entry outweighs
    all others. As a rule it is 0.6 times as much. The rows of W are moved as far.

    Args:
        weight: float32 (width, depth), on the CPU, both multiples of 16, or
            of 32 on processors with AVX-512.
        bias: float32 (width,).

    Source: whole numbers for products of matrices: Jacob et al. 2018, arXiv 1712.05877, section 2.2; there
    with 8 bits, and sums of 32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        target = here()
        panel = panel_of(target)
        width, depth = weight.shape
        weight = weight.detach()
        norms = weight.double().norm(dim=1)  # squares of small entries are 0 in float32
        scales = torch.maximum(norms / _norm(depth), weight.abs().amax(dim=1) / _LARGEST).float()
        scales = torch.where(scales > 0, scales, 1.0)
        codes = (weight / scales[:, None]).round_().to(torch.int16)
        # Column after column of a panel, two codes of each: what one instruction multiplies. A pair is moved
        # as one number.
        pairs = codes.view(torch.int32).view(width // panel, panel, depth // 2)
        weights = [pairs.transpose(1, 2).contiguous(), scales]
        factors = [1.0 / _norm(depth), 1.0 / _LARGEST]
        super().__init__(_product(target), weights, width, depth, bias, factors)

    @staticmethod
    def takes(weight: Tensor) -> bool:
        """Whether the weight's sizes are those that the kernels know."""
        return all(size % panel_of(here()) == 0 for size in weight.shape)

    def _room(self, rows: int) -> tuple[Tensor, Tensor]:
        return torch.empty(rows, self._depth, dtype=torch.int16), torch.empty(rows)


@cache
def _product(target: Target) -> Callable[..., None]:
    """The kernel; compiled once a process, which takes some 0.1 s."""
    kinds = [*[ADDRESS] * 6, NUMBER, ADDRESS, *[NUMBER] * 6, REAL, REAL]
    return compiled(lambda: kernels(target), "product", *kinds)


def _norm(depth: int) -> float:
    return (_NORM - math.sqrt(depth) / 2) * (1 - _SPARE)
