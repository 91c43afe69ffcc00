"""A linear map that is as fast in half precision as the processor allows."""

import platform
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.errors import InputError

# What a processor of the x86 kind needs for products of such numbers; one of them is enough.
_NATIVE = {
    torch.bfloat16: ("avx512_bf16", "amx_bf16", "amx_tile", "avx10_2"),
    torch.float16: ("avx512_fp16", "amx_fp16", "avx10_2"),
}

# One or two rows read the weights and hardly compute: a copy of them costs more than it saves.
_FEWEST_ROWS = 3

# Weights are converted so many at a time, 8 MB in float32: larger pieces go through the system every time.
_ENTRIES = 2**21


class Linear(nn.Linear):
    """y = x W^T + b, for the last axis of x.

    In bfloat16 or float16 on a processor without arithmetic for it, torch's product takes eight times as long
    as in float32. There it is worked out in float32 from the same weights, and rounded once, at the end; so a
    checkpoint that is stored in half precision keeps its size in memory and runs at nearly the speed of
    float32. Only where no gradient is asked for, which would keep the converted weights.

    Example:
        >>> layer = Linear(6, 11).to(torch.bfloat16).requires_grad_(False)
        >>> layer(torch.randn(5, 6).to(torch.bfloat16)).dtype
        torch.bfloat16
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features), in the type of x."""
        if x.dtype in _NATIVE and x.device.type == "cpu" and self._pays(x):
            return self._in_float32(x)
        return F.linear(x, self.weight, self.bias)

    def _pays(self, x: Tensor) -> bool:
        if x.dtype != self.weight.dtype or is_native(x.dtype):
            return False
        if torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad):
            return False
        return x.numel() >= _FEWEST_ROWS * self.in_features

    def _in_float32(self, x: Tensor) -> Tensor:
        wide = x.float()
        bias = None if self.bias is None else self.bias.float()
        step = max(1, _ENTRIES // self.in_features)
        if step >= self.out_features:
            return F.linear(wide, self.weight.float(), bias).to(x.dtype)
        result = x.new_empty(*x.shape[:-1], self.out_features)
        for start in range(0, self.out_features, step):
            part = slice(start, start + step)
            result[..., part] = F.linear(
                wide, self.weight[part].float(), None if bias is None else bias[part]
            )
        return result


class Identity(Linear):
    """y = x, with nothing to learn: a linear map whose matrix is the identity.

    As the projections of `MultiHeadAttention` it gives attention without parameters, q = k = v = x: each
    token becomes the mean of all tokens, weighted by how alike they are to it.

    Args:
        in_features, out_features: the same number.
        bias: False.

    Raises:
        InputError: two sizes, or a bias.

    Example:
        >>> Identity(3, 3, bias=False)(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 2., 3.])
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        if bias or in_features != out_features:
            raise InputError(
                "the identity has no bias (use_bias must be False) and gives as many numbers as it reads; "
                f"got bias={bias}, {in_features} and {out_features}."
            )
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, out_features
        self.register_parameter("bias", None)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The identity matrix, float32 on the CPU."""
        return torch.eye(self.in_features, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        """x."""
        return x


@cache
def is_native(dtype: torch.dtype) -> bool:
    """Whether the processor has arithmetic for this type, as far as torch can tell."""
    if dtype not in _NATIVE or platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    tell = getattr(torch.cpu, "get_capabilities", None)
    if tell is None:
        return True
    has = tell()
    return any(has.get(feature, False) for feature in _NATIVE[dtype])
