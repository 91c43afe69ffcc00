"""What an encoder works out beside its products and norms: attention."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F


class Arithmetic:
    """By torch."""

    def attend(self, qkv: Tensor, context: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """context = softmax(q k^T) v, for each head of each text.

        Args:
            qkv: float32 (tokens, 3, heads, head_dim), without gaps, the queries scaled.
            context: (tokens, heads x head_dim), without gaps; written and given back.
            shape: for each run how many texts, and how many tokens each of them has.
        """
        _, _, heads, head_dim = qkv.shape
        start = 0
        for rows, length in shape:
            here = slice(start, start + rows * length)
            q, k, v = qkv[here].view(rows, length, 3, heads, head_dim).permute(2, 0, 3, 1, 4)
            joined = F.scaled_dot_product_attention(q, k, v, scale=1.0).transpose(1, 2)
            context[here].view(rows, length, heads, head_dim).copy_(joined)
            start += rows * length
        return context
