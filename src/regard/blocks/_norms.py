"""Norms that torch does not have in the form that checkpoints want."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * (offset + weight), the mean over the last axis in float32.

    Args:
        d_model: size of the last axis.
        eps: added to the mean of the squares.
        offset: 0 for T5 and Llama; 1 for Gemma, whose stored weights are the distance from 1.

    Example:
        >>> RMSNorm(2, eps=0.0)(torch.tensor([[3.0, 4.0]])) * 12.5**0.5
        tensor([[3., 4.]], grad_fn=<MulBackward0>)

    Source: Zhang and Sennrich 2019, arXiv 1910.07467, equation 4.
    """

    def __init__(self, d_model: int, *, eps: float = 1e-6, offset: float = 0.0) -> None:
        super().__init__()
        self.eps, self.offset = eps, offset
        self.weight = nn.Parameter(torch.full((d_model,), 1.0 - offset))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same shape."""
        size = (self.weight.shape[0],)
        if not self.offset:
            if x.dtype.itemsize >= 4:
                return functional.rms_norm(x, size, self.weight, self.eps)
            # In half precision the models that have this norm round before they multiply.
            return self.weight * functional.rms_norm(x, size, None, self.eps)
        # Gemma multiplies before it rounds, the others after.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = functional.rms_norm(wide, size, None, self.eps)
        return (normed * (self.offset + self.weight.to(normed.dtype))).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, offset={self.offset}"
