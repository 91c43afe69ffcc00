"""MPNet: BERT's layers with T5's relative bias besides absolute positions, and no token types."""

from torch import nn

from regard.blocks import CountTokens
from regard.core.errors import InputError
from regard.models._inputs import check_sizes
from regard.models._post_norm import dense_classifier, post_norm_encoder
from regard.models._transformer import Transformer
from regard.models.mpnet._config import NUM_BUCKETS, PAD_ID, MPNetConfig
from regard.positions import RelativeBias


def build(config: MPNetConfig) -> Transformer:
    """An encoder trained to predict tokens in a permuted order; used, it is a BERT with relative biases.

    Padding is told by its id, as in RoBERTa.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = MPNetConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> build(config)(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Song et al. 2020, arXiv 2004.09297, section 2; the relative bias: Raffel et al. 2020, arXiv
    1910.10683, section 2.1.
    """
    check_sizes(config)
    if config.num_buckets < NUM_BUCKETS:
        raise InputError(f"num_buckets must be at least {NUM_BUCKETS}; got {config.num_buckets}.")
    bias = RelativeBias(config.num_heads, NUM_BUCKETS, max_distance=128, bidirectional=True)
    if config.num_buckets > NUM_BUCKETS:
        bias.table = nn.Embedding(config.num_buckets, config.num_heads)
    return post_norm_encoder(
        config,
        classifier=lambda: dense_classifier(config, "tanh"),
        numbering=CountTokens(PAD_ID),
        bias=bias,
    )
