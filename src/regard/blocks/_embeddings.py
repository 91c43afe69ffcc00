"""From token ids to the vectors that enter the first layer: learned embedding + position (+ token type)."""

import torch
from torch import Tensor, nn

from regard.blocks._linear import Linear
from regard.core import Taps


class Embeddings(nn.Module):
    """norm(scale * tokens[token_ids] + positions(0..N-1) + token_types[token_types]), then dropout.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the vectors that enter the first layer.
        positions: from position numbers (batch or 1, N) to vectors, as `LearnedPositions`; None where the
            layers know positions otherwise (rotary, relative bias).
        num_token_types: rows of the table of token types (which sentence of a pair); 0 for none.
        norm: of the sum; None for none.
        scale: of the rows of the table (sqrt(d_model) in the original Transformer, section 3.4).
        d_embedding: size of the tables where it is not d_model; a linear layer then leads to d_model.
        tokens: a table to share with another stack; by default a new one.
        pad_id: a row of a new table that looking it up does not train; None for none.
        dropout_p: probability of dropping an entry in training.

    Taps:
        tokens (batch, N, d_embedding), the rows of the table; scaled, the same times `scale`, where that is
        not 1; positions (batch or 1, N, d_embedding) and token_types, what is added; output (batch, N,
        d_model), what enters layer 0.

    Example:
        >>> from regard.positions import LearnedPositions
        >>> embeddings = Embeddings(vocab_size=13, d_model=6, positions=LearnedPositions(5, 6))
        >>> embeddings(torch.tensor([[3, 1, 4]]), positions=torch.tensor([[0, 1, 2]])).shape
        torch.Size([1, 3, 6])

    Source: Vaswani et al. 2017, arXiv 1706.03762, sections 3.4 and 3.5; Devlin et al. 2019, arXiv 1810.04805,
    figure 2, for token types. The norm is in BERT's code, not in the paper.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        positions: nn.Module | None = None,
        num_token_types: int = 0,
        norm: nn.Module | None = None,
        scale: float = 1.0,
        d_embedding: int | None = None,
        tokens: nn.Embedding | None = None,
        pad_id: int | None = None,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        width = d_model if d_embedding is None else d_embedding
        self.tokens = nn.Embedding(vocab_size, width, padding_idx=pad_id) if tokens is None else tokens
        self.positions = positions
        self.token_types = nn.Embedding(num_token_types, width) if num_token_types else None
        self.norm = norm
        self.projection = None if d_embedding is None else Linear(width, d_model)
        self.dropout = nn.Dropout(dropout_p)
        self.scale = scale

    def tap_names(self) -> list[str]:
        """Every point, in the order of the forward pass."""
        optional = [name for name in ("positions", "token_types") if getattr(self, name) is not None]
        return ["tokens", *(["scaled"] if self.scale != 1.0 else []), *optional, "output"]

    def forward(
        self,
        token_ids: Tensor,
        *,
        positions: Tensor,
        token_types: Tensor | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """Embed token ids.

        Args:
            token_ids: int64 (batch, N).
            positions: int64 (batch or 1, N), the positions' numbers.
            token_types: int64 (batch, N); by default all 0. Ignored by a table of none.
            taps: listeners, or None.

        Returns:
            (batch, N, d_model).
        """
        total: Tensor = self.tokens(token_ids)
        if taps is not None:
            total = taps.offer("tokens", total)
        if self.scale != 1.0:
            # Rounded to the model's own type first, as the models that scale were trained.
            total = total * torch.tensor(self.scale, dtype=total.dtype, device="cpu")
            if taps is not None:
                total = taps.offer("scaled", total)
        if self.positions is not None:
            at = self.positions(positions).to(total.dtype)  # a fixed table is float32
            total = total + (at if taps is None else taps.offer("positions", at))
        if self.token_types is not None:
            types = self.token_types(torch.zeros_like(token_ids) if token_types is None else token_types)
            total = total + (types if taps is None else taps.offer("token_types", types))
        if self.norm is not None:
            total = self.norm(total)
        total = self.dropout(total)
        if self.projection is not None:
            total = self.projection(total)
        return total if taps is None else taps.offer("output", total)
