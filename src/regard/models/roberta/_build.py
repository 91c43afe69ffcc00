"""RoBERTa: BERT's layers, positions counted over the tokens only, and classifiers without the pooler."""

from regard.blocks import CountTokens
from regard.models._post_norm import dense_classifier, post_norm_encoder
from regard.models._transformer import Transformer
from regard.models.roberta._config import RobertaConfig


def build(config: RobertaConfig) -> Transformer:
    """A BERT trained longer, on more text, without the next sentence; XLM-R is one in a hundred languages.

    Padding is told by its id: where it is masked but has another id, positions count on over it, unless they
    are given.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = RobertaConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> build(config)(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Liu et al. 2019, arXiv 1907.11692, section 4; XLM-R: Conneau et al. 2020, arXiv 1911.02116.
    """
    return post_norm_encoder(
        config,
        classifier=lambda: dense_classifier(config, "tanh"),
        numbering=CountTokens(config.pad_token_id),
    )
