"""GPT-2: pre-norm decoder layers over learned positions."""

from torch import nn

from regard.blocks import (
    Embeddings,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    Stack,
)
from regard.core import Causal
from regard.models._heads import decoder_head
from regard.models._inputs import check_sizes
from regard.models._transformer import Transformer
from regard.models.gpt2._config import Gpt2Config
from regard.positions import LearnedPositions


def build(config: Gpt2Config) -> Transformer:
    """A decoder that predicts the next token.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> build(config)(torch.tensor([[3, 1, 4]])).logits.shape
        torch.Size([1, 3, 13])

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
    """
    check_sizes(config)
    embeddings = Embeddings(
        config.vocab_size,
        config.d_model,
        positions=LearnedPositions(config.max_seq_len, config.d_model),
        dropout_p=config.embedding_dropout_p,
    )
    pattern = Pattern(mask=Causal())
    stack = Stack(
        embeddings,
        [_layer(config, index) for index in range(config.num_layers)],
        patterns=[pattern] * config.num_layers,
        norm=_norm(config),
    )
    return Transformer(
        config, decoder=stack, head=decoder_head(config, embeddings.tokens, of_tokens="labels")
    )


def _layer(config: Gpt2Config, index: int) -> EncoderLayer:
    scale = max(1, config.d_model // config.num_heads) ** -0.5 if config.scale_by_head_dim else 1.0
    if config.scale_by_layer:
        scale /= index + 1
    return EncoderLayer(
        MultiHeadAttention(
            config.d_model, config.num_heads, scale=scale, dropout_p=config.attention_dropout_p
        ),
        FeedForward(config.d_model, config.d_ff, activation=config.activation),
        attention_residual=PreNorm(_norm(config), dropout_p=config.dropout_p),
        ffn_residual=PreNorm(_norm(config), dropout_p=config.dropout_p),
    )


def _norm(config: Gpt2Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)
