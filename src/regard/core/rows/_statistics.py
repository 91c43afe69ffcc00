"""What can be said of every row of attention without keeping one: entropy, largest weight, sums, distances.

One pass over blocks of rows. A block's scores stay in the cache while everything is read from them, and keys
that no row of the block may see are left out. With s the softmax's argument over the keys, m = max s, p its
softmax and Z = sum exp(s - m):

    max p    = 1 / Z                       so that the softmax has told Z already
    lse      = m + log Z
    entropy  = log Z - sum p (s - m)       no logarithm of an entry, and nothing large cancels
    mass     = p @ values
    received = sum over the rows of p

Of a sink, one more column, only the score is needed: lse' = log(exp(lse) + exp(sink)), a key's weight is
exp(lse - lse') p, and the entropy grows by that of the two shares. A row that sees nothing has a share of 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from regard.core._attention import at_least_float32, without_autocast
from regard.core._blocks import plan
from regard.core._inputs import AttentionInputs
from regard.core.errors import InputError
from regard.core.rows._blocks import (
    BlockSums,
    Groups,
    GroupSums,
    MaskAndBias,
    Members,
    Place,
    at_places,
    largest,
    places,
    write_products,
)
from regard.core.tensors import ON_DEVICE, as_tensor, on_cpu

# Entries of one head's block, and of all heads' that are worked on at once. Two blocks are alive, 16 MB in
# float32, about what a processor's last cache holds. Half of it costs as much in calls as this in misses,
# and a quarter of it half as much again.
_OF_ONE_HEAD = 2**18
_AT_ONCE = 2**21

# Rows that a product should have at least, as far as all of one head's are not more than may be at once.
_ROWS = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStatistics:
    """What `row_statistics` found; float32 or q's wider type, on q's device, before dropout.

    Attributes:
        entropy: (batch, heads, queries), -sum p log p over all columns of the softmax, in nats.
        largest: (batch, heads, queries), the largest weight of a key; a sink is no key.
        largest_at: int64 (batch, heads, queries), its key, the first of equal ones; -1 in an empty row.
        lse: (batch, heads, queries), log sum exp of the masked scores, sink included; -inf in an empty row.
            Of weights that were written the logarithm of their sum.
        received: (batch, heads, keys), the sum of each key's weights over the queries.
        mass: (batch, heads, queries, C), weights @ values; None without values.
        at_places: (batch, heads, queries, m), the weights at the places; None without places.
        at_groups: (batch, heads, queries, number of groups), the weight on the keys that belong to the query;
            None without groups.
        distance: (batch, heads, queries), mean of |position - key| under the weights of the keys; None
            without positions.
        spread: the standard deviation of |position - key|, likewise.
        top_weights: (batch, heads, queries, k), the largest weights in falling order, then zeros; None if k
            is 0.
        top_keys: int64, their keys, -1 where fewer than k keys can be seen.
        sink: (batch, heads, queries), the weight of the sink; None where there is none.
    """

    entropy: Tensor
    largest: Tensor
    largest_at: Tensor
    lse: Tensor
    received: Tensor
    mass: Tensor | None = None
    at_places: Tensor | None = None
    at_groups: Tensor | None = None
    distance: Tensor | None = None
    spread: Tensor | None = None
    top_weights: Tensor | None = None
    top_keys: Tensor | None = None
    sink: Tensor | None = None


@without_autocast
def row_statistics(
    inputs: AttentionInputs,
    *,
    values: Tensor | None = None,
    places: Tensor | None = None,
    positions: Tensor | None = None,
    groups: Sequence[Groups] = (),
    top_k: int = 0,
) -> RowStatistics:
    """Statistics of every row of the weights, from the record alone, in O(N) memory.

    The arithmetic is that of float32 (of float64 for float64): every weight is as exact as its score.

    Args:
        inputs: the record; scorer, mask, bias, scale, softcap, sinks and grouped heads are honoured, dropout
            is not.
        values: (keys, C) floating point; `mass` is weights @ values. A column of zeros and ones gives the
            weight on a set of keys, and any linear statistic is a column.
        places: int64 (queries, m), some keys of each query, -1 for none; `at_places` are the weights there.
        positions: int64 (queries,), where each query stands among the keys; `distance` and `spread` are of
            |position - key|, over the weights of the keys alone (a sink is nowhere).
        groups: which keys belong to a query; see `Groups`.
        top_k: how many of the largest weights of each row are given, with their keys.

    Returns:
        See `RowStatistics`. Where a query may attend to nothing all is 0, `lse` is -inf, and keys are -1.

    Raises:
        InputError: an argument of another shape or dtype, a place that is no key, or top_k below 0.

    Example:
        >>> from regard.core import AttentionInputs, row_statistics
        >>> import torch
        >>> from regard.core import Causal
        >>> zeros = torch.zeros(1, 1, 4, 2)
        >>> told = row_statistics(AttentionInputs(q=zeros, k=zeros, v=zeros, mask=Causal()))
        >>> told.entropy[0, 0].exp().round(decimals=4)
        tensor([1., 2., 3., 4.])
        >>> told.received[0, 0].round(decimals=4)
        tensor([2.0833, 1.0833, 0.5833, 0.2500])
    """
    # Checked before the first block is worked on.
    asked = _Asked(values, places, positions, groups, top_k)
    asked.check(inputs)
    with torch.no_grad():
        if inputs.weights is None:
            # Three sources of weights: q and k, a kernel, or an edit that wrote some heads.
            kind = _Pass if inputs.kernel is None else _OfKernel
            return kind(inputs, asked).statistics()
        return _with_written(inputs, asked)


def _with_written(inputs: AttentionInputs, asked: "_Asked") -> RowStatistics:
    """The statistics of a record some of whose weights were written."""
    of_written = _Written(inputs, asked).statistics()
    if inputs.written is None:
        return of_written
    # All heads by q and k, then the written ones over it.
    every_head = row_statistics(inputs.unwritten(), **vars(asked))
    for field in fields(every_head):
        every: Tensor | None = getattr(every_head, field.name)
        if every is not None:
            every[:, list(inputs.written)] = getattr(of_written, field.name)
    return every_head


@dataclass(frozen=True, eq=False)
class _Asked:
    """The arguments of `row_statistics`."""

    values: Tensor | None
    places: Tensor | None
    positions: Tensor | None
    groups: Sequence[Groups]
    top_k: int

    def check(self, inputs: AttentionInputs) -> None:
        """Raise InputError where something does not fit the record."""
        keys, queries, device = inputs.k_len, inputs.q_len, inputs.q.device
        places, top_k = self.places, self.top_k
        for name, tensor, shape, of_type in (
            ("values", self.values, f"(keys, C) = ({keys}, C)", "floating point"),
            ("places", places, f"(queries, m) = ({queries}, m)", "int64"),
        ):
            if tensor is not None and not (
                tensor.ndim == 2
                and len(tensor) == (keys if name == "values" else queries)
                and (tensor.is_floating_point() if name == "values" else tensor.dtype == torch.int64)
                and tensor.device == device
            ):
                raise InputError(f"{name} must be {of_type} of shape {shape} on {device}; {_told(tensor)}.")
        if places is not None and places.numel():
            lowest, highest = (int(each) for each in places.aminmax())
            if lowest < -1 or highest >= keys:
                raise InputError(
                    f"places must be keys from 0 to {keys - 1}, or -1 for none; got {lowest} to {highest}."
                )
        at = self.positions
        if at is not None and (at.dtype != torch.int64 or at.shape != (queries,)):
            raise InputError(f"positions must be int64 of shape (queries,) = ({queries},); {_told(at)}.")
        for groups in self.groups:
            if not len(groups.group) == queries == keys:
                raise InputError(
                    "groups are of queries and keys that are the same positions, of which there are "
                    f"{queries} and {keys} here; got groups of {len(groups.group)}."
                )
        if isinstance(top_k, bool) or not isinstance(top_k, int) or not 0 <= top_k <= keys:
            raise InputError(f"top_k must be from 0 to {keys}, the number of keys; got {top_k!r}.")


def _told(tensor: Tensor) -> str:
    return f"got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"


@dataclass(frozen=True, eq=False)
class _Block:
    """What is wanted of a block's weights, prepared once for all its heads."""

    places: Tensor | None
    sums: BlockSums
    groups: list[GroupSums]


class _Pass:
    """The pass over the blocks, and the room for what it finds."""

    def __init__(self, inputs: AttentionInputs, asked: _Asked) -> None:
        # A scorer becomes dot products where it can, and a mask is dropped where it hides nothing.
        mask = None if inputs.mask is None else inputs.mask.simplified(inputs.q_len, inputs.k_len)
        inputs = (inputs.as_dot_product() or inputs).changed(mask=mask)
        self.inputs = inputs
        self.asked = asked
        self.dtype = at_least_float32(inputs.q)
        # What padding may hold in a key reaches its own scores only, which are all overwritten.
        # Converted once: every block reads all keys that it may see.
        self.k = inputs.k.to(self.dtype).contiguous()
        self.sinks = None if inputs.sinks is None else inputs.sinks.to(self.dtype)
        # What a hidden score becomes: far below every other, and finite, since 0 * -inf would be NaN.
        self.floor = -torch.finfo(self.dtype).max / 4
        self.values = None if asked.values is None else asked.values.to(self.dtype)
        # On the CPU, where a look at a number need not be waited for.
        self.positions = None if asked.positions is None else asked.positions.cpu()
        self.members = [Members(each) for each in asked.groups]
        self.result = self._room_for_all()

    def _room_for_all(self) -> RowStatistics:
        asked, q = self.asked, self.inputs.q
        # (batch, heads, queries)
        shape = q.shape[:3]

        def room(*more: int) -> Tensor:
            return q.new_zeros((*shape, *more), dtype=self.dtype)

        return RowStatistics(
            entropy=room(),
            largest=room(),
            largest_at=q.new_zeros(shape, dtype=torch.int64),
            lse=room(),
            # Every block adds to it: in float32 a long text's later blocks would be rounded away.
            received=q.new_zeros((*shape[:2], self.inputs.k_len), dtype=torch.float64),
            mass=None if self.values is None else room(self.values.shape[1]),
            at_places=None if asked.places is None else room(asked.places.shape[1]),
            at_groups=room(len(self.members)) if self.members else None,
            distance=None if self.positions is None else room(),
            spread=None if self.positions is None else room(),
            top_weights=room(asked.top_k) if asked.top_k else None,
            top_keys=q.new_full((*shape, asked.top_k), -1, dtype=torch.int64) if asked.top_k else None,
            sink=None if self.sinks is None else room(),
        )

    def statistics(self) -> RowStatistics:
        inputs = self.inputs
        batch, heads, queries, _ = inputs.q.shape
        # Entries at once: by the cache on the CPU, by the cost of calls elsewhere.
        most = _AT_ONCE if on_cpu(inputs.q) else ON_DEVICE
        group = heads // inputs.k.shape[1]
        # A group's heads share a product, and are worked on together however many they are.
        of_one_head = min(max(1, most // group), max(_OF_ONE_HEAD, _ROWS * inputs.k_len))
        # Never more than the whole matrix; at least one row of a group.
        size = min(batch * heads * queries * inputs.k_len, max(most, group * inputs.k_len))
        # Scores and weights: the same memory for all blocks.
        room = inputs.q.new_empty(2, size, dtype=self.dtype)
        # Rows with the keys that they may see; within these, heads and items.
        for rows, keys in plan(inputs, planes=1, entries=of_one_head):
            added = MaskAndBias(inputs, rows, keys, self.floor)
            block = self._block(rows, keys)
            for place in places(inputs, rows, keys, most):
                shape = (
                    place.items.stop - place.items.start,
                    place.heads.stop - place.heads.start,
                    len(rows),
                    len(keys),
                )
                scores, weights = (each[: math.prod(shape)].view(shape) for each in room)
                self._fill(scores, place, added)
                self._read(scores.flatten(0, 1), weights.flatten(0, 1), block, place)
        # Summed in float64, told in the type of the rest.
        return replace(self.result, received=self.result.received.to(self.dtype))

    def _fill(self, scores: Tensor, place: Place, added: MaskAndBias) -> None:
        """The masked scores of a block."""
        write_products(self.inputs, self.k, place, scores)
        added.to(scores, place)

    def _block(self, rows: range, keys: range) -> _Block:
        at_rows, at_keys = slice(rows.start, rows.stop), slice(keys.start, keys.stop)
        # The parts of what was asked that belong to these rows and keys.
        values = None if self.values is None else self.values[at_keys]
        positions = None if self.positions is None else self.positions[at_rows]
        return _Block(
            places=None if self.asked.places is None else self.asked.places[at_rows],
            sums=BlockSums(keys, values, positions, self.k),
            groups=[members.sums(self.k, rows, keys) for members in self.members],
        )

    def _read(self, scores: Tensor, weights: Tensor, block: _Block, place: Place) -> None:
        """All statistics of the scores (n, rows, keys) of some heads; it overwrites the scores."""
        result, keys = self.result, place.keys
        # (n, rows): m and its column
        most, at = largest(scores)
        # Hidden scores are at the floor; a bias on them leaves them far below this.
        empty = most <= self.floor / 2
        # Fewer where a block has fewer keys; the room that is left says that there are none.
        top = scores.topk(min(self.asked.top_k, len(keys)), dim=2) if self.asked.top_k else None
        # With m the largest score, the largest weight is exp(0) / Z, Z = sum exp(x - m), and gives log Z.
        # Then H = log Z - sum p (x - m) takes one product, in the memory of the scores, and no logarithms.
        scores.sub_(most[..., None])
        torch.softmax(scores, dim=-1, out=weights)
        # exp(0) / Z
        at_most = weights.gather(2, at[..., None])[..., 0]
        log_z = -at_most.log()
        # `scores` is x - m, and is spent here.
        share = self._put_entropy(log_z - scores.mul_(weights).sum(dim=2), most + log_z, empty, place)
        # `share`: what the sink leaves to the keys; 0 in empty rows.
        place.put(result.largest, at_most * share)
        place.put(result.largest_at, (at + keys.start).masked_fill_(empty, -1))
        # sum over rows of share * weight, one product for all keys.
        place.add(result.received, torch.bmm(share[:, None], weights)[:, 0])
        if top is not None and result.top_weights is not None and result.top_keys is not None:
            # A row with fewer visible keys than top_k says -1 for the rest.
            hidden, count = top.values <= self.floor / 2, top.values.shape[2]
            chosen = weights.gather(2, top.indices) * share[..., None]
            place.put(result.top_weights[..., :count], chosen)
            place.put(result.top_keys[..., :count], (top.indices + keys.start).masked_fill_(hidden, -1))
        self._put_sums(weights, share, empty, block, place)

    def _put_entropy(self, entropy: Tensor, lse: Tensor, empty: Tensor, place: Place) -> Tensor:
        """Entropy and logsumexp with the sink, and the factor for the keys' own weights, (n, rows)."""
        result = self.result
        if self.sinks is None:
            # No sink: the keys have all of the weight.
            share = torch.ones_like(lse).masked_fill_(empty, 0.0)
            place.put(result.entropy, entropy * share)
            place.put(result.lse, lse.masked_fill(empty, -math.inf))
            return share
        sinks = place.of_heads(self.sinks, len(lse))
        # log(Z_keys + exp(sink))
        total = torch.logaddexp(lse, sinks)
        share, sink = (lse - total).exp(), (sinks - total).exp()
        # H = share * H(keys) - share log share - sink log sink
        place.put(result.entropy, share * entropy + torch.special.entr(share) + torch.special.entr(sink))
        place.put(result.lse, total)
        assert result.sink is not None, "there is room where there are sinks"
        place.put(result.sink, sink)
        return share

    def _put_sums(self, weights: Tensor, share: Tensor, empty: Tensor, block: _Block, place: Place) -> None:
        """What is summed over the keys: values, distances, places, groups."""
        result = self.result
        # Shares of the keys' own softmax: the mass shrinks with the sink, mean distances do not.
        mass, distance, spread = block.sums.sums_of(weights)
        if mass is not None and result.mass is not None:
            place.put(result.mass, mass * share[..., None])
        if distance is not None and result.distance is not None:
            place.put(result.distance, distance.masked_fill(empty, 0.0))
        if spread is not None and result.spread is not None:
            place.put(result.spread, spread.masked_fill(empty, 0.0))
        if block.places is not None and result.at_places is not None:
            place.put(result.at_places, at_places(weights, block.places, place.keys) * share[..., None])
        for index, group in enumerate(block.groups):
            assert result.at_groups is not None, "there is room for what was asked for"
            place.put(result.at_groups[..., index], group.summed(weights) * share)


class _Written(_Pass):
    """The pass over weights that were written: their logarithms are scores whose sum is not undone."""

    def __init__(self, inputs: AttentionInputs, asked: _Asked) -> None:
        assert inputs.weights is not None
        # A negative weight has no logarithm.
        if bool((inputs.weights < 0).any()):
            raise InputError(
                f"statistics must be of weights that are not negative; an edit wrote some below 0, of head "
                f"{', '.join(map(str, inputs.written_heads))}. Ask for weights, or for another layer."
            )
        self.weights = inputs.weights
        heads = list(inputs.written_heads)
        # Only the numbers of q and k count: the scores come from what was written.
        q, k = inputs.q[:, heads, :, :1], inputs.k[:, :1, :, :1]
        sinks = None if inputs.sinks is None else inputs.sinks[heads]
        super().__init__(AttentionInputs(q=q, k=k, v=k, sinks=sinks), asked)

    def _fill(self, scores: Tensor, place: Place, added: MaskAndBias) -> None:
        del added
        # log w as a score: softmax of it gives w / sum w, and lse gives log sum w.
        weights = self._at(place)[..., place.at_keys]
        scores.copy_(weights.to(self.dtype).log().clamp(min=self.floor))

    def _at(self, place: Place) -> Tensor:
        return self.weights[place.items, place.heads, place.at_rows]

    def _put_entropy(self, entropy: Tensor, lse: Tensor, empty: Tensor, place: Place) -> Tensor:
        # The row's sum, which need not be 1, is the share.
        result, share = self.result, lse.exp().masked_fill_(empty, 0.0)
        total = share * entropy + torch.special.entr(share)
        if result.sink is not None:
            sink = self.weights[place.items, place.heads, place.at_rows, -1].to(self.dtype).flatten(0, 1)
            place.put(result.sink, sink)
            total = total + torch.special.entr(sink)
        place.put(result.entropy, total)
        place.put(result.lse, lse.masked_fill(empty, -math.inf))
        return share


class _OfKernel(_Written):
    """The pass over a kernel's own weights, made for the rows of a block, all heads together."""

    def __init__(self, inputs: AttentionInputs, asked: _Asked) -> None:
        # `latest`: the rows of the block before, and their weights (batch, heads, rows, keys).
        self.record, self.latest = inputs, (range(0), inputs.q[:, :, :0])
        q, k = inputs.q[..., :1], inputs.k[:, :1, :, :1]
        _Pass.__init__(self, AttentionInputs(q=q, k=k, v=k), asked)

    def _at(self, place: Place) -> Tensor:
        # One block of rows serves all its heads and items.
        if self.latest[0] != place.rows:
            assert self.record.kernel is not None
            rows = as_tensor(place.rows, self.record.q.device)
            self.latest = place.rows, self.record.kernel.weights(self.record, rows)
        return self.latest[1][place.items, place.heads]
