"""Weight on the keys of a query's own group, such as the other places of its word.

The positions are sorted by group once, so that the members of a group are a slice; a block of rows then picks
the weights that count, pair by pair. A text has few such pairs; a block never has more than entries.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Groups:
    """Which keys belong together with a query, where queries and keys are the same positions.

    Args:
        group: int64 (positions,), the group of each position, -1 for none.
        unit: int64 (positions,), a query's own unit; keys of the same unit are left out. By default each
            position is a unit of its own, so that only the query itself is left out.

    Raises:
        InputError: they are no such tensors.

    Example:
        >>> groups = Groups(torch.tensor([0, 1, 0, 0]), torch.tensor([0, 1, 2, 2]))
        >>> groups.others().tolist()  # for each position, how many keys belong to it
        [2, 0, 1, 1]
    """

    group: Tensor
    unit: Tensor | None = None

    def __post_init__(self) -> None:
        for name, ids in (("group", self.group), ("unit", self.unit)):
            if ids is not None and (
                ids.dtype != torch.int64
                or ids.ndim != 1
                or len(ids) != len(self.group)
                or ids.device != self.group.device
            ):
                raise InputError(
                    f"{name} must be int64 of shape (positions,), the same for group and unit; "
                    f"got {ids.dtype} of shape {tuple(ids.shape)} on {ids.device}."
                )

    def others(self) -> Tensor:
        """int64 (positions,), the number of keys that belong to each position."""
        unit = torch.arange(len(self.group), device=self.group.device) if self.unit is None else self.unit
        own = torch.stack((self.group, unit), dim=1)
        return (_times(self.group) - _times(own)).masked_fill(self.group < 0, 0)


def _times(values: Tensor) -> Tensor:
    """How often each value, or row of values, is there."""
    count: Tensor
    _, which, count = torch.unique(values, dim=0, return_inverse=True, return_counts=True)
    return count[which]


class Members:
    """The positions of each group, one group after the other; on the CPU, where nothing is waited for."""

    def __init__(self, groups: Groups) -> None:
        group = groups.group.cpu()
        self._unit = torch.arange(len(group)) if groups.unit is None else groups.unit.cpu()
        self._order = group.argsort(stable=True)
        ranked = group[self._order].contiguous()
        self._first = torch.searchsorted(ranked, group)
        self._count = torch.searchsorted(ranked, group, right=True) - self._first
        self._count[group < 0] = 0

    def pairs(self, rows: range, keys: range) -> tuple[Tensor, Tensor]:
        """Rows of a block, each with a key of its own group, both counted from the block's first."""
        at_rows = slice(rows.start, rows.stop)
        count = self._count[at_rows]
        row = torch.repeat_interleave(torch.arange(len(rows)), count)
        within = torch.arange(len(row)) - torch.repeat_interleave(count.cumsum(0) - count, count)
        key = self._order[self._first[at_rows][row] + within]
        kept = (key >= keys.start) & (key < keys.stop) & (self._unit[key] != self._unit[row + rows.start])
        return row[kept], key[kept] - keys.start

    def sums(self, weights: Tensor, rows: range, keys: range) -> "GroupSums":
        """What adds up a block's weights by group."""
        row, key = self.pairs(rows, keys)
        return GroupSums(row.to(weights.device), (row * len(keys) + key).to(weights.device))


@dataclass(frozen=True, eq=False)
class GroupSums:
    """The pairs of one block: the row of each, and its place among the block's entries."""

    row: Tensor
    entry: Tensor

    def of(self, weights: Tensor) -> Tensor:
        """weights (n, rows, keys) added up to (n, rows)."""
        total = weights.new_zeros(weights.shape[:2])
        picked = weights.flatten(1).index_select(1, self.entry)
        return total.scatter_add_(1, self.row.expand(len(picked), -1), picked)
