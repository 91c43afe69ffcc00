"""One block of rows of attention: its scores, made in place, and sums of its weights.

Sums are of given values, and of the distance between a query and its keys.
The keys are taken in portions, and one product gives for each portion sum p v, sum p, sum p t and sum p t^2,
where t counts from the portion's middle. Added up, the first is `weights @ values`. The others give mean and
spread of the distance without cancellation: where a portion lies before or after a query as a whole,
d = |position - key| = |u| - t sign(u), with u from the query to the portion's middle, and

    sum p (d - mean)^2 = (|u| - mean)^2 sum p - 2 (|u| - mean) sign(u) sum p t + sum p t^2

adds up numbers that are exact relative to what their portion weighs. Only in the portions among which the
block's own positions are, and which lie on both sides, distances are taken key by key.

Positions are sorted by group once, so that the members of a group, such as the other places of a word,
are a slice; a block of rows then picks the weights that count, pair by pair. A text has few such pairs; a
block never has more than entries.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core._attention import bias_block, expand_heads, mask_block
from regard.core._inputs import AttentionInputs
from regard.core.errors import InputError
from regard.core.tensors import as_tensor, on_cpu


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
        >>> import torch
        >>> from regard.core import Groups
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
        # Without units, each position is its own.
        unit = torch.arange(len(self.group), device=self.group.device) if self.unit is None else self.unit
        # All of the group, less those of the same unit; -1 is no group.
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
        # Sorted by group, so that a group is one stretch of `_order`.
        group = groups.group.cpu()
        self._unit = torch.arange(len(group)) if groups.unit is None else groups.unit.cpu()
        self._order = group.argsort(stable=True)
        ranked = group[self._order].contiguous()
        # Where a position's group begins in that order, and how many are in it.
        self._first = torch.searchsorted(ranked, group)
        self._count = torch.searchsorted(ranked, group, right=True) - self._first
        self._count[group < 0] = 0

    def pairs(self, rows: range, keys: range) -> tuple[Tensor, Tensor]:
        """Rows of a block, each with a key of its own group, both counted from the block's first."""
        at_rows = slice(rows.start, rows.stop)
        count = self._count[at_rows]
        # A row comes as often as its group has members; `within` counts them from 0.
        row = torch.repeat_interleave(torch.arange(len(rows)), count)
        within = torch.arange(len(row)) - torch.repeat_interleave(count.cumsum(0) - count, count)
        # All pairs; those outside the block, or of the own unit, go.
        key = self._order[self._first[at_rows][row] + within]
        kept = (key >= keys.start) & (key < keys.stop) & (self._unit[key] != self._unit[row + rows.start])
        return row[kept], key[kept] - keys.start

    def sums(self, weights: Tensor, rows: range, keys: range) -> "GroupSums":
        """What adds up a block's weights by group."""
        row, key = self.pairs(rows, keys)
        # The place of a pair among the block's entries, read row by row.
        return GroupSums(row.to(weights.device), (row * len(keys) + key).to(weights.device))


@dataclass(frozen=True, eq=False)
class GroupSums:
    """The pairs of one block: the row of each, and its place among the block's entries."""

    row: Tensor
    entry: Tensor

    def summed(self, weights: Tensor) -> Tensor:
        """weights (n, rows, keys) added up to (n, rows)."""
        total = weights.new_zeros(weights.shape[:2])
        # Only the pairs' weights are read: (n, pairs).
        picked = weights.flatten(1).index_select(1, self.entry)
        return total.scatter_add_(1, self.row.expand(len(picked), -1), picked)


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
        # The columns: C values, then 1, offset and offset^2 for the distances; rounded up to _COLUMNS.
        total = self._width + (0 if positions is None else 3)
        self._table = like.new_zeros(len(keys), -(-total // _COLUMNS) * _COLUMNS)
        if values is not None:
            self._table[:, : self._width] = values
        if self._distances is not None:
            self._table[:, self._width : total] = self._distances.columns

    def sums_of(self, weights: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """weights @ values (n, rows, C), and mean and spread of the distance (n, rows), each if asked for."""
        # Neither values nor distances were asked for.
        if not self._table.shape[1]:
            return None, None, None
        # One product gives all sums.
        sums = self._by_portion(weights)
        mass = sums[..., : self._width].sum(dim=0) if self._width else None
        if self._distances is None:
            return mass, None, None
        # By portion, in float64: mass, sum of w * offset, sum of w * offset^2.
        moments = sums[..., self._width : self._width + 3].double()
        return mass, *self._distances.moments(weights, *moments.unbind(dim=3))

    def _by_portion(self, weights: Tensor) -> Tensor:
        """(portions, n, rows, columns), the table's columns summed over each portion of the keys."""
        n, rows, keys = weights.shape
        flat, columns = weights.view(n * rows, keys), self._table.shape[1]
        # Whole portions in one product by batches, the rest in another.
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
        # From the middle of a portion: small numbers, whose squares float32 holds exactly.
        offset = (at % PORTION - PORTION // 2).to(dtype)
        self.columns = torch.stack((torch.ones_like(offset), offset, offset**2), dim=1).to(like.device)
        starts = range(keys.start, keys.stop, PORTION)
        first, last = int(positions.min()), int(positions.max())
        # Portions that lie before every row, and that begin before some row: between them are both sides.
        # Within such a portion |position - key| has no kink, so that its sums give the mean.
        self._before = sum(start + PORTION <= first for start in starts)
        self._begun = max(self._before, sum(start <= last for start in starts))
        # A key is its portion's middle + offset.
        middles = torch.tensor(starts) + PORTION // 2
        away = (positions[None, :] - middles[:, None]).double().to(like.device)
        self._away, self._sign = away.abs()[:, None], away.sign()[:, None]  # (portions, 1, rows)
        # Between: neither side, so that they add nothing here.
        self._sign[self._before : self._begun] = 0.0
        self._around = slice(self._before * PORTION, min(len(keys), self._begun * PORTION))
        around = torch.tensor(keys[self._around], dtype=torch.int64)
        # Portions with keys on both sides are summed key by key.
        self._near = (positions[:, None] - around).abs().to(dtype).to(like.device)  # (rows, keys around)
        self._far = self._sign.abs()

    def moments(self, weights: Tensor, mass: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        # (n, rows, keys around)
        near = weights[..., self._around]
        total = mass.sum(dim=0).clamp(min=torch.finfo(weights.dtype).tiny)
        # |position - middle - offset| = away - sign * offset, weighted and summed.
        far = (self._far * self._away * mass - self._sign * first).sum(dim=0)
        # Both parts, over the mass of the row.
        mean = (far + (near * self._near).sum(dim=2)) / total
        beyond = self._away - mean
        # (away - mean - sign * offset)^2, expanded into the three sums.
        around_mean = self._far * (beyond * beyond * mass + second) - 2 * beyond * self._sign * first
        # The same of the keys around, directly: the mean is taken off before squaring, to keep digits.
        squares = (self._near - mean.to(weights.dtype)[..., None]).square_().mul_(near).sum(dim=2)
        variance = (around_mean.sum(dim=0) + squares) / total
        # Rounding may leave a little below 0.
        return mean, variance.clamp(min=0.0).sqrt()


@dataclass(frozen=True)
class Place:
    """The rows of some heads of some items, and the keys that these rows may see."""

    items: slice
    heads: slice
    of_keys: slice
    rows: range
    keys: range

    @property
    def at_rows(self) -> slice:
        """The rows as a slice."""
        return slice(self.rows.start, self.rows.stop)

    @property
    def at_keys(self) -> slice:
        """The keys as a slice."""
        return slice(self.keys.start, self.keys.stop)

    def put(self, whole: Tensor, part: Tensor) -> None:
        """Write (heads of all items, rows, ..) into (batch, heads, queries, ..)."""
        target = whole[self.items, self.heads, self.at_rows]
        target.copy_(part.view(target.shape))

    def add(self, whole: Tensor, part: Tensor) -> None:
        """Add (heads of all items, keys) to (batch, heads, keys)."""
        target = whole[self.items, self.heads, self.at_keys]
        target.add_(part.view(target.shape))

    def of_heads(self, numbers: Tensor, count: int) -> Tensor:
        """(heads,) as (heads of all items, 1)."""
        some = numbers[self.heads]
        return some.repeat(count // len(some))[:, None]


def places(inputs: AttentionInputs, rows: range, keys: range, entries: int) -> Iterator[Place]:
    """The heads of some rows, as many at once as have about so many entries: at least one head of keys."""
    batch, heads, kv_heads = inputs.q.shape[0], inputs.num_heads, inputs.k.shape[1]
    # Planes (rows, keys) at once; query heads for each key head.
    planes, group = max(1, entries // (len(rows) * len(keys))), heads // kv_heads
    # Whole items if one fits, else one item and some of its key heads.
    at_once, step = (planes // heads, kv_heads) if planes >= heads else (1, max(1, planes // group))
    for item in range(0, batch, at_once):
        items = slice(item, min(batch, item + at_once))
        for first in range(0, kv_heads, step):
            last = min(kv_heads, first + step)
            # Query heads of whole groups, with their key heads.
            yield Place(items, slice(first * group, last * group), slice(first, last), rows, keys)


def write_products(inputs: AttentionInputs, k: Tensor, place: Place, scores: Tensor) -> None:
    """scale * the scorer's score, capped, into (items, heads, rows, keys).

    Of a record of dot products, as `as_dot_product` gives it, a group's query heads go in one product.
    """
    softcap = inputs.softcap
    # softcap * tanh(factor * s / softcap): the division is done on q, which is smaller.
    factor = inputs.factor if softcap is None else inputs.factor / softcap
    some = k[place.items, place.of_keys, place.at_keys]
    q = inputs.q[place.items, place.heads, place.at_rows].to(k.dtype)
    # Additive scores write themselves.
    if inputs.scorer.operands(q, some) is None:
        scorer = inputs.scorer.of_heads(range(inputs.num_heads)[place.heads])
        torch.mul(scorer.scores(q, expand_heads(some, q.shape[1])), factor, out=scores)
    else:
        # Rows of all heads of a group in one product with their keys.
        count = some.shape[0] * some.shape[1]
        torch.bmm(
            # (items * kv_heads, group * rows, head_dim)
            torch.mul(q, factor).reshape(count, -1, q.shape[3]),
            some.flatten(0, 1).mT,
            out=scores.view(count, -1, scores.shape[3]),
        )
    if softcap is not None:
        scores.tanh_().mul_(softcap)


class MaskAndBias:
    """Mask and bias of a block, made once for all the heads and items that come one after the other.

    A hidden score becomes `floor`.
    """

    def __init__(self, inputs: AttentionInputs, rows: range, keys: range, floor: float) -> None:
        device = inputs.q.device
        at_rows, at_keys = as_tensor(rows, device), as_tensor(keys, device)
        self._floor = floor
        self._bias = bias_block(inputs, at_rows, at_keys)
        self._hidden: Tensor | None = None
        allowed = mask_block(inputs, at_rows, at_keys)
        if allowed is not None:
            # Filled only where some row has a hidden key.
            self._columns = _hidden_columns(allowed, len(keys))
            if self._columns.start < self._columns.stop:
                self._hidden = ~(allowed if allowed.shape[3] == 1 else allowed[..., self._columns])

    def to(self, scores: Tensor, place: Place) -> None:
        """Add to scores (items, heads, rows, keys), in place."""
        if self._bias is not None:
            # A bias of -inf becomes the floor as well.
            scores.add_(_part(self._bias, place)).clamp_(min=self._floor)
        if self._hidden is not None:
            scores[..., self._columns].masked_fill_(_part(self._hidden, place), self._floor)


def _hidden_columns(allowed: Tensor, count: int) -> slice:
    """Columns outside of which every row sees every key; all, where looking would make a device wait.

    Of a causal block these are the last few: the mask then costs next to nothing.
    """
    if not on_cpu(allowed) or allowed.shape[3] == 1:
        return slice(0, count)
    # (keys,): hidden from at least one row, head or item.
    hidden = (~allowed.flatten(0, 2).all(dim=0)).nonzero()[:, 0]
    return slice(int(hidden[0]), int(hidden[-1]) + 1) if len(hidden) else slice(0, 0)


def _part(block: Tensor, place: Place) -> Tensor:
    # Axes of size 1 stand for all items, or all heads.
    some = block if block.shape[0] == 1 else block[place.items]
    return some if some.shape[1] == 1 else some[:, place.heads]


def largest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score of each row (n, rows, keys), and its column, the first of equal ones.

    To look for a maximum's place takes six times as long as to look for the maximum: first its portion.
    """
    keys = scores.shape[2]
    whole = keys // PORTION
    # Fewer keys than a portion: torch's own way.
    if not whole:
        most, at = scores.max(dim=2)
        return most, at
    # The largest of each portion first: reading without indices is the quicker part.
    end = whole * PORTION
    # A view with one axis more; `unflatten` is not typed.
    shape = (*scores.shape[:2], whole, PORTION)
    parts = [scores.as_strided(shape, (*scores.stride()[:2], PORTION, 1)).amax(dim=3)]
    if end < keys:
        parts.append(scores[..., end:].amax(dim=2, keepdim=True))
    portions = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
    # The first portion that has it.
    most, portion = portions.max(dim=2)
    # Then the place within that portion alone.
    columns = portion[..., None] * PORTION + torch.arange(PORTION, device=scores.device)
    # The last portion may be short: its last key then stands in several places.
    columns.clamp_(max=keys - 1)
    within = scores.gather(2, columns).argmax(dim=2, keepdim=True)
    return most, columns.gather(2, within)[..., 0]


def at_places(weights: Tensor, wanted: Tensor, keys: range) -> Tensor:
    """The weights (n, rows, m) at some keys of each row; 0 for -1, and for keys that no row here sees."""
    # Keys outside the block have no weight from its rows.
    inside = (wanted >= keys.start) & (wanted < keys.stop)
    columns = torch.where(inside, wanted - keys.start, 0)
    return weights.gather(2, columns.expand(len(weights), -1, -1)) * inside
