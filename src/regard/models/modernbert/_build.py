"""ModernBERT: pre-norm layers, local and global in turn, with rotary positions and a gated feed-forward."""

from torch import nn

from regard.blocks import (
    Embeddings,
    EncoderLayer,
    GatedFeedForward,
    Linear,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    Stack,
)
from regard.core import Window
from regard.models._heads import Activation, Classifier, Head, MaskedLMHead, output_layer
from regard.models._inputs import check_sizes
from regard.models._layer_types import FULL, SLIDING
from regard.models._reading import EveryPosition, FirstPosition, MeanOfTokens
from regard.models._transformer import Transformer
from regard.models.modernbert._config import ModernBertConfig


def build(config: ModernBertConfig) -> Transformer:
    """An encoder, two of three layers of which look only at a token's neighbourhood.

    Several texts may stand in one row, without padding: with `positions` that begin anew for each of them,
    and a `regard.core.Segments` mask that keeps them apart.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> from regard.positions import Rotary
        >>> config = ModernBertConfig(
        ...     vocab_size=13, d_model=12, num_layers=2, num_heads=3, d_ff=11, local_attention=4,
        ...     layer_types=("full_attention", "sliding_attention"),
        ...     rope=dict.fromkeys(("full_attention", "sliding_attention"), Rotary(4, base=10000.0)))
        >>> build(config)(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 12])

    Source: Warner et al. 2024, arXiv 2412.13663, section 2.1.
    """
    check_sizes(config)
    embeddings = Embeddings(
        config.vocab_size, config.d_model, norm=_norm(config), dropout_p=config.embedding_dropout_p
    )
    side = config.local_attention // 2
    masks = {FULL: None, SLIDING: Window(left=side, right=side)}
    patterns = {kind: Pattern(mask=masks[kind], rotary=rotary) for kind, rotary in config.rope.items()}
    stack = Stack(
        embeddings,
        [_layer(config, index) for index in range(config.num_layers)],
        patterns=[patterns[kind] for kind in config.layer_types],
        norm=_norm(config),
    )
    return Transformer(config, encoder=stack, head=_head(config, embeddings.tokens))


def _layer(config: ModernBertConfig, index: int) -> EncoderLayer:
    # What enters the first layer comes out of the embeddings' norm.
    attention_norm = nn.Identity() if index == 0 else _norm(config)
    return EncoderLayer(
        MultiHeadAttention(
            config.d_model,
            config.num_heads,
            use_bias=config.attention_bias,
            dropout_p=config.attention_dropout_p,
        ),
        GatedFeedForward(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            use_bias=config.ffn_bias,
            dropout_p=config.ffn_dropout_p,
        ),
        attention_residual=PreNorm(attention_norm, dropout_p=config.attention_dropout_p),
        ffn_residual=PreNorm(_norm(config)),
    )


def _norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.norm_bias)


def _head(config: ModernBertConfig, tokens: nn.Embedding) -> Head | None:
    if config.head is None:
        return None
    dense = Linear(config.d_model, config.d_model, bias=config.head_bias)
    norm = _norm(config)
    if config.head == "masked-lm":
        output = output_layer(tokens, is_tied=config.tie_word_embeddings, use_bias=config.output_bias)
        return MaskedLMHead(dense, config.head_activation, norm, output)
    of_text = MeanOfTokens() if config.pooling == "mean" else FirstPosition()
    return Classifier(
        EveryPosition() if config.head == "token" else of_text,
        dense=dense,
        activation=Activation(config.head_activation),
        norm=norm,
        dropout=nn.Dropout(config.classifier_dropout_p),
        labels=nn.Linear(config.d_model, config.num_labels),
    )
