"""Products of linear layers by oneDNN, where they are faster than those of torch.

torch multiplies float32 matrices by MKL, which on AMD's processors computes in half of AVX-512's registers,
oneDNN in all. That gains since Zen 5; Zen 4 computes a register by halves anyway. Elsewhere training by
oneDNN takes longer. Both are float32 to the last bit or two of a sum.
"""

import functools
import platform
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_WORTH_IT = 2**20
"""Multiplications of a product, from which on it pays to make a kernel for its shape."""

_FAMILY, _ZEN_5 = re.compile(r"family\s*:?\s*(\d+)", re.IGNORECASE), 26
_PLAIN = (Tensor, nn.Parameter)


def fastest_products() -> AbstractContextManager[Any]:
    """`Products` on AMD's processors with AVX-512 since Zen 5, and torch's own on others."""
    # Elsewhere it takes longer: the module's docstring says why.
    is_wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    family = _FAMILY.search(about := _about_processor())
    is_zen_5 = "AuthenticAMD" in about and family is not None and int(family[1]) >= _ZEN_5
    return Products() if is_wide and is_zen_5 else nullcontext()


@functools.cache
def _about_processor() -> str:
    """What the system says of the processor: its maker and family, where that is AMD or Intel."""
    linux = Path("/proc/cpuinfo")
    return linux.read_text("utf-8", "replace") if linux.exists() else platform.processor()


class Products(TorchFunctionMode):
    """While this is open, `functional.linear` and its gradients are worked out by oneDNN.

    That holds for dense float32 on a processor, and large products; all else stays as it is. Which of the two
    computes depends on shapes alone, so a run that goes on does so to the same bits.

    Example:
        >>> x, weight = torch.randn(64, 128), torch.randn(256, 128)
        >>> with Products():
        ...     found = functional.linear(x, weight)
        >>> bool((found - x @ weight.T).abs().max() < 1e-4)
        True
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # All other functions go on as they are.
        if function is functional.linear and not kwargs and _is_worth_it(*args):
            return _linear(*args)
        return function(*args, **kwargs)


def _is_worth_it(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    # By shapes and types alone: the choice must be the same whenever a run takes this step again.
    return (
        x.numel() * weight.shape[0] >= _WORTH_IT
        and all(
            type(each) in _PLAIN and each.dtype == torch.float32 and each.device.type == "cpu"
            for each in (x, weight, bias)
            if each is not None
        )
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    )


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left @ right.T + bias, of two matrices.

    A `right` with gaps, such as a slice, is copied: oneDNN would take over a thousand times as long.
    """
    # The operator that torch's own compiler puts in for linear layers.
    made: Tensor = torch.ops.mkldnn._linear_pointwise(left, _dense(right), bias, "none", [], "")
    return made


def _dense(matrix: Tensor) -> Tensor:
    """The matrix or its transpose in row-major order without gaps: itself where it lies so, else a copy."""
    return matrix if matrix.t().is_contiguous() else matrix.contiguous()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    # Reshaped out here: autograd forbids to change in place what a Function returns, if it is a view.
    rows: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return rows.view(*x.shape[:-1], len(weight))


class _Linear(torch.autograd.Function):
    """y = x W^T + b, of rows; dL/dx = g W, dL/dW = g^T x, dL/db = the sum of g over rows, with g = dL/dy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        # g W, then g^T x; what needs no gradient is not worked out.
        of_x = _product(upstream, weight.t()) if ctx.needs_input_grad[0] else None
        of_weight = _product(upstream.t(), x.t()) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, upstream.sum(dim=0) if ctx.needs_input_grad[2] else None
