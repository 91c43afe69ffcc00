"""What BART and T5 share: layers made of the same parts, and names on disk."""

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
from regard.checkpoints import Rename, Shared


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


SHARED_RULES: tuple[Rename | Shared, ...] = (
    Shared(
        "shared.weight",
        ("encoder.embeddings.tokens.weight", "decoder.embeddings.tokens.weight", "head.output.weight"),
    ),
    Rename("lm_head.weight", "head.output.weight"),
    Rename("classification_head.dense.{part}", "head.hidden.{part}"),
    Rename("classification_head.out_proj.{part}", "head.score.{part}"),
    *(
        Rename(f"{stack}.embed_tokens.weight", f"{stack}.embeddings.tokens.weight")
        for stack in ("encoder", "decoder")
    ),
)
"""The table of embeddings and the heads."""
