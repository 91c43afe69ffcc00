"""DistilBERT: BERT's layers, half as many, without token types and pooler."""

from torch import Tensor, nn

from regard.blocks import Embeddings, EncoderLayer, FeedForward, MultiHeadAttention, PostNorm
from regard.core import Mask, Taps
from regard.models._network import Network, Output, check_sizes
from regard.models.distilbert._config import DistilBertConfig


class DistilBert(Network):
    """A smaller BERT, distilled from it.

    Args:
        config: its sizes.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> config = DistilBertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> DistilBert(config)(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Sanh et al. 2019, arXiv 1910.01108, section 3.
    """

    config: DistilBertConfig

    def __init__(self, config: DistilBertConfig) -> None:
        super().__init__()
        check_sizes(config)
        self.config = config
        self.embeddings = Embeddings(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            max_seq_len=config.max_seq_len,
            norm_eps=config.norm_eps,
            dropout_p=config.dropout_p,
        )
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.num_layers))

    def forward(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
        taps: Taps | None = None,
    ) -> Output:
        """See `Network.forward`; `token_types` must be None."""
        return Output(last_hidden_state=self.encode(token_ids, mask, token_types, taps))


def _layer(config: DistilBertConfig) -> EncoderLayer:
    # Dropout follows the feed-forward network only: the published model has none after attention.
    return EncoderLayer(
        MultiHeadAttention(config.d_model, config.num_heads, dropout_p=config.attention_dropout_p),
        FeedForward(config.d_model, config.d_ff, activation=config.activation),
        attention_residual=PostNorm(config.d_model, norm_eps=config.norm_eps),
        ffn_residual=PostNorm(config.d_model, norm_eps=config.norm_eps, dropout_p=config.dropout_p),
    )
