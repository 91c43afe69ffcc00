"""The scores of one head in float64: what is a product, how a cap scales it, and what a bias adds."""

import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_scores
from regard.models import Kind
from regard.tracing.record import Trace


class Scores:
    """score = ratio factor q . k + bias, at any rows over all keys; -inf where the mask forbids.

    Attributes:
        q, k: float64 (queries, head_dim) and (keys, head_dim), as they enter the product.
        factor: the scale.
    """

    def __init__(self, trace: Trace, layer: int, head: int, kind: Kind) -> None:
        whole: AttentionInputs = trace.attention_of(layer, kind).inputs
        whole.require_scores()
        one = whole.head(head)
        # float64, so that sums of parts agree with the score to rounding.
        self._inputs = one.changed(q=one.q.double(), k=one.k.double())
        self.q, self.k, self.factor = self._inputs.q[0, 0], self._inputs.k[0, 0], one.factor

    def rows(self, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The scores, ratios and biases of some queries, (rows, keys) each."""
        inputs, columns = self._inputs, torch.arange(len(self.k), device=self.k.device)
        scores = attention_scores(inputs, at, columns)[0, 0]
        ratios, bias = torch.ones_like(scores), torch.zeros_like(scores)
        # tanh is nonlinear: its ratio at the score is frozen, as the scale of a norm is.
        if (cap := inputs.softcap) is not None:
            products = self.factor * (self.q[at] @ self.k.mT)
            ratios = torch.where(products == 0, 1.0, cap * torch.tanh(products / cap) / products)
        if inputs.bias is not None:
            assert not isinstance(inputs.bias, Tensor), "of one head it is an object"
            bias += inputs.bias.block(at, columns)[0, 0]
        return scores, ratios, bias
