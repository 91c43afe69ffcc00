"""Positions as vectors, added to a token's or beside them: learned, sinusoidal, Fourier features."""

import math
from typing import Literal

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
        >>> import torch
        >>> from regard.positions import LearnedPositions
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
        # The name of nn.Embedding, which code that looks for padding asks for.
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


SinusoidalLayout = Literal["interleaved", "half"]
"""Where the cosines stand: each after its sine, as in the paper, or all after all sines, as in Marian."""


def sinusoidal_encoding(
    max_seq_len: int, d_model: int, *, base: float = 10_000.0, layout: SinusoidalLayout = "interleaved"
) -> Tensor:
    """The positional-encoding matrix.

        PE[pos, 2i]     = sin(pos / base^(2i / d_model))
        PE[pos, 2i + 1] = cos(pos / base^(2i / d_model))

    Args:
        max_seq_len: number of positions, rows.
        d_model: number of dimensions, columns; odd is allowed, the last cosine is then left out.
        base: 10,000 in the paper.
        layout: "interleaved" is the paper's order, above. "half" is Marian's: the same columns, all sines
            before all cosines.

    Returns:
        float64 (max_seq_len, d_model), each entry from -1 to 1.

    Raises:
        InputError: a size below 1, a base that is not positive, or an unknown layout.

    Example:
        >>> from regard.positions import sinusoidal_encoding
        >>> sinusoidal_encoding(2, 3).round(decimals=2)
        tensor([[0.0000, 1.0000, 0.0000],
                [0.8400, 0.5400, 0.0000]], dtype=torch.float64)
        >>> sinusoidal_encoding(2, 3, layout="half").round(decimals=2)
        tensor([[0.0000, 0.0000, 1.0000],
                [0.8400, 0.0000, 0.5400]], dtype=torch.float64)

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5; Marian's order is in its code.
    """
    _check(max_seq_len, d_model, base, layout)
    # On the CPU, also while a network is built on the meta device.
    position = torch.arange(max_seq_len, dtype=torch.float64, device="cpu")[:, None]
    # 2i of the formula: 0, 2, 4, ...
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")
    angle = position / base ** (even / d_model)
    sines, cosines = angle.sin(), angle.cos()
    if layout == "half":
        # With an odd d_model the last cosine is left out, in both orders.
        return torch.cat((sines, cosines[:, : d_model // 2]), dim=1)
    # Sines and cosines in turns: (max_seq_len, ceil(d_model / 2), 2) -> (max_seq_len, d_model)
    return torch.stack((sines, cosines), dim=2).flatten(1)[:, :d_model].contiguous()


def _check(max_seq_len: int, d_model: int, base: float, layout: str) -> None:
    for name, value in (("max_seq_len", max_seq_len), ("d_model", d_model)):
        if value < 1:
            raise InputError(f"{name} must be at least 1; got {value}.")
    if not base > 0:
        raise InputError(f"base must be greater than 0; got {base}.")
    if layout not in ("interleaved", "half"):
        raise InputError(f"layout must be 'interleaved' or 'half'; got {layout!r}.")


class SinusoidalPositions(nn.Module):
    """Looks positions up in the sinusoidal matrix; nothing is learned, nothing is stored in a checkpoint.

    The matrix is made at the first call, so that a network can be built on the meta device; it is no part of
    the module's state. Where a checkpoint stores its matrix, `LearnedPositions` holds that one.

    Args:
        max_seq_len, d_model, base, layout: as in `sinusoidal_encoding`.

    Example:
        >>> import torch
        >>> from regard.positions import SinusoidalPositions
        >>> SinusoidalPositions(5, 3)(torch.tensor([4])).shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        max_seq_len: int,
        d_model: int,
        *,
        base: float = 10_000.0,
        layout: SinusoidalLayout = "interleaved",
    ) -> None:
        super().__init__()
        _check(max_seq_len, d_model, base, layout)
        self.max_seq_len = max_seq_len
        self.d_model = d_model
        self.base = base
        self.layout = layout
        self._table: Tensor | None = None  # where it was last asked for

    @property
    def table(self) -> Tensor:
        """The whole matrix, float32 (max_seq_len, d_model), rounded once from double precision."""
        return self._on(torch.device("cpu"))

    def _on(self, device: torch.device) -> Tensor:
        # Read once and kept here: another thread may ask for another device at any time.
        table = self._table
        if table is None or table.device != device:
            with torch.inference_mode(False):  # it is kept for calls outside of that mode
                encoding = sinusoidal_encoding(
                    self.max_seq_len, self.d_model, base=self.base, layout=self.layout
                )
                table = encoding.float().to(device)
            self._table = table
        return table

    def forward(self, positions: Tensor) -> Tensor:
        """int64 positions of any shape (...) -> float32 (..., d_model), on their device.

        Who adds it to half precision converts it first, as a stored matrix would be converted.
        """
        # Indexing would take -1 for the last row.
        return nn.functional.embedding(positions, self._on(positions.device))


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
        # From -1 at the first position to 1 at the last; a single position is at -1.
        x = 2.0 * positions.double() / max(1, self.max_seq_len - 1) - 1.0
        # (num_bands,), up to the Nyquist frequency: half of the number of positions.
        bands = torch.linspace(1.0, self.max_seq_len / 2, self.num_bands, dtype=x.dtype, device=x.device)
        # (..., num_bands)
        angles = math.pi * x[..., None] * bands
        return torch.cat((x[..., None], angles.sin(), angles.cos()), dim=-1)
