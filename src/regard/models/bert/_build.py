"""BERT: post-norm encoder layers over learned positions and token types, with a pooler."""

from torch import nn

from regard.models._heads import Classifier
from regard.models._post_norm import post_norm_encoder
from regard.models._reading import Pooled
from regard.models._transformer import Transformer
from regard.models.bert._config import BertConfig


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

    def classifier() -> Classifier:
        labels = nn.Linear(config.d_model, config.num_labels)
        return Classifier(Pooled(), dropout=nn.Dropout(config.label_dropout_p), labels=labels)

    return post_norm_encoder(config, classifier=classifier, lm_activation=config.activation)
