"""Learned positions: a table with one trained row a position, as BERT and GPT-2 have it."""

import torch
from torch import Tensor, nn

from regard.core.errors import InputError


class LearnedPositions(nn.Module):
    """A trained vector for each position; there is none beyond the last.

    Args:
        max_seq_len: number of rows.
        d_model: their size.
        pad_id: a row that looking it up does not train, that of padding; None for none.

    Example:
        >>> positions = LearnedPositions(5, 3)
        >>> positions(torch.tensor([0, 4])).shape, positions.table.shape
        (torch.Size([2, 3]), torch.Size([5, 3]))

    Source: Gehring et al. 2017, arXiv 1705.03122, section 3.1; Devlin et al. 2019, arXiv 1810.04805.
    """

    def __init__(self, max_seq_len: int, d_model: int, *, pad_id: int | None = None) -> None:
        super().__init__()
        for name, value in (("max_seq_len", max_seq_len), ("d_model", d_model)):
            if value < 1:
                raise InputError(f"{name} must be at least 1; got {value}.")
        self.padding_idx = pad_id
        self.weight = nn.Parameter(torch.empty(max_seq_len, d_model))
        nn.init.normal_(self.weight)  # as nn.Embedding does, beside which it stands

    @property
    def table(self) -> Tensor:
        """The whole table (max_seq_len, d_model), detached: an array to plot."""
        return self.weight.detach()

    def forward(self, positions: Tensor) -> Tensor:
        """int64 positions of any shape (...) -> (..., d_model)."""
        return nn.functional.embedding(positions, self.weight, padding_idx=self.padding_idx)
