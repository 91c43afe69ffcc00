"""Sinusoidal positional encoding: fixed, bounded, periodic, and defined for any position."""

import torch
from torch import Tensor, nn

from regard.core.errors import InputError


def sinusoidal_encoding(max_seq_len: int, d_model: int, *, base: float = 10_000.0) -> Tensor:
    """The positional-encoding matrix.

        PE[pos, 2i]     = sin(pos / base^(2i / d_model))
        PE[pos, 2i + 1] = cos(pos / base^(2i / d_model))

    Args:
        max_seq_len: number of positions, rows.
        d_model: number of dimensions, columns; odd is allowed, the last cosine is then left out.
        base: 10,000 in the paper.

    Returns:
        float64 (max_seq_len, d_model), each entry from -1 to 1.

    Raises:
        InputError: a size below 1, or a base that is not positive.

    Example:
        >>> sinusoidal_encoding(2, 3).round(decimals=2)
        tensor([[0.0000, 1.0000, 0.0000],
                [0.8400, 0.5400, 0.0000]], dtype=torch.float64)

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5. Checkpoints of the Marian family put all sines
    before all cosines instead; this is the paper's interleaved order.
    """
    for name, value in (("max_seq_len", max_seq_len), ("d_model", d_model)):
        if value < 1:
            raise InputError(f"{name} must be at least 1; got {value}.")
    if not base > 0:
        raise InputError(f"base must be greater than 0; got {base}.")
    position = torch.arange(max_seq_len, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / base ** (even / d_model)
    return torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)[:, :d_model].contiguous()


class SinusoidalPositions(nn.Module):
    """Looks positions up in the sinusoidal matrix; nothing is learned, nothing is stored in a checkpoint.

    Args:
        max_seq_len, d_model, base: as in `sinusoidal_encoding`.

    Example:
        >>> SinusoidalPositions(5, 3)(torch.tensor([4])).shape
        torch.Size([1, 3])
    """

    table: Tensor

    def __init__(self, max_seq_len: int, d_model: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        encoding = sinusoidal_encoding(max_seq_len, d_model, base=base).to(torch.get_default_dtype())
        self.register_buffer("table", encoding, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """int64 positions of any shape (...) -> (..., d_model)."""
        return nn.functional.embedding(positions, self.table)  # indexing would take -1 for the last row
