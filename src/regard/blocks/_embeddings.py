"""From token ids to the vectors that enter the first layer: learned embedding + position (+ token type)."""

import torch
from torch import Tensor, nn

from regard.core import Taps
from regard.positions import LearnedPositions


class Embeddings(nn.Module):
    """norm(tokens[token_ids] + positions[0..N-1] + token_types[token_types]).

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the vectors.
        max_seq_len: rows of the table of positions.
        num_token_types: rows of the table of token types (which sentence of a pair); 0 for none.
        norm_eps: added to the variance by the layer norm.
        dropout_p: probability of dropping an entry in training.

    Taps:
        tokens, positions, token_types: the summands, (batch, N, d_model), positions (1, N, d_model); output,
        after norm and dropout.

    Example:
        >>> embeddings = Embeddings(vocab_size=13, d_model=6, max_seq_len=5)
        >>> embeddings(torch.tensor([[3, 1, 4]])).shape
        torch.Size([1, 3, 6])

    Source: Devlin et al. 2019, arXiv 1810.04805, figure 2; the norm is in their code, not in the paper.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        max_seq_len: int,
        num_token_types: int = 0,
        norm_eps: float = 1e-12,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = LearnedPositions(max_seq_len, d_model)
        self.token_types = nn.Embedding(num_token_types, d_model) if num_token_types else None
        self.norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self, token_ids: Tensor, *, token_types: Tensor | None = None, taps: Taps | None = None
    ) -> Tensor:
        """Embed token ids.

        Args:
            token_ids: int64 (batch, N).
            token_types: int64 (batch, N); by default all 0. Ignored by a table of none.
            taps: listeners, or None.

        Returns:
            (batch, N, d_model).
        """
        tokens = self.tokens(token_ids)
        positions = self.positions(torch.arange(token_ids.shape[1], device=token_ids.device)[None])
        if taps is not None:
            tokens, positions = taps.offer("tokens", tokens), taps.offer("positions", positions)
        total = tokens + positions
        if self.token_types is not None:
            types = self.token_types(torch.zeros_like(token_ids) if token_types is None else token_types)
            total = total + (types if taps is None else taps.offer("token_types", types))
        output: Tensor = self.dropout(self.norm(total))
        return output if taps is None else taps.offer("output", output)
