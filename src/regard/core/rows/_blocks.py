"""One block of rows of attention: its scores, made in place, and where their statistics go."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core._attention import bias_block, expand_heads, mask_block
from regard.core._devices import on_cpu
from regard.core._inputs import AttentionInputs
from regard.core._positions import as_tensor
from regard.core.rows._sums import PORTION


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
    planes, group = max(1, entries // (len(rows) * len(keys))), heads // kv_heads
    at_once, step = (planes // heads, kv_heads) if planes >= heads else (1, max(1, planes // group))
    for item in range(0, batch, at_once):
        items = slice(item, min(batch, item + at_once))
        for first in range(0, kv_heads, step):
            last = min(kv_heads, first + step)
            yield Place(items, slice(first * group, last * group), slice(first, last), rows, keys)


def write_products(inputs: AttentionInputs, k: Tensor, place: Place, scores: Tensor) -> None:
    """scale * the scorer's score, capped, into (items, heads, rows, keys).

    Of a record of dot products, as `as_dot_product` gives it, a group's query heads go in one product.
    """
    softcap = inputs.softcap
    factor = inputs.factor if softcap is None else inputs.factor / softcap
    some = k[place.items, place.of_keys, place.at_keys]
    q = inputs.q[place.items, place.heads, place.at_rows].to(k.dtype)
    if inputs.scorer.operands(q, some) is None:
        scorer = inputs.scorer.of_heads(range(inputs.num_heads)[place.heads])
        torch.mul(scorer.scores(q, expand_heads(some, q.shape[1])), factor, out=scores)
    else:
        count = some.shape[0] * some.shape[1]
        torch.bmm(
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
            self._columns = _hidden_columns(allowed, len(keys))
            if self._columns.start < self._columns.stop:
                self._hidden = ~(allowed if allowed.shape[3] == 1 else allowed[..., self._columns])

    def to(self, scores: Tensor, place: Place) -> None:
        """Add to scores (items, heads, rows, keys), in place."""
        if self._bias is not None:
            scores.add_(_part(self._bias, place)).clamp_(min=self._floor)
        if self._hidden is not None:
            scores[..., self._columns].masked_fill_(_part(self._hidden, place), self._floor)


def _hidden_columns(allowed: Tensor, count: int) -> slice:
    """Columns outside of which every row sees every key; all, where looking would make a device wait.

    Of a causal block these are the last few: the mask then costs next to nothing.
    """
    if not on_cpu(allowed) or allowed.shape[3] == 1:
        return slice(0, count)
    hidden = (~allowed.flatten(0, 2).all(dim=0)).nonzero()[:, 0]
    return slice(int(hidden[0]), int(hidden[-1]) + 1) if len(hidden) else slice(0, 0)


def _part(block: Tensor, place: Place) -> Tensor:
    some = block if block.shape[0] == 1 else block[place.items]
    return some if some.shape[1] == 1 else some[:, place.heads]


def largest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score of each row (n, rows, keys), and its column, the first of equal ones.

    To look for a maximum's place takes six times as long as to look for the maximum: first its portion.
    """
    keys = scores.shape[2]
    whole = keys // PORTION
    if not whole:
        found, at = scores.max(dim=2)
        return found, at
    end = whole * PORTION
    # A view with one axis more; `unflatten` is not typed.
    shape = (*scores.shape[:2], whole, PORTION)
    parts = [scores.as_strided(shape, (*scores.stride()[:2], PORTION, 1)).amax(dim=3)]
    if end < keys:
        parts.append(scores[..., end:].amax(dim=2, keepdim=True))
    portions = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
    most, portion = portions.max(dim=2)
    columns = portion[..., None] * PORTION + torch.arange(PORTION, device=scores.device)
    columns.clamp_(max=keys - 1)
    within = scores.gather(2, columns).argmax(dim=2, keepdim=True)
    return most, columns.gather(2, within)[..., 0]


def at_places(weights: Tensor, wanted: Tensor, keys: range) -> Tensor:
    """The weights (n, rows, m) at some keys of each row; 0 for -1, and for keys that no row here sees."""
    inside = (wanted >= keys.start) & (wanted < keys.stop)
    columns = torch.where(inside, wanted - keys.start, 0)
    return weights.gather(2, columns.expand(len(weights), -1, -1)) * inside
