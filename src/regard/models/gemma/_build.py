"""Gemma: decoder layers between two norms each, local and global in turn, with capped scores."""

import math

from regard.blocks import (
    Embeddings,
    EncoderLayer,
    GatedFeedForward,
    MultiHeadAttention,
    Pattern,
    RMSNorm,
    SandwichNorm,
    Stack,
)
from regard.core import Causal, Mask, Window
from regard.core.errors import InputError
from regard.models._heads import decoder_head
from regard.models._inputs import check_sizes
from regard.models._layer_types import FULL, SLIDING
from regard.models._transformer import Transformer
from regard.models.gemma._config import GemmaConfig


def build(config: GemmaConfig) -> Transformer:
    """A decoder that predicts the next token; a bidirectional one is an encoder in all but name.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> from regard.positions import Rotary
        >>> config = GemmaConfig(
        ...     vocab_size=13, d_model=10, num_layers=1, layer_types=("sliding_attention",), num_heads=6,
        ...     num_kv_heads=3, head_dim=2, d_ff=11, rope={"sliding_attention": Rotary(2, base=10000.0)})
        >>> build(config)(torch.tensor([[3, 1, 4]])).logits.shape
        torch.Size([1, 3, 13])

    Source: Gemma Team 2024, arXiv 2408.00118, section 2; Gemma Team 2025, arXiv 2503.19786, section 2.1.
    """
    check_sizes(config)
    if config.query_scalar <= 0:
        raise InputError(f"query_scalar must be greater than 0; got {config.query_scalar}.")
    embeddings = Embeddings(config.vocab_size, config.d_model, scale=math.sqrt(config.d_model))
    masks = {FULL: None if config.is_bidirectional else Causal(), SLIDING: _window(config)}
    patterns = {kind: Pattern(mask=masks[kind], rotary=rotary) for kind, rotary in config.rope.items()}
    stack = Stack(
        embeddings,
        [_layer(config) for _ in range(config.num_layers)],
        patterns=[patterns[kind] for kind in config.layer_types],
        norm=_norm(config, config.d_model),
    )
    return Transformer(
        config, decoder=stack, head=decoder_head(config, embeddings.tokens, softcap=config.final_softcap)
    )


def _window(config: GemmaConfig) -> Mask:
    if config.is_bidirectional:
        return Window(left=config.sliding_window // 2, right=config.sliding_window // 2)
    return Causal() & Window(left=config.sliding_window - 1)


def _layer(config: GemmaConfig) -> EncoderLayer:
    return EncoderLayer(
        MultiHeadAttention(
            config.d_model,
            config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            use_bias=config.attention_bias,
            scale=config.query_scalar**-0.5,
            softcap=config.softcap,
            q_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            k_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            dropout_p=config.attention_dropout_p,
        ),
        GatedFeedForward(config.d_model, config.d_ff, activation=config.activation),
        attention_residual=_residual(config),
        ffn_residual=_residual(config),
    )


def _residual(config: GemmaConfig) -> SandwichNorm:
    return SandwichNorm(_norm(config, config.d_model), _norm(config, config.d_model))


def _norm(config: GemmaConfig, size: int) -> RMSNorm:
    return RMSNorm(size, eps=config.norm_eps, offset=1.0)
