"""T5: pre-norm stacks with RMSNorm, whose attention knows positions by a learned bias alone."""

from collections.abc import Sequence

from torch import nn

from regard.blocks import (
    DecoderLayer,
    Embeddings,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    RMSNorm,
    Stack,
)
from regard.core import Causal
from regard.models._encoder_decoder import Parts
from regard.models._heads import EndClassifier, Head, LanguageModelHead, output_layer, token_classifier
from regard.models._inputs import check_sizes
from regard.models._transformer import Transformer
from regard.models.t5._config import T5Config
from regard.positions import RelativeBias


def build(config: T5Config) -> Transformer:
    """An encoder-decoder from text to text; or its encoder alone.

    Raises:
        InputError: a size that no network can have.

    Example:
        >>> import torch
        >>> config = T5Config(vocab_size=13, d_model=6, num_layers=1, num_decoder_layers=2, num_heads=2,
        ...                   head_dim=5, d_ff=11)
        >>> output = build(config)(torch.tensor([[3, 1, 4]]), decoder_token_ids=torch.tensor([[0, 5]]))
        >>> output.logits.shape
        torch.Size([1, 2, 13])

    Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1; the gated feed-forward of T5 1.1: Shazeer 2020,
    arXiv 2002.05202.
    """
    check_sizes(config)
    tokens = nn.Embedding(config.vocab_size, config.d_model)
    parts, decoder = _parts(config), None
    if config.has_decoder:
        layers = parts.decoder_layers(config.num_decoder_layers)
        decoder = _stack(config, tokens, layers, Pattern(mask=Causal()), is_bidirectional=False)
    return Transformer(
        config,
        encoder=_stack(
            config, tokens, parts.encoder_layers(config.num_layers), Pattern(), is_bidirectional=True
        ),
        decoder=decoder,
        head=_head(config, tokens),
        start_id=config.decoder_start_token_id if config.has_decoder else None,
    )


def _parts(config: T5Config) -> Parts:
    ffn = GatedFeedForward if config.is_gated else FeedForward
    return Parts(
        # The scores are not scaled: the initial weights make up for it.
        attention=lambda: MultiHeadAttention(
            config.d_model,
            config.num_heads,
            head_dim=config.head_dim,
            use_bias=False,
            scale=1.0,
            dropout_p=config.dropout_p,
        ),
        ffn=lambda: ffn(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            use_bias=False,
            dropout_p=config.dropout_p,
        ),
        residual=lambda: PreNorm(_norm(config), dropout_p=config.dropout_p),
    )


def _stack(
    config: T5Config,
    tokens: nn.Embedding,
    layers: Sequence[EncoderLayer | DecoderLayer],
    pattern: Pattern,
    *,
    is_bidirectional: bool,
) -> Stack:
    return Stack(
        Embeddings(config.vocab_size, config.d_model, tokens=tokens, dropout_p=config.dropout_p),
        layers,
        patterns=[pattern] * len(layers),
        norm=_norm(config),
        bias=RelativeBias(
            config.num_heads, config.num_buckets, config.max_distance, bidirectional=is_bidirectional
        ),
        dropout_p=config.dropout_p,
    )


def _norm(config: T5Config) -> RMSNorm:
    return RMSNorm(config.d_model, eps=config.norm_eps)


def _head(config: T5Config, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "language-model":
            scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
            return LanguageModelHead(output_layer(tokens, is_tied=config.tie_word_embeddings), scale=scale)
        case "sequence":
            return EndClassifier(
                config.d_model,
                config.num_labels,
                end_id=config.eos_token_id,
                start_id=config.decoder_start_token_id,
                pad_id=None,
                dropout_p=config.classifier_dropout_p,
            )
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.classifier_dropout_p)
    return None
