"""ModernBERT's classifiers, which put the masked-LM head's first layer and norm before the labels."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.blocks import activation_named
from regard.core import Mask, Padding
from regard.models._heads import Head


class Reading(ABC):
    """Which vectors of the last hidden state a classifier reads."""

    @abstractmethod
    def __call__(self, state: Tensor, mask: Mask | None) -> Tensor:
        """(batch, N, d_model) -> (batch, ..., d_model)."""


class EveryPosition(Reading):
    """Each one, for a label a token: (batch, N, d_model)."""

    def __call__(self, state: Tensor, mask: Mask | None) -> Tensor:
        """See `Reading`."""
        del mask
        return state


class FirstPosition(Reading):
    """That of the first position, the [CLS] token: (batch, d_model)."""

    def __call__(self, state: Tensor, mask: Mask | None) -> Tensor:
        """See `Reading`."""
        del mask
        return state[:, 0]


class MeanOfTokens(Reading):
    """The mean over the positions that are not padding: (batch, d_model); zero where there is none.

    Example:
        >>> real = torch.tensor([[True, True, False]])
        >>> MeanOfTokens()(torch.tensor([[[2.0], [4.0], [9.0]]]), Padding(real))
        tensor([[3.]])
    """

    def __call__(self, state: Tensor, mask: Mask | None) -> Tensor:
        """See `Reading`."""
        paddings = [] if mask is None else [part for part in mask.parts() if isinstance(part, Padding)]
        if not paddings:
            return state.mean(dim=1)
        real = torch.stack([part.real.expand(state.shape[:2]) for part in paddings]).all(dim=0)
        total = torch.where(real[:, :, None], state, 0.0).sum(dim=1)
        return total / real.sum(dim=1, keepdim=True).clamp(min=1)


class NormedClassifier(Head):
    """logits = W norm(activation(W_d x + b_d)) + b: a label for the text, or one for each token.

    Args:
        dense: (d_model -> d_model).
        activation: a name in `regard.blocks.ACTIVATIONS`.
        norm: a norm of d_model.
        labels: (d_model -> num_labels).
        reading: which vectors x it reads.
        dropout_p: before `labels`, in training.

    Source: Warner et al. 2024, arXiv 2412.13663; the layers are in their code (`FlexBert`).
    """

    def __init__(
        self,
        dense: nn.Linear,
        activation: str,
        norm: nn.Module,
        labels: nn.Linear,
        *,
        reading: Reading,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        self.dense, self.norm, self.labels = dense, norm, labels
        self.activation = activation_named(activation)
        self.reading = reading
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, num_labels), or (batch, N, num_labels)."""
        del pooled, token_ids
        x = self.norm(self.activation(self.dense(self.reading(state, mask))))
        logits: Tensor = self.labels(self.dropout(x))
        return logits
