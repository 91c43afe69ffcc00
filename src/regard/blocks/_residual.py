"""What surrounds a sublayer: the residual connection, dropout, and norms before or after."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def _dropped(dropout: nn.Dropout, x: Tensor) -> Tensor:
    # To call a module costs time even where it does nothing, which a decoder feels in every token.
    return dropout(x) if dropout.training and dropout.p else x


class PostNorm(nn.Module):
    """norm(x + dropout(sublayer(x))): the original Transformer, BERT.

    Args:
        norm: the norm, such as `nn.LayerNorm(d_model)`.
        dropout_p: probability of dropping an entry of the sublayer's output in training.

    Example:
        >>> import torch
        >>> residual = PostNorm(nn.LayerNorm(4))
        >>> residual(torch.ones(1, 4), lambda x: torch.tensor([[0.0, 2.0, 0.0, 2.0]])).round().tolist()
        [[-1.0, 1.0, -1.0, 1.0]]

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.1.
    """

    def __init__(self, norm: nn.Module, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        normed: Tensor = self.norm(x + _dropped(self.dropout, sublayer(x)))
        return normed


class PreNorm(nn.Module):
    """x + dropout(sublayer(norm(x))): GPT-2 and later; the stack needs a norm after its last layer.

    Args:
        norm, dropout_p: as in `PostNorm`; `RMSNorm` is a norm without a mean.

    Example:
        >>> import torch
        >>> PreNorm(nn.LayerNorm(4))(torch.ones(1, 4), lambda x: x).tolist()
        [[1.0, 1.0, 1.0, 1.0]]

    Source: Xiong et al. 2020, arXiv 2002.04745, figure 1(b).
    """

    def __init__(self, norm: nn.Module, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        output: Tensor = x + _dropped(self.dropout, sublayer(self.norm(x)))
        return output


class SandwichNorm(nn.Module):
    """x + dropout(after(sublayer(before(x)))): Gemma 2 and 3.

    Args:
        before, after: the two norms.
        dropout_p: as in `PostNorm`.

    Example:
        >>> import torch
        >>> SandwichNorm(nn.Identity(), nn.LayerNorm(2))(torch.ones(1, 2), lambda x: x).tolist()
        [[1.0, 1.0]]

    Source: Ding et al. 2021 (CogView), arXiv 2105.13290, section 2.4, "Sandwich-LN".
    """

    def __init__(self, before: nn.Module, after: nn.Module, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.before = before
        self.after = after
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        output: Tensor = x + _dropped(self.dropout, self.after(sublayer(self.before(x))))
        return output


Residual = PostNorm | PreNorm | SandwichNorm
"""What can surround a sublayer."""


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
