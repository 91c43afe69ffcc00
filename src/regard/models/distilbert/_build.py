"""DistilBERT: BERT's layers, half as many, without token types and pooler."""

from torch import nn

from regard.models._heads import Activation, Classifier
from regard.models._post_norm import post_norm_encoder
from regard.models._reading import FirstPosition
from regard.models._transformer import Transformer
from regard.models.distilbert._config import DistilBertConfig


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

    def classifier() -> Classifier:
        return Classifier(
            FirstPosition(),
            hidden=nn.Linear(config.d_model, config.d_model),
            activation=Activation("relu"),
            dropout=nn.Dropout(config.classifier_dropout_p),
            labels=nn.Linear(config.d_model, config.num_labels),
        )

    return post_norm_encoder(
        config,
        classifier=classifier,
        lm_activation=config.activation,
        has_own_bias=False,
        # Dropout follows the feed-forward network only: the published model has none after attention.
        attention_output_dropout_p=0.0,
    )
