"""What DeBERTa has in other places than other encoders: a projection, a convolution, and a head."""

import torch
from torch import Tensor, nn

from regard.blocks import FeedForward, LayerState, Linear, PostNorm, SelfAttentionLayer, activation_named
from regard.core import Bias, Mask, Segments, Taps, padding_of
from regard.core.errors import InputError
from regard.models._heads import Head, LastState, MaskedLMHead
from regard.models.families.deberta._attention import DisentangledAttention
from regard.positions import Rotation


class ProjectedNorm(nn.LayerNorm):
    """norm(W x): embeddings of another size than the layers have are brought to it before their norm."""

    def __init__(self, d_embedding: int, d_model: int, *, eps: float) -> None:
        super().__init__(d_model, eps=eps)
        self.projection = Linear(d_embedding, d_model, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """(..., d_embedding) -> (..., d_model)."""
        return super().forward(self.projection(input))


class ConvolvedLayer(SelfAttentionLayer):
    """norm(layer(x) + activation(convolution(x))): an encoder layer with a convolution beside it.

    Padding counts as zeros to the convolution, which sees the tokens around each, and comes out as zeros. Its
    taps are those of `SelfAttentionLayer`; output is after the convolution.

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

    def sublayers(
        self,
        x: Tensor,
        *,
        mask: Mask | None,
        bias: Bias | Tensor | None,
        rotation: Rotation | None,
        state: LayerState | None,
        taps: Taps | None,
    ) -> Tensor:
        """(batch, positions, d_model) -> the same; refuses rows of several texts, and a state."""
        if state is not None:
            raise InputError("state must be None: this layer's convolution sees the tokens that follow.")
        if mask is not None and any(isinstance(part, Segments) for part in mask.parts()):
            raise InputError(
                "mask must not hold Segments: this model's convolution sees the tokens around each, also "
                "those of the next text. Give the texts as rows of their own."
            )
        padding = padding_of(mask)
        real = None if padding is None else padding[:, :, None]
        convolved = self._convolve(x, real)
        x = super().sublayers(x, mask=mask, bias=bias, rotation=rotation, state=state, taps=taps)
        x = self.convolution_norm(x + convolved)
        return x if real is None else torch.where(real, x, 0.0)

    def _convolve(self, x: Tensor, real: Tensor | None) -> Tensor:
        if real is not None:
            x = torch.where(real, x, 0.0)
        convolved = self.convolution(x.mT).mT
        return self.convolution_activation(self.dropout(convolved))


class TrainedHead(Head):
    """The masked-LM head that DeBERTa was trained with, whose output is always the table of embeddings.

    Its layers are those of the other one under other names on disk.
    """

    def __init__(self, predictions: MaskedLMHead) -> None:
        super().__init__()
        self.predictions = predictions

    def forward(self, read: LastState) -> Tensor:
        """(batch, N, d_model) -> (batch, N, vocab_size)."""
        logits: Tensor = self.predictions(read)
        return logits
