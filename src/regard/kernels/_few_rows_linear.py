"""A linear map of the few rows that a decoder has at a time, at the speed of memory."""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels._compiled import ADDRESS, compiled
from regard.kernels._few_rows import BFLOAT16, FLOAT32, INT8, JOB, PARTS, kernels
from regard.kernels._target import Target, here

MOST_ROWS: Final = 64
"""More rows go to torch. (Beyond 16 the time is that of computing; torch's product takes twice as long on an
AMD Zen 5, also of 128 rows. On other processors it may do better.)"""

_STORED: Final = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.int8: INT8}
_LARGEST: Final = 127
# Weights are widened so many at a time, 8 MB: larger pieces go through the system every time.
_ENTRIES: Final = 2**21

_Job = ctypes.c_int64 * len(JOB)


class FewRowsLinear(nn.Module):
    """y = x W^T + b in float32, W as it is or stored in fewer bits.

        bfloat16    W rounded to 8 bits of significand; x stays as it is
        int8        t_o = max_j |W_oj| / 127,  W_oj = t_o round(W_oj / t_o)

    Up to `MOST_ROWS` rows go to a kernel that reads every weight once, in all threads of torch, and more to
    torch. In float32 the weight is the one that was handed in, not a copy; where it lies transposed, as of
    GPT-2's files, it is laid out anew in its own parameter, once.

    Args:
        linear: in float32, on the CPU, one that this `takes`.
        stored: torch.float32, torch.bfloat16 or torch.int8.

    Example:
        >>> linear = nn.Linear(64, 5).requires_grad_(False)
        >>> x = torch.randn(3, 64)
        >>> torch.allclose(FewRowsLinear(linear, torch.float32)(x), linear(x), atol=1e-5)
        True

    Source: codes of 8 bits with a scale for each row: Dettmers et al. 2022, arXiv 2208.07339, section 2.1.
    """

    def __init__(self, linear: "nn.Linear | FewRowsLinear", stored: torch.dtype) -> None:
        super().__init__()
        self.in_features: int = linear.in_features
        self.out_features: int = linear.out_features
        weight: Tensor = linear.weight
        self.bias: Tensor | None = linear.bias
        self.stored = stored
        self.weight: Tensor  # in int8 there is none, so that nobody takes codes for weights
        self.codes: Tensor
        self.scales: Tensor | None = None
        if stored == torch.int8:
            wide = weight.detach()
            self.scales = wide.abs().amax(dim=1).clamp_(min=torch.finfo(torch.float32).tiny) / _LARGEST
            self.codes = (wide / self.scales[:, None]).round_().to(torch.int8).contiguous()
        else:
            if stored == torch.float32 and not weight.is_contiguous():
                weight.data = weight.data.contiguous()
            self.weight = weight if stored == torch.float32 else weight.detach().to(stored).contiguous()
        self._base = torch.zeros(self.out_features) if self.bias is None else self.bias.detach()
        # Parameters of modules are slow to ask for; these keep their memory alive.
        read = self.codes if stored == torch.int8 else self.weight.detach()
        self._kept = [read, self._base if self.scales is None else self.scales, self._base]
        self._addresses = [each.data_ptr() for each in self._kept]
        self._kernel = _compiled(here(), stored)

    @staticmethod
    def takes(linear: "nn.Linear | FewRowsLinear") -> bool:
        """Whether its sizes and its type are those that the kernels know."""
        if isinstance(linear, FewRowsLinear) and linear.stored != torch.float32:
            return False
        weight = linear.weight
        fits = weight.dtype == torch.float32 and weight.device.type == "cpu"
        return fits and linear.in_features % (PARTS * here().lanes) == 0

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features), float32."""
        rows = x.numel() // self.in_features
        if not 0 < rows <= MOST_ROWS or (torch.is_grad_enabled() and self._wants_gradient(x)):
            return self._by_torch(x)
        assert x.dtype == torch.float32, x.dtype  # the kernel gets nothing but addresses
        x = x.contiguous()
        out = torch.empty(*x.shape[:-1], self.out_features)
        sizes = rows, self.out_features, self.in_features
        job = _Job(0, x.data_ptr(), *self._addresses, out.data_ptr(), *sizes)
        _in_threads()(self._kernel, job, torch.get_num_threads(), 0)
        return out

    def _wants_gradient(self, x: Tensor) -> bool:
        return x.requires_grad or (self.stored == torch.float32 and self.weight.requires_grad)

    def _by_torch(self, x: Tensor) -> Tensor:
        if self.stored == torch.float32:
            return F.linear(x, self.weight, self.bias)
        out = x.new_empty(*x.shape[:-1], self.out_features)
        for start in range(0, self.out_features, step := max(1, _ENTRIES // self.in_features)):
            part = slice(start, start + step)
            wide = self._kept[0][part].float()
            wide = wide if self.scales is None else wide.mul_(self.scales[part, None])
            out[..., part] = F.linear(x, wide, self._base[part])
        return out


@cache
def _compiled(target: Target, stored: torch.dtype) -> int:
    """The kernel's address; compiled once a process, which takes some 0.1 s."""
    made: Any = compiled(lambda: kernels(target, _STORED[stored]), "product", ADDRESS)
    return ctypes.cast(made, ctypes.c_void_p).value or 0


@cache
def _in_threads() -> Callable[..., None]:
    """call(function, its argument, threads, 0) in the threads that torch keeps; in one, where it has others.

    Threads of our own would wait for a core while torch's still look for work.
    """
    own = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    if not own:
        return lambda function, job, threads, flags: ctypes.CFUNCTYPE(None, ADDRESS)(function)(job)
    parallel = ctypes.CDLL(str(own[0])).GOMP_parallel
    parallel.argtypes, parallel.restype = [ADDRESS, ADDRESS, ctypes.c_uint, ctypes.c_uint], None
    call: Callable[..., None] = parallel
    return call
