"""DeBERTa v2 and v3: post-norm layers whose attention scores content and distance apart."""

from dataclasses import replace

from torch import nn

from regard.blocks import Embeddings, EncoderLayer, FeedForward, PostNorm, Stack
from regard.models._heads import Activation, Classifier, Head, token_classifier
from regard.models._inputs import check_sizes
from regard.models._post_norm import masked_lm_head
from regard.models._reading import FirstPosition
from regard.models._transformer import Transformer
from regard.models.deberta._attention import DisentangledAttention, RelativePositions
from regard.models.deberta._config import DebertaConfig
from regard.models.deberta._layers import ConvolvedLayer, ProjectedNorm, TrainedHead
from regard.positions import LearnedPositions


def build(config: DebertaConfig) -> Transformer:
    """An encoder that knows positions by the distances between them.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = DebertaConfig(
        ...     vocab_size=13, d_embedding=6, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> build(config)(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: He et al. 2021, arXiv 2006.03654, section 3; v3: He et al. 2021, arXiv 2111.09543.
    """
    check_sizes(config)
    embeddings = _embeddings(config)
    stack = Stack(
        embeddings,
        [_layer(config, index) for index in range(config.num_layers)],
        bias=_positions(config) if config.relative_attention else None,
    )
    return Transformer(config, encoder=stack, head=_head(config, embeddings.tokens))


def _embeddings(config: DebertaConfig) -> Embeddings:
    norm: nn.LayerNorm
    if config.d_embedding == config.d_model:
        norm = _norm(config)
    else:
        norm = ProjectedNorm(config.d_embedding, config.d_model, eps=config.norm_eps)
    positions = None
    if config.has_absolute_positions:
        positions = LearnedPositions(config.max_seq_len, config.d_embedding)
    return Embeddings(
        config.vocab_size,
        config.d_embedding,  # the norm leads to d_model
        positions=positions,
        num_token_types=config.num_token_types,
        norm=norm,
        dropout_p=config.dropout_p,
    )


def _positions(config: DebertaConfig) -> RelativePositions:
    return RelativePositions(
        config.d_model,
        span=config.span,
        max_distance=config.furthest,
        num_buckets=config.num_buckets,
        norm=_norm(config) if config.norms_table else None,
    )


def _layer(config: DebertaConfig, index: int) -> EncoderLayer:
    attention = DisentangledAttention(
        config.d_model,
        config.num_heads,
        terms=config.terms,
        shares_projections=config.shares_projections or not config.relative_attention,
        dropout_p=config.attention_dropout_p,
        table_dropout_p=config.dropout_p,
    )
    ffn = FeedForward(config.d_model, config.d_ff, activation=config.activation)
    attention_residual = PostNorm(_norm(config), dropout_p=config.dropout_p)
    ffn_residual = PostNorm(_norm(config), dropout_p=config.dropout_p)
    if index or config.convolution is None:
        return EncoderLayer(attention, ffn, attention_residual=attention_residual, ffn_residual=ffn_residual)
    return ConvolvedLayer(
        attention,
        ffn,
        attention_residual=attention_residual,
        ffn_residual=ffn_residual,
        convolution=nn.Conv1d(
            config.d_model,
            config.d_model,
            config.convolution.kernel_size,
            padding=config.convolution.kernel_size // 2,
            groups=config.convolution.groups,
        ),
        activation=config.convolution.activation,
        norm=_norm(config),
        dropout_p=config.dropout_p,
    )


def _norm(config: DebertaConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


def _head(config: DebertaConfig, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "masked-lm":
            if config.is_legacy:
                return masked_lm_head(config, tokens, config.activation)
            return TrainedHead(
                masked_lm_head(replace(config, tie_word_embeddings=True), tokens, config.activation)
            )
        case "sequence":
            return Classifier(
                FirstPosition(),
                input_dropout=nn.Dropout(config.pooler_dropout_p),
                hidden=nn.Linear(config.d_model, config.d_model),
                activation=Activation(config.pooler_activation),
                dropout=nn.Dropout(config.label_dropout_p),
                labels=nn.Linear(config.d_model, config.num_labels),
            )
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.dropout_p)
    return None
