"""BART: an encoder and a decoder over learned or sinusoidal positions, with norms after or before."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from regard.blocks import (
    CountFrom,
    DecoderLayer,
    Embeddings,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Pattern,
    PostNorm,
    PreNorm,
    Stack,
)
from regard.core import Causal
from regard.models._encoder_decoder import Parts
from regard.models._heads import EndClassifier, Head, LanguageModelHead, output_layer
from regard.models._inputs import check_sizes
from regard.models._transformer import Transformer
from regard.models.bart._config import BartConfig
from regard.positions import LearnedPositions, SinusoidalPositions

# The first two rows of the table of learned positions are never read: fairseq kept them for padding.
_FIRST_POSITION = 2


def build(config: BartConfig) -> Transformer:
    """An encoder-decoder from text to text.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = BartConfig(vocab_size=13, decoder_vocab_size=13, d_model=6, num_layers=1, d_ff=11,
        ...                     num_decoder_layers=2, num_heads=2, num_decoder_heads=3, d_decoder_ff=7)
        >>> output = build(config)(torch.tensor([[3, 1, 4]]), decoder_token_ids=torch.tensor([[2, 5]]))
        >>> output.logits.shape
        torch.Size([1, 2, 13])

    Source: Lewis et al. 2020, arXiv 1910.13461; mBART: Liu et al. 2020, arXiv 2001.08210; Marian:
    Junczys-Dowmunt et al. 2018, arXiv 1804.00344.
    """
    check_sizes(config)
    tokens = nn.Embedding(config.vocab_size, config.d_model)
    targets = tokens
    if not config.share_embeddings:
        targets = nn.Embedding(config.decoder_vocab_size, config.d_model)
    encoder = _parts(config, config.num_heads, config.d_ff).encoder_layers(config.num_layers)
    parts = _parts(config, config.num_decoder_heads, config.d_decoder_ff)
    return Transformer(
        config,
        encoder=_stack(config, tokens, encoder, Pattern()),
        decoder=_stack(
            config, targets, parts.decoder_layers(config.num_decoder_layers), Pattern(mask=Causal())
        ),
        head=_head(config, targets),
        start_id=config.decoder_start_token_id,
    )


def _parts(config: BartConfig, num_heads: int, d_ff: int) -> Parts:
    residual = PreNorm if config.norm_first else PostNorm
    return Parts(
        attention=lambda: MultiHeadAttention(config.d_model, num_heads, dropout_p=config.attention_dropout_p),
        ffn=lambda: FeedForward(
            config.d_model, d_ff, activation=config.activation, dropout_p=config.activation_dropout_p
        ),
        residual=lambda: residual(_norm(config), dropout_p=config.dropout_p),
    )


def _stack(
    config: BartConfig,
    tokens: nn.Embedding,
    layers: Sequence[EncoderLayer | DecoderLayer],
    pattern: Pattern,
) -> Stack:
    positions: nn.Module
    if not config.has_sinusoids:
        positions = LearnedPositions(config.max_seq_len + _FIRST_POSITION, config.d_model)
    elif config.stores_positions:
        positions = LearnedPositions(config.max_seq_len, config.d_model).requires_grad_(False)
    else:
        positions = SinusoidalPositions(config.max_seq_len, config.d_model, layout="half")
    embeddings = Embeddings(
        tokens.num_embeddings,
        config.d_model,
        tokens=tokens,
        positions=positions,
        norm=_norm(config) if config.has_embedding_norm else None,
        scale=math.sqrt(config.d_model) if config.scale_embedding else 1.0,
        dropout_p=config.dropout_p,
    )
    return Stack(
        embeddings,
        layers,
        patterns=[pattern] * len(layers),
        norm=_norm(config) if config.norm_first else None,
        numbering=CountFrom(0 if config.has_sinusoids else _FIRST_POSITION),
    )


def _norm(config: BartConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


def _head(config: BartConfig, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "language-model":
            output = output_layer(tokens, is_tied=config.tie_word_embeddings)
            bias = torch.zeros(1, tokens.num_embeddings) if config.has_logits_bias else None
            return LanguageModelHead(output, bias=bias)
        case "sequence":
            return EndClassifier(
                config.d_model,
                config.num_labels,
                end_id=config.eos_token_id,
                start_id=config.decoder_start_token_id,
                pad_id=config.pad_token_id,
                dropout_p=config.classifier_dropout_p,
            )
    return None
