"""What BART and T5 share: the layers of an encoder, and of a decoder beside it, made of the same parts."""

from collections.abc import Callable
from dataclasses import dataclass

from regard.blocks import (
    DecoderLayer,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    Residual,
    SelfAttentionLayer,
)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Makers of the parts of layers.

    Args:
        attention, ffn, residual: each called for a new part.
    """

    attention: Callable[[], MultiHeadAttention]
    ffn: Callable[[], FeedForward | GatedFeedForward]
    residual: Callable[[], Residual]

    def encoder_layers(self, count: int) -> list[SelfAttentionLayer]:
        """Layers of self-attention and feed-forward."""
        return [
            SelfAttentionLayer(
                self.attention(),
                self.ffn(),
                attention_residual=self.residual(),
                ffn_residual=self.residual(),
            )
            for _ in range(count)
        ]

    def decoder_layers(self, count: int) -> list[DecoderLayer]:
        """Layers with cross-attention in between."""
        return [
            DecoderLayer(
                self.attention(),
                self.attention(),
                self.ffn(),
                attention_residual=self.residual(),
                cross_attention_residual=self.residual(),
                ffn_residual=self.residual(),
            )
            for _ in range(count)
        ]
