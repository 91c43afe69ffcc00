"""What BART and T5 share: layers made of the same parts, and names on disk."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.blocks import (
    DecoderLayer,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    Residual,
    SelfAttentionLayer,
)
from regard.checkpoints import Rename, Shared
from regard.models._heads import EndClassifier


@dataclass(frozen=True, kw_only=True)
# Makers and not modules: every layer needs its own.
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


def end_classifier(config: Any, *, pad_id: int | None) -> EndClassifier:
    """The head of a classifier of texts."""
    return EndClassifier(
        config.d_model,
        config.num_labels,
        end_id=config.eos_token_id,
        start_id=config.decoder_start_token_id,
        pad_id=pad_id,
        dropout_p=config.classifier_dropout_p,
    )


def names_of_attention(theirs: str, ours: str, names: str) -> tuple[Rename, ...]:
    """The names of q, k, v, output and the norm around them; `names` are those on disk, in this order."""
    # Our names, in the order in which `names` has theirs.
    own = (f"{ours}.q", f"{ours}.k", f"{ours}.v", f"{ours}.output", f"{ours}_residual.norm")
    pairs = zip(names.split(), own, strict=True)
    return tuple(Rename(f"{theirs}.{name}.{{part}}", f"{each}.{{part}}") for name, each in pairs)


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
