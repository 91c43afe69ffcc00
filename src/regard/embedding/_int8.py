"""Products in int8: weights of 8 bits and their scale a row, activations too, sums that are exact."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from regard.core.errors import InputError
from regard.embedding._engine import Engine, NetworkEngine
from regard.embedding._linears import with_linears
from regard.models import Transformer

_ACTIVATIONS: Final = 127
# Processors without VNNI add two products of bytes in 16 bits, 255 x 64 x 2 at most; 127 would overflow them.
_WEIGHTS: Final = 63


class Int8Linear(nn.Module):
    """A linear map whose product is worked out in int8.

        s_i = max_j |x_ij| / 127,  a_ij = round(x_ij / s_i)
        t_o = max_j |W_oj| / 63,   w_oj = round(W_oj / t_o)
        y_io = s_i t_o sum_j a_ij w_oj + b_o

    The sums are of whole numbers and exact, and every row has its own scale: what else is in a batch does not
    change a bit of a row.

    Args:
        linear: in float32, on the CPU.

    Example:
        >>> linear = nn.Linear(2, 1, bias=False).requires_grad_(False)
        >>> linear.weight[:] = torch.tensor([[1.0, 0.25]])  # 63 and round(15.75) = 16 times 1 / 63
        >>> Int8Linear(linear)(torch.tensor([[127.0, 0.0], [0.0, 63.0]])).round(decimals=3)
        tensor([[127.],
                [ 16.]])

    Source: the scheme is that of Dettmers et al. 2022 (LLM.int8()), arXiv 2208.07339, section 2.1;
    the product is oneDNN's, by `torch.ops.onednn.qlinear_pointwise`, which torch compiles its own quantised
    models to.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scales = _scales(weight, _WEIGHTS)
        self._scales = scales[:, 0].contiguous()
        self._zeros = torch.zeros(len(weight), dtype=torch.int32)
        self._packed = torch.ops.onednn.qlinear_prepack(torch.round(weight / scales).to(torch.int8), None)
        self._bias = None if linear.bias is None else linear.bias.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), float32."""
        rows = x.reshape(-1, x.shape[-1])
        scales = _scales(rows, _ACTIVATIONS)
        # From 0 to 255, with 128 for 0: the kernel would have to move codes with a sign itself.
        codes = (rows * scales.reciprocal()).round_().to(torch.int8).view(torch.uint8).add_(128)
        # Of activations the kernel knows one scale for all rows: it gets 1, and the rows get theirs after it.
        sums = torch.ops.onednn.qlinear_pointwise(
            codes,
            1.0,
            128,
            self._packed,
            self._scales,
            self._zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        y = sums.mul_(scales) if self._bias is None else torch.addcmul(self._bias, sums, scales)
        return y.view(*x.shape[:-1], -1)


def _scales(rows: Tensor, most: int) -> Tensor:
    """(rows, 1): what a code is multiplied by; 1 of a row of zeros."""
    largest = torch.maximum(rows.amax(-1, keepdim=True), rows.amin(-1, keepdim=True).neg_())
    return torch.where(largest > 0, largest, float(most)).div_(most)


def in_int8(network: Transformer, layers: Sequence[int]) -> Engine:
    """An engine whose linear layers, in the stack that embeds, are `Int8Linear`; the rest is float32.

    Raises:
        InputError: this torch has no such product, or the processor does not give its sums exactly.
    """
    if not _is_exact():
        raise InputError(
            "dtype must be float32 or bfloat16 on this machine: torch has no exact product in int8 for it."
        )
    return NetworkEngine(with_linears(network, Int8Linear), layers)


def _is_exact() -> bool:
    """Whether the largest codes of all give the largest sum of all, and not what 16 bits hold of it."""
    try:
        extreme = Int8Linear(nn.Linear(96, 1, bias=False).requires_grad_(False).apply(_ones))
        given = extreme(torch.tensor([[127.0], [-127.0]]).expand(2, 96))
    except (AttributeError, RuntimeError):  # oneDNN is not in every torch
        return False
    return torch.allclose(given, torch.tensor([[127.0 * 96], [-127.0 * 96]]), rtol=1e-5)


def _ones(linear: nn.Module) -> None:
    nn.init.ones_(linear.weight)  # type: ignore[arg-type]
