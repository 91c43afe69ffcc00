"""BERT: post-norm encoder layers over learned positions and token types, with a pooler."""

from torch import Tensor, nn

from regard.blocks import Embeddings, EncoderLayer, FeedForward, MultiHeadAttention, PostNorm
from regard.core import Mask, Taps
from regard.models._network import Network, Output, check_sizes
from regard.models.bert._config import BertConfig


class Pooler(nn.Module):
    """tanh(W x_0 + b): the first position's contextual embedding, as BERT's sentence classifiers read it.

    Args:
        d_model: size of the vectors.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1 ("C"); the dense layer is in their code.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, last_hidden_state: Tensor) -> Tensor:
        """(batch, positions, d_model) -> (batch, d_model)."""
        pooled: Tensor = self.dense(last_hidden_state[:, 0]).tanh()
        return pooled


class Bert(Network):
    """Bidirectional Encoder Representations from Transformers.

    Args:
        config: its sizes.

    Raises:
        InputError: a size that no network can have, or sizes that do not divide.

    Example:
        >>> import torch
        >>> bert = Bert(BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
        >>> bert(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.
    """

    config: BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        check_sizes(config)
        self.config = config
        self.embeddings = Embeddings(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            max_seq_len=config.max_seq_len,
            num_token_types=config.num_token_types,
            norm_eps=config.norm_eps,
            dropout_p=config.dropout_p,
        )
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHeadAttention(config.d_model, config.num_heads, dropout_p=config.attention_dropout_p),
                FeedForward(config.d_model, config.d_ff, activation=config.activation),
                attention_residual=PostNorm(
                    config.d_model, norm_eps=config.norm_eps, dropout_p=config.dropout_p
                ),
                ffn_residual=PostNorm(config.d_model, norm_eps=config.norm_eps, dropout_p=config.dropout_p),
            )
            for _ in range(config.num_layers)
        )
        self.pooler = Pooler(config.d_model) if config.use_pooler else None

    def forward(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
        taps: Taps | None = None,
    ) -> Output:
        """See `Network.forward`."""
        hidden = self.encode(token_ids, mask, token_types, taps)
        return Output(last_hidden_state=hidden, pooled=None if self.pooler is None else self.pooler(hidden))
