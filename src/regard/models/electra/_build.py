"""ELECTRA: BERT's layers behind smaller embeddings, without a pooler."""

from regard.models._post_norm import dense_classifier, post_norm_encoder
from regard.models._transformer import Transformer
from regard.models.electra._config import ElectraConfig


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
    return post_norm_encoder(
        config,
        classifier=lambda: dense_classifier(config, "gelu"),
        has_own_bias=False,
        d_embedding=config.d_embedding,
    )
