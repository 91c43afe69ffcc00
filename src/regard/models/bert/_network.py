"""BERT: post-norm encoder layers over learned positions and token types, with a pooler."""

from torch import nn

from regard.blocks import Embeddings, Stack
from regard.models._heads import Classifier, Head, token_classifier
from regard.models._inputs import check_sizes
from regard.models._post_norm import Pooler, masked_lm_head, post_norm_layers
from regard.models._reading import Pooled
from regard.models._transformer import Transformer
from regard.models.bert._config import BertConfig
from regard.positions import LearnedPositions


def build(config: BertConfig) -> Transformer:
    """Bidirectional Encoder Representations from Transformers.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> bert = build(BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
        >>> bert(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.
    """
    check_sizes(config)
    embeddings = Embeddings(
        config.vocab_size,
        config.d_model,
        positions=LearnedPositions(config.max_seq_len, config.d_model),
        num_token_types=config.num_token_types,
        norm=nn.LayerNorm(config.d_model, eps=config.norm_eps),
        dropout_p=config.dropout_p,
    )
    return Transformer(
        config,
        encoder=Stack(embeddings, post_norm_layers(config)),
        pooler=Pooler(config.d_model) if config.use_pooler else None,
        head=_head(config, embeddings.tokens),
    )


def _head(config: BertConfig, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "masked-lm":
            return masked_lm_head(
                tokens,
                activation=config.activation,
                norm_eps=config.norm_eps,
                is_tied=config.tie_word_embeddings,
            )
        case "sequence":
            labels = nn.Linear(config.d_model, config.num_labels)
            return Classifier(Pooled(), dropout=nn.Dropout(config.label_dropout_p), labels=labels)
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.label_dropout_p)
    return None
