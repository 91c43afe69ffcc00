"""Products in 8 bits, of rows that a Hadamard matrix has evened out."""

from collections.abc import Callable
from functools import cache
from typing import Final

import torch
from torch import Tensor

from regard.kernels._compiled import ADDRESS, NUMBER, compiled
from regard.kernels._int8 import BLOCK, LARGEST, kernels
from regard.kernels._kernel_product import KernelProduct
from regard.kernels._panels import panel_of
from regard.kernels._target import Target, here

# Entries 4, 8, 16, 32 and 64 apart are mixed.
_ORDER: Final = 32
# Those of 1.5 x 2^23 in float32.
_BITS: Final = 0x4B400000


class Int8Product(KernelProduct):
    """x -> x W^T + bias, with codes of 8 bits, and a scale for each 128 entries of a row.

    Entries far above the others would leave these no codes. So each block of 128 is multiplied by
    B = H (x) I_4 first, where H is the Hadamard matrix of order 32; since B B^T = 32 I, it is enough to do
    the same to the weights, and to divide by 32. With u = x B and w = W B / 32, and for each block k

        s_ik = max_j |u_ij| / 127,  a_ij = round(u_ij / s_ik)
        t_ok = max_j |w_oj| / 127,  c_oj = round(w_oj / t_ok)
        y_io = b_o + sum over k of s_ik t_ok (sum over j in k of a_ij c_oj)

    The inner sums are of whole numbers and exact. A row's numbers are the same whatever else is in the batch.
    What rounding does to y has, of rows and weights without a pattern, some 0.9 percent of its norm.

    Args:
        weight: float32 (width, depth), on the CPU: depth a multiple of 128, width of 16, or of 32 on
            processors with AVX-512.
        bias: float32 (width,).

    Source: codes of 8 bits with a scale for each row and column: Dettmers et al. 2022, arXiv 2208.07339,
    section 2.1. Hadamard matrices against entries that stand out: Ashkboos et al. 2024 (QuaRot),
    arXiv 2404.00456, section 4.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        target = here()
        panel = panel_of(target)
        width, depth = weight.shape
        turned = weight.detach().float().reshape(-1, BLOCK) @ _mixing() / _ORDER
        scales = turned.abs().amax(dim=1, keepdim=True) / LARGEST
        codes = (turned / torch.where(scales == 0, 1.0, scales)).round_()
        # Activations have 128 for 0: what that adds is taken off from the start. The sums stay below 2^22,
        # and become the lowest bits of a float.
        begin = _BITS - (128 * codes.sum(dim=1)).to(torch.int32)
        panels = (width // panel, panel, depth // BLOCK)
        # Column after column of a panel, four codes of each: what one instruction multiplies.
        fours = codes.to(torch.int8).view(torch.int32).view(*panels, BLOCK // 4).permute(0, 2, 3, 1)
        of_panels = (begin.view(panels), scales.float().view(torch.int32).view(panels))
        parts = [each.transpose(1, 2).unsqueeze(2) for each in of_panels]
        weights = torch.cat([*parts, fours], dim=2).contiguous()
        super().__init__(_product(target), [weights], width, depth, bias)

    @staticmethod
    def takes(weight: Tensor) -> bool:
        """Whether the weight's sizes are those that the kernels know."""
        width, depth = weight.shape
        return width % panel_of(here()) == 0 and depth % BLOCK == 0

    def _room(self, rows: int) -> tuple[Tensor, Tensor]:
        blocks = self._depth // BLOCK
        return torch.empty(rows, self._depth, dtype=torch.uint8), torch.empty(rows, blocks, 2)


@cache
def _product(target: Target) -> Callable[..., None]:
    """The kernel; compiled once a process, which takes some 0.1 s."""
    return compiled(lambda: kernels(target), "product", *[ADDRESS] * 5, NUMBER, ADDRESS, *[NUMBER] * 6)


@cache
def _mixing() -> Tensor:
    """(128, 128): H (x) I_4, without the root."""
    hadamard = torch.ones(1, 1)
    while len(hadamard) < _ORDER:
        hadamard = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), hadamard)
    return torch.kron(hadamard, torch.eye(BLOCK // _ORDER))
