"""Linear attention: the features are those of each number by itself."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import elu

from regard.blocks.attentions._features import FeatureKernel, Features


@dataclass(frozen=True)
class LinearAttention(FeatureKernel):
    """Weights in proportion to phi(q) . phi(k), with phi(x) = elu(x) + 1: as many features as dimensions.

        context_i = phi(q_i) S / (phi(q_i) z),    S = sum_j phi(k_j) v_j^T,  z = sum_j phi(k_j)

    Not the softmax, and no estimate of it: an attention of its own, to be trained with. Its weights are true
    weights, at least 0 with a sum of 1, and a trace shows them. O(N d^2) time; causal attention has a state
    of d x (d + 1) numbers a head, by which a token costs the same however many came before. The scale is not
    used.

    Example:
        >>> import torch
        >>> from regard.blocks import MultiHeadAttention
        >>> attention = MultiHeadAttention(6, 2, kernel=LinearAttention())
        >>> attention(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Katharopoulos et al. 2020, arXiv 2006.16236, equations 5 and 7; causal: equations 9 to 12; as a
    recurrent network: equations 16 to 20.
    """

    name: ClassVar[str] = "linear attention"

    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        del scale
        return elu(q) + 1.0

    def of_keys(self, k: Tensor, scale: float) -> Features:
        del scale
        return Features(elu(k) + 1.0, k.new_zeros(*k.shape[:3], 1))
