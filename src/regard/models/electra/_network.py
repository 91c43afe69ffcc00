"""ELECTRA: BERT's layers behind smaller embeddings, without a pooler."""

from torch import nn

from regard.blocks import Embeddings, Linear, Stack
from regard.models._heads import Head, MaskedLMHead, output_layer, token_classifier
from regard.models._inputs import check_sizes
from regard.models._post_norm import dense_classifier, post_norm_layers
from regard.models._transformer import Transformer
from regard.models.electra._config import ElectraConfig
from regard.positions import LearnedPositions


def build(config: ElectraConfig) -> Transformer:
    """The generator, or the discriminator without the layers that tell whether a token was replaced.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = ElectraConfig(vocab_size=13, d_embedding=5, d_model=6, num_layers=1, num_heads=2)
        >>> build(config)(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Clark et al. 2020, arXiv 2003.10555, sections 2 and 3.1; the smaller embeddings: appendix A.
    """
    check_sizes(config)
    embeddings = Embeddings(
        config.vocab_size,
        config.d_model,
        positions=LearnedPositions(config.max_seq_len, config.d_embedding),
        num_token_types=config.num_token_types,
        norm=nn.LayerNorm(config.d_embedding, eps=config.norm_eps),
        d_embedding=None if config.d_embedding == config.d_model else config.d_embedding,
        dropout_p=config.dropout_p,
    )
    return Transformer(
        config, encoder=Stack(embeddings, post_norm_layers(config)), head=_head(config, embeddings.tokens)
    )


def _head(config: ElectraConfig, tokens: nn.Embedding) -> Head | None:
    # The heads have a gelu of their own, whatever the layers have.
    match config.head:
        case "masked-lm":
            return MaskedLMHead(
                Linear(config.d_model, config.d_embedding),
                "gelu",
                nn.LayerNorm(config.d_embedding, eps=config.norm_eps),
                output_layer(tokens, is_tied=config.tie_word_embeddings, use_bias=True),
            )
        case "sequence":
            return dense_classifier(config, "gelu")
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.label_dropout_p)
    return None
