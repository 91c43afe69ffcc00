"""Llama: pre-norm decoder layers with RMSNorm, rotary positions, grouped heads and a gated feed-forward."""

from regard.blocks import (
    Embeddings,
    EncoderLayer,
    GatedFeedForward,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    RMSNorm,
    Stack,
)
from regard.core import Causal, Window
from regard.models._heads import decoder_head
from regard.models._inputs import check_sizes
from regard.models._transformer import Transformer
from regard.models.llama._config import LlamaConfig


def build(config: LlamaConfig) -> Transformer:
    """A decoder that predicts the next token.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> from regard.positions import Rotary
        >>> config = LlamaConfig(
        ...     vocab_size=13, d_model=12, num_layers=1, layer_types=("full_attention",), num_heads=6,
        ...     num_kv_heads=3, head_dim=2, d_ff=11, rotary=Rotary(2, base=10000.0))
        >>> build(config)(torch.tensor([[3, 1, 4]])).logits.shape
        torch.Size([1, 3, 13])

    Source: Touvron et al. 2023, arXiv 2302.13971, section 2.2; grouped heads: Ainslie et al. 2023, arXiv
    2305.13245; the window: Jiang et al. 2023 (Mistral), arXiv 2310.06825, section 2; norms of queries and
    keys: Yang et al. 2025 (Qwen 3), arXiv 2505.09388, section 2.
    """
    check_sizes(config)
    embeddings = Embeddings(config.vocab_size, config.d_model)
    window = Causal() if config.sliding_window is None else Causal() & Window(left=config.sliding_window - 1)
    patterns = {
        "full_attention": Pattern(mask=Causal(), rotary=config.rotary),
        "sliding_attention": Pattern(mask=window, rotary=config.rotary),
    }
    stack = Stack(
        embeddings,
        [_layer(config) for _ in range(config.num_layers)],
        patterns=[patterns[kind] for kind in config.layer_types],
        norm=_norm(config, config.d_model),
    )
    return Transformer(config, decoder=stack, head=decoder_head(config, embeddings.tokens))


def _layer(config: LlamaConfig) -> EncoderLayer:
    return EncoderLayer(
        MultiHeadAttention(
            config.d_model,
            config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            use_bias=config.qkv_bias,
            output_bias=config.output_bias,
            q_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            k_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            dropout_p=config.attention_dropout_p,
        ),
        GatedFeedForward(config.d_model, config.d_ff, activation=config.activation, use_bias=config.ffn_bias),
        attention_residual=PreNorm(_norm(config, config.d_model)),
        ffn_residual=PreNorm(_norm(config, config.d_model)),
    )


def _norm(config: LlamaConfig, size: int) -> RMSNorm:
    return RMSNorm(size, eps=config.norm_eps)
