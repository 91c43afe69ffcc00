"""What DeBERTa has in other places than other encoders: a projection, a convolution, and a head."""

from functools import partial

import torch
from torch import Tensor, nn

from regard.blocks import EncoderLayer, FeedForward, PostNorm, activation_named
from regard.core import Bias, Mask, Padding, Segments, Taps
from regard.core.errors import InputError
from regard.models._heads import Head, MaskedLMHead, SequenceClassifier
from regard.models.deberta._attention import DisentangledAttention
from regard.positions import Rotation


class ProjectedNorm(nn.LayerNorm):
    """norm(W x): embeddings of another size than the layers have are brought to it before their norm.

    Args:
        d_embedding: size of the embeddings.
        d_model: size of the layers' vectors.
        eps: added to the variance.
    """

    def __init__(self, d_embedding: int, d_model: int, *, eps: float) -> None:
        super().__init__(d_model, eps=eps)
        self.projection = nn.Linear(d_embedding, d_model, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """(..., d_embedding) -> (..., d_model)."""
        return super().forward(self.projection(input))


class ConvolvedLayer(EncoderLayer):
    """norm(layer(x) + activation(convolution(x))): an encoder layer with a convolution beside it.

    Padding counts as zeros to the convolution, which sees the tokens around each, and comes out as zeros.

    Args:
        attention, ffn, attention_residual, ffn_residual: as in `EncoderLayer`.
        convolution: over the positions, of an odd kernel that keeps their number.
        activation: a name in `regard.blocks.ACTIVATIONS`.
        norm: of the sum.
        dropout_p: on the convolution, in training.

    Taps:
        as `EncoderLayer`; output is after the convolution.

    Source: He et al. 2021, arXiv 2006.03654, section "Scale up to 1.5 billion parameters".
    """

    def __init__(
        self,
        attention: DisentangledAttention,
        ffn: FeedForward,
        *,
        attention_residual: PostNorm,
        ffn_residual: PostNorm,
        convolution: nn.Conv1d,
        activation: str,
        norm: nn.LayerNorm,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__(attention, ffn, attention_residual=attention_residual, ffn_residual=ffn_residual)
        self.convolution, self.convolution_norm = convolution, norm
        self.convolution_activation = activation_named(activation)
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        rotation: Rotation | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """(batch, positions, d_model) -> the same shape.

        Raises:
            InputError: several texts in a row, which the convolution would mix.
        """
        parts = () if mask is None else mask.parts()
        if any(isinstance(part, Segments) for part in parts):
            raise InputError(
                "mask must not hold Segments: this model's convolution sees the tokens around each, also "
                "those of the next text. Give the texts as rows of their own."
            )
        paddings = [part.real.expand(x.shape[:2]) for part in parts if isinstance(part, Padding)]
        real = torch.stack(paddings).all(dim=0)[:, :, None] if paddings else None
        x = x if taps is None else taps.offer("input", x)
        convolved = self._convolve(x, real)
        attend = partial(
            self.attention,
            mask=mask,
            bias=bias,
            rotation=rotation,
            taps=None if taps is None else taps.at("attention"),
        )
        x = self.attention_residual(x, attend)
        x = self.ffn_residual(x, partial(self.ffn, taps=None if taps is None else taps.at("ffn")))
        x = self.convolution_norm(x + convolved)
        if real is not None:
            x = torch.where(real, x, 0.0)
        return x if taps is None else taps.offer("output", x)

    def _convolve(self, x: Tensor, real: Tensor | None) -> Tensor:
        if real is not None:
            x = torch.where(real, x, 0.0)
        convolved = self.convolution(x.mT).mT
        return self.convolution_activation(self.dropout(convolved))


class ContextClassifier(SequenceClassifier):
    """A `SequenceClassifier` with dropout before its first layer as well.

    Args:
        labels, hidden, activation, dropout_p: as there.
        input_dropout_p: probability of dropping an entry of what it reads in training.
    """

    def __init__(
        self,
        labels: nn.Linear,
        *,
        hidden: nn.Linear,
        activation: str,
        dropout_p: float = 0.0,
        input_dropout_p: float = 0.0,
    ) -> None:
        super().__init__(labels, hidden=hidden, activation=activation, dropout_p=dropout_p)
        self.input_dropout = nn.Dropout(input_dropout_p)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, num_labels)."""
        first = self.input_dropout(state[:, :1])
        return super().forward(first, pooled=pooled, token_ids=token_ids, mask=mask)


class TrainedHead(Head):
    """The masked-LM head that DeBERTa was trained with, whose output is always the table of embeddings.

    Its layers are those of the other one under other names on disk.

    Args:
        predictions: the layers.
    """

    def __init__(self, predictions: MaskedLMHead) -> None:
        super().__init__()
        self.predictions = predictions

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, N, vocab_size)."""
        logits: Tensor = self.predictions(state, pooled=pooled, token_ids=token_ids, mask=mask)
        return logits
