"""What surrounds a sublayer: the residual connection, dropout, and a norm before or after."""

from collections.abc import Callable

from torch import Tensor, nn


class PostNorm(nn.Module):
    """norm(x + dropout(sublayer(x))): the original Transformer, BERT.

    Args:
        d_model: size of the vectors.
        norm_eps: added to the variance by the layer norm.
        dropout_p: probability of dropping an entry of the sublayer's output in training.

    Example:
        >>> import torch
        >>> PostNorm(4)(torch.ones(1, 4), lambda x: torch.tensor([[0.0, 2.0, 0.0, 2.0]])).round().tolist()
        [[-1.0, 1.0, -1.0, 1.0]]

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.1.
    """

    def __init__(self, d_model: int, *, norm_eps: float = 1e-5, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        normed: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return normed


class PreNorm(nn.Module):
    """x + dropout(sublayer(norm(x))): GPT-2 and later; the stack needs a norm after its last layer.

    Args:
        d_model, norm_eps, dropout_p: as in `PostNorm`.

    Example:
        >>> import torch
        >>> PreNorm(4)(torch.ones(1, 4), lambda x: x).tolist()
        [[1.0, 1.0, 1.0, 1.0]]

    Source: Xiong et al. 2020, arXiv 2002.04745, figure 1(b).
    """

    def __init__(self, d_model: int, *, norm_eps: float = 1e-5, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        output: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return output


Residual = PostNorm | PreNorm
"""What can surround a sublayer."""
