"""Fourier features of a position: sines and cosines that stand beside an input."""

import math

import torch
from torch import Tensor, nn

from regard.core.errors import InputError


class FourierPositions(nn.Module):
    """The position itself and K sines and K cosines of it; nothing is learned.

        x = 2 p / (max_seq_len - 1) - 1                    from -1 to 1
        f_k = 1 .. max_seq_len / 2, evenly spaced          the last is the Nyquist frequency
        features = x, sin(pi f_k x) for each k, cos(pi f_k x) for each k

    Args:
        max_seq_len: number of positions.
        num_bands: K.

    Attributes:
        size: 2 K + 1, the number of features.

    Raises:
        InputError: a size below 1.

    Example:
        >>> FourierPositions(max_seq_len=5, num_bands=1)(torch.tensor([0, 2, 4])).round(decimals=3)
        tensor([[-1., -0., -1.],
                [ 0.,  0.,  1.],
                [ 1.,  0., -1.]], dtype=torch.float64)

    Source: Jaegle et al. 2021 (Perceiver), arXiv 2103.03206, section 3.2 and appendix D.
    """

    def __init__(self, max_seq_len: int, num_bands: int) -> None:
        super().__init__()
        for name, value in (("max_seq_len", max_seq_len), ("num_bands", num_bands)):
            if value < 1:
                raise InputError(f"{name} must be at least 1; got {value}.")
        self.max_seq_len, self.num_bands = max_seq_len, num_bands

    @property
    def size(self) -> int:
        """The number of features of a position."""
        return 2 * self.num_bands + 1

    def forward(self, positions: Tensor) -> Tensor:
        """int64 positions of any shape (...) -> float64 (..., size)."""
        # In float64: the angles go up to pi max_seq_len / 2, of which float32 would round the sine.
        x = 2.0 * positions.double() / max(1, self.max_seq_len - 1) - 1.0
        bands = torch.linspace(1.0, self.max_seq_len / 2, self.num_bands, dtype=x.dtype, device=x.device)
        angles = math.pi * x[..., None] * bands
        return torch.cat((x[..., None], angles.sin(), angles.cos()), dim=-1)
