"""DistilBERT: BERT's layers, half as many, without token types and pooler."""

from torch import nn

from regard.blocks import Embeddings, EncoderLayer, FeedForward, MultiHeadAttention, PostNorm, Stack
from regard.models._heads import Activation, Classifier, Head, MaskedLMHead, output_layer, token_classifier
from regard.models._inputs import check_sizes
from regard.models._reading import FirstPosition
from regard.models._transformer import Transformer
from regard.models.distilbert._config import DistilBertConfig
from regard.positions import LearnedPositions


def build(config: DistilBertConfig) -> Transformer:
    """A smaller BERT, distilled from it.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = DistilBertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> build(config)(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Sanh et al. 2019, arXiv 1910.01108, section 3.
    """
    check_sizes(config)
    embeddings = Embeddings(
        config.vocab_size,
        config.d_model,
        positions=LearnedPositions(config.max_seq_len, config.d_model),
        norm=_norm(config),
        dropout_p=config.dropout_p,
    )
    return Transformer(
        config,
        encoder=Stack(embeddings, [_layer(config) for _ in range(config.num_layers)]),
        head=_head(config, embeddings.tokens),
    )


def _layer(config: DistilBertConfig) -> EncoderLayer:
    # Dropout follows the feed-forward network only: the published model has none after attention.
    return EncoderLayer(
        MultiHeadAttention(config.d_model, config.num_heads, dropout_p=config.attention_dropout_p),
        FeedForward(config.d_model, config.d_ff, activation=config.activation),
        attention_residual=PostNorm(_norm(config)),
        ffn_residual=PostNorm(_norm(config), dropout_p=config.dropout_p),
    )


def _norm(config: DistilBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


def _head(config: DistilBertConfig, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "masked-lm":
            dense = nn.Linear(config.d_model, config.d_model)
            output = output_layer(tokens, is_tied=config.tie_word_embeddings, use_bias=True)
            return MaskedLMHead(dense, config.activation, _norm(config), output)
        case "sequence":
            return Classifier(
                FirstPosition(),
                hidden=nn.Linear(config.d_model, config.d_model),
                activation=Activation("relu"),
                dropout=nn.Dropout(config.classifier_dropout_p),
                labels=nn.Linear(config.d_model, config.num_labels),
            )
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.dropout_p)
    return None
