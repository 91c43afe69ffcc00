"""Weighted sums over a block of weights: of given values, and of the distance between a query and its keys.

The keys are taken in portions, and one product gives for each portion sum p v, sum p, sum p t and sum p t^2,
where t counts from the portion's middle. Added up, the first is `weights @ values`. The others give mean and
spread of the distance without cancellation: where a portion lies before or after a query as a whole,
d = |position - key| = |u| - t sign(u), with u from the query to the portion's middle, and

    sum p (d - mean)^2 = (|u| - mean)^2 sum p - 2 (|u| - mean) sign(u) sum p t + sum p t^2

adds up numbers that are exact relative to what their portion weighs. Only in the portions among which the
block's own positions are, and which lie on both sides, distances are taken key by key.
"""

import torch
from torch import Tensor

PORTION = 128
"""Keys of a portion."""

# The product of a wide matrix with fewer columns than this costs more than with so many.
_COLUMNS = 16


class BlockSums:
    """What is multiplied with the weights of a block of rows, whatever the head.

    `values` are (len(keys), C) of these keys, `positions` int64 (rows,), on the CPU, where the rows stand
    among all keys; `like` has the dtype and device.
    """

    def __init__(self, keys: range, values: Tensor | None, positions: Tensor | None, like: Tensor) -> None:
        self._count, self._whole = len(keys), len(keys) // PORTION
        self._width = 0 if values is None else values.shape[1]
        self._distances = None if positions is None else _Distances(keys, positions, like)
        total = self._width + (0 if positions is None else 3)
        self._table = like.new_zeros(len(keys), -(-total // _COLUMNS) * _COLUMNS)
        if values is not None:
            self._table[:, : self._width] = values
        if self._distances is not None:
            self._table[:, self._width : total] = self._distances.columns

    def of(self, weights: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """weights @ values (n, rows, C), and mean and spread of the distance (n, rows), each if asked for."""
        if not self._table.shape[1]:
            return None, None, None
        sums = self._by_portion(weights)
        mass = sums[..., : self._width].sum(dim=0) if self._width else None
        if self._distances is None:
            return mass, None, None
        moments = sums[..., self._width : self._width + 3].double()
        return mass, *self._distances.of(weights, *moments.unbind(dim=3))

    def _by_portion(self, weights: Tensor) -> Tensor:
        """(portions, n, rows, columns), the table's columns summed over each portion of the keys."""
        n, rows, keys = weights.shape
        flat, columns = weights.view(n * rows, keys), self._table.shape[1]
        end = self._whole * PORTION
        sums = weights.new_empty(-(-keys // PORTION), n * rows, columns)
        if end:
            # Views with one axis more; `unflatten` is not typed, and `view` refuses a part of each row.
            portions = flat.as_strided((self._whole, n * rows, PORTION), (PORTION, keys, 1))
            table = self._table[:end].view(self._whole, PORTION, columns)
            torch.bmm(portions, table, out=sums[: self._whole])
        if end < keys:
            torch.mm(flat[:, end:], self._table[end:], out=sums[self._whole])
        return sums.view(-1, n, rows, columns)


class _Distances:
    """Mean and spread of |position - key| from the sums over portions."""

    def __init__(self, keys: range, positions: Tensor, like: Tensor) -> None:
        at, dtype = torch.arange(len(keys)), like.dtype
        offset = (at % PORTION - PORTION // 2).to(dtype)
        self.columns = torch.stack((torch.ones_like(offset), offset, offset**2), dim=1).to(like.device)
        starts = range(keys.start, keys.stop, PORTION)
        first, last = int(positions.min()), int(positions.max())
        # Portions that lie before every row, and that begin before some row: between them are both sides.
        self._before = sum(start + PORTION <= first for start in starts)
        self._begun = max(self._before, sum(start <= last for start in starts))
        middles = torch.tensor(starts) + PORTION // 2
        away = (positions[None, :] - middles[:, None]).double().to(like.device)
        self._away, self._sign = away.abs()[:, None], away.sign()[:, None]  # (portions, 1, rows)
        self._sign[self._before : self._begun] = 0.0
        self._around = slice(self._before * PORTION, min(len(keys), self._begun * PORTION))
        around = torch.tensor(keys[self._around], dtype=torch.int64)
        self._near = (positions[:, None] - around).abs().to(dtype).to(like.device)  # (rows, keys around)
        self._far = self._sign.abs()

    def of(self, weights: Tensor, mass: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        near = weights[..., self._around]
        total = mass.sum(dim=0).clamp(min=torch.finfo(weights.dtype).tiny)
        far = (self._far * self._away * mass - self._sign * first).sum(dim=0)
        mean = (far + (near * self._near).sum(dim=2)) / total
        beyond = self._away - mean
        around_mean = self._far * (beyond * beyond * mass + second) - 2 * beyond * self._sign * first
        squares = (self._near - mean.to(weights.dtype)[..., None]).square_().mul_(near).sum(dim=2)
        variance = (around_mean.sum(dim=0) + squares) / total
        return mean, variance.clamp(min=0.0).sqrt()
