"""What each row of a layer gives to the keys of each pattern, and what it would give without a pattern."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core import AttentionInputs, Bias, DenseBias, attention_weights
from regard.tracing.patterns._patterns import Broadcast, HeadPattern, KeyPattern, RowPattern, Sides


@dataclass(frozen=True, kw_only=True, eq=False)
class TextPatterns:
    """The patterns, worked out for one text: their keys, and the queries that are asked about each."""

    patterns: tuple[HeadPattern, ...]  # in the order of the last axis of `Rows`
    places: Tensor  # int64 (queries, m), the keys of the row patterns side by side; -1 for none
    of_places: dict[int, slice]  # of each row pattern, by its place in `patterns`, the columns in `places`
    values: Tensor  # (keys, c), ones at the keys of each part of the key patterns, side by side
    of_values: dict[int, slice]  # of each key pattern, likewise
    asked: Tensor  # bool (queries, patterns); not special tokens, nor a key pattern's keys for it
    plain: Tensor  # bool (keys,), what `Broadcast` may choose: neither special nor in a key pattern
    shared: bool  # whether queries and keys are the same tokens

    @classmethod
    def of_text(cls, sides: Sides, patterns: Sequence[HeadPattern]) -> "TextPatterns":
        """What these patterns ask of one text."""
        # In cross-attention queries and keys are different texts.
        shared = sides.kind != "cross"
        special = torch.tensor([token.special for token in sides.queries])
        # (queries, patterns): special tokens are not asked.
        asked = ~special[:, None].repeat(1, len(patterns))
        plain = ~torch.tensor([token.special for token in sides.keys])
        # Starts empty, so that texts without such patterns have tensors, too.
        places, values = [torch.full((len(special), 0), -1)], [torch.zeros(len(plain), 0)]
        of_places, of_values = {}, {}
        for number, pattern in enumerate(patterns):
            if isinstance(pattern, RowPattern):
                # The columns of this pattern are behind those before it.
                start = sum(each.shape[1] for each in places)
                places.append(pattern.places(sides))
                of_places[number] = slice(start, start + places[-1].shape[1])
            elif isinstance(pattern, KeyPattern):
                start = sum(each.shape[1] for each in values)
                values.append(torch.stack(list(pattern.parts(sides).values()), dim=1).float())
                of_values[number] = slice(start, start + values[-1].shape[1])
                # Keys in any part.
                member = values[-1].any(dim=1)
                plain &= ~member
                if shared:
                    # A delimiter is not asked whether it looks at delimiters.
                    asked[:, number] &= ~member
        return cls(
            patterns=tuple(patterns),
            places=torch.cat(places, dim=1),
            of_places=of_places,
            values=torch.cat(values, dim=1),
            of_values=of_values,
            asked=asked,
            plain=plain,
            shared=shared,
        )

    def sums(self, of: dict[int, slice], columns: int) -> Tensor:
        """(columns, patterns), ones where a column of `places` or of `values` is a pattern's."""
        # A product with it sums the columns of each pattern.
        to = torch.zeros(columns, len(self.patterns))
        for number, where in of.items():
            to[where, number] = 1.0
        return to


class Visible(NamedTuple):
    """What the mask lets be seen; the first axis is 1 where it is the same for all heads."""

    of_query: Tensor
    """(heads or 1, queries), how many keys."""
    of_key: Tensor
    """(heads or 1, keys), by how many queries."""
    places: Tensor
    """bool (heads or 1, queries, m), which of the places."""
    values: Tensor
    """(heads or 1, queries, c), how many keys of each part."""


# Entries of a mask that are looked at at once.
_BLOCK = 2**22


def look_at_mask(inputs: AttentionInputs, asked: TextPatterns) -> Visible:
    """How many keys each query may see, and which of the patterns'; a block of rows at a time."""
    queries, keys = inputs.q_len, inputs.k_len
    # Places of -1 are looked at as 0, and masked.
    columns = asked.places.clamp(min=0)
    named = asked.places >= 0
    all_keys = torch.arange(keys)
    parts = []
    step = max(1, _BLOCK // keys)
    of_key: Tensor | float = 0.0
    for start in range(0, queries, step):
        rows = torch.arange(start, min(queries, start + step))
        block = may_see(inputs, rows, all_keys)
        of_key = of_key + block.sum(dim=1).float()
        # Which of the places the query may see.
        places = block.gather(2, columns[rows].expand(block.shape[0], -1, -1)) & named[rows]
        # How many keys, which places, and how many keys of each part.
        parts.append((block.sum(dim=2).float(), places, block.float() @ asked.values))
    of_query, at_places, in_values = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
    assert isinstance(of_key, Tensor)
    return Visible(of_query, of_key, at_places, in_values)


def same_view(one: AttentionInputs, other: AttentionInputs) -> bool:
    """Whether two layers of one text surely let the same be seen."""
    # Equal masks, and the very same bias.
    return one.mask == other.mask and _dense(one) is _dense(other)


def _dense(inputs: AttentionInputs) -> Bias | None:
    return inputs.bias if isinstance(inputs.bias, DenseBias) else None


# A bias below this hides a key: half-precision models write their masks as the lowest number there is.
_HIDDEN = -3e4


def may_see(inputs: AttentionInputs, queries: Tensor, keys: Tensor) -> Tensor:
    """bool (heads or 1, rows, columns) on the CPU."""
    device = inputs.q.device
    rows, columns = queries.to(device), keys.to(device)
    allowed = torch.ones(1, len(rows), len(columns), dtype=torch.bool, device=device)
    if inputs.mask is not None:
        allowed = allowed & inputs.mask.block(rows, columns)[0]
    dense = _dense(inputs)
    # A mask as numbers: the lowest number hides.
    if dense is not None:
        allowed = allowed & (dense.block(rows, columns)[0].float() > _HIDDEN)
    return allowed.cpu()


# Weights that are worked out at once: a block stays in the cache.
_ENTRIES = 2**20

# Rows that a text offers as examples, for each head and pattern.
EXAMPLES = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """One layer's rows under every pattern, each (heads, queries, patterns) on the CPU.

    Args:
        mass: what the row gives the pattern's keys.
        even: what attending evenly to all keys that the query may see would give them.
        habit: what the head's other rows give them; of patterns whose keys are the same for every query,
            where that says nothing, `even` again.
        counted: float, 1 where the row says something: it may see a key of the pattern, and others too.
        asked: (patterns,), how many queries the pattern was asked of, whether or not it has keys for them.
        parts: (heads, c), the sums over the counted rows of what each part of the key patterns gets.
        best_query, best_key: int64 (heads, patterns, 3), the counted rows with the largest mass, falling, and
            the key of the pattern in each that has the largest weight; -1 where no more rows count.
    """

    mass: Tensor
    even: Tensor
    habit: Tensor
    counted: Tensor
    asked: Tensor
    parts: Tensor
    best_query: Tensor
    best_key: Tensor


def measure(inputs: AttentionInputs, asked: TextPatterns, seen: Visible) -> Rows:
    """What each row of a layer gives to each pattern's keys; O(N) memory.

    The queries at even places come first, and those at odd places after them, in two passes that together
    cost one: `Broadcast` chooses its keys in the first and is measured in the second.
    """
    read = _Read.of_passes(inputs, asked)
    # Matrices that sum columns to patterns.
    to_place = asked.sums(asked.of_places, asked.places.shape[1])
    to_value = asked.sums(asked.of_values, asked.values.shape[1])
    # The weight on each pattern's keys: (heads, queries, patterns).
    mass = read.at_places @ to_place + read.in_values @ to_value
    # How many keys of the pattern the query may see.
    size = seen.places.float() @ to_place + seen.values @ to_value
    # What an even head would give: size / visible.
    even = (size / seen.of_query.clamp(min=1)[..., None]).expand(mass.shape).clone()
    # What other rows give to the same keys: the habit of looking there.
    habit = torch.where(to_place.any(dim=0), _others(read, asked, seen) @ to_place, even)
    asked_of = asked.asked.sum(dim=0)
    size = size.expand(mass.shape).clone()
    # Broadcast's keys were chosen by even rows, and are judged by odd ones.
    for number, (keys, weights) in read.chosen.items():
        mass[:, 1::2, number] = weights.sum(dim=2)
        size[..., number] = _visible_of(inputs, keys, shared=asked.shared)
        even[..., number] = habit[..., number] = size[..., number] / seen.of_query.clamp(min=1)
        asked_of[number] = asked.asked[1::2, number].sum()
    # Rows count where the pattern has keys for them, and not all keys.
    counted = (size > 0) & (size < seen.of_query[..., None]) & asked.asked
    # The strongest rows as examples.
    best = torch.where(counted, mass, -1.0).topk(min(EXAMPLES, inputs.q_len), dim=1)
    best_query = torch.where(best.values < 0, -1, best.indices).transpose(1, 2)
    parts = torch.zeros(inputs.num_heads, asked.values.shape[1])
    # Which part of a key pattern gets most.
    for number, where in asked.of_values.items():
        parts[:, where] = (read.in_values[..., where] * counted[..., number, None]).sum(dim=1)
    return Rows(
        mass=mass,
        even=even,
        habit=habit,
        counted=counted.float(),
        asked=asked_of,
        parts=parts,
        best_query=best_query,
        best_key=_best_keys(best_query, read, asked, seen),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Read:
    """What the two passes read, on the CPU."""

    at_places: Tensor  # (heads, queries, m), the weights at the places of the row patterns
    in_values: Tensor  # (heads, queries, c), the weights in the parts of the key patterns
    largest_at: Tensor  # int64 (heads, queries), the key with the largest weight
    received: Tensor  # (heads, keys), the sums over the queries
    chosen: dict[int, tuple[Tensor, Tensor]]  # each: keys (heads, n), (heads, odd queries, n)

    @classmethod
    def of_passes(cls, inputs: AttentionInputs, asked: TextPatterns) -> "_Read":
        device = inputs.q.device
        heads, queries, keys = inputs.num_heads, inputs.q_len, inputs.k_len
        at_places = torch.zeros(heads, queries, asked.places.shape[1])
        in_values = torch.zeros(heads, queries, asked.values.shape[1])
        largest_at = torch.zeros(heads, queries, dtype=torch.int64)
        received = torch.zeros(heads, keys)
        chosen: dict[int, tuple[Tensor, Tensor]] = {}
        # Even rows first, odd rows second: Broadcast chooses on the one and is judged on the other.
        for start in range(min(2, queries)):
            if start == 1:
                for number, pattern in enumerate(asked.patterns):
                    if isinstance(pattern, Broadcast):
                        most = _most_read(received, asked.plain, pattern.keys)
                        chosen[number] = most, torch.zeros(heads, queries // 2, most.shape[1])
            # So many rows that their weights stay in the cache.
            size = max(1, _ENTRIES // (heads * keys))
            for rows in torch.split(torch.arange(start, queries, 2), size):
                # (heads, rows, keys)
                weights = attention_weights(inputs, rows.to(device))[0, ..., :keys].float().cpu()
                places = asked.places[rows]
                # Places of -1 are read as 0, and multiplied by 0.
                place_weights = weights.gather(2, places.clamp(min=0).expand(heads, -1, -1))
                at_places[:, rows] = place_weights * (places >= 0)
                in_values[:, rows] = weights @ asked.values
                # torch's argmax is slow on the CPU.
                largest_at[:, rows] = torch.from_numpy(weights.numpy().argmax(axis=2))
                received += weights.sum(dim=1)
                for most, of_chosen in chosen.values():
                    wide = most[:, None].expand(-1, len(rows), -1)
                    of_chosen[:, rows // 2] = weights.gather(2, wide)
        return cls(
            at_places=at_places,
            in_values=in_values,
            largest_at=largest_at,
            received=received,
            chosen=chosen,
        )


def _others(read: _Read, asked: TextPatterns, seen: Visible) -> Tensor:
    """(heads, queries, m), the mean of what the other rows that may see it give to each place.

    Of a key that nobody else may see nothing is known: it gets the even share.
    """
    there = asked.places.clamp(min=0)
    # How many other rows may see each place.
    rows = seen.of_key[:, there] - 1
    # What all give, less what this row gives, over the others.
    of_others = (read.received[:, there] - read.at_places) / rows.clamp(min=1)
    # Without other rows: as an even head would.
    even = 1.0 / seen.of_query.clamp(min=1)[..., None]
    return torch.where(rows > 0, of_others, even) * seen.places


def _visible_of(inputs: AttentionInputs, keys: Tensor, *, shared: bool) -> Tensor:
    """(heads, queries), how many of a head's keys a query at an odd place may see; none of itself."""
    heads, queries = len(keys), inputs.q_len
    odd = torch.arange(1, queries, 2)
    # Keys that several heads have chosen are looked at once.
    columns, places = keys.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    seen = may_see(inputs, odd, columns).expand(heads, -1, -1)
    visible = torch.zeros(heads, queries)
    visible[:, odd] = seen.gather(2, places[:, None].expand(-1, len(odd), -1)).sum(dim=2).float()
    # A token that reads itself does not read what all read.
    if shared:
        visible[(torch.arange(queries)[None, :, None] == keys[:, None]).any(dim=2)] = 0.0
    return visible


def _best_keys(best_query: Tensor, read: _Read, asked: TextPatterns, seen: Visible) -> Tensor:
    """int64, as `best_query`: in these rows the key of the pattern that gets most; -1 for none."""
    heads = torch.arange(len(best_query))[:, None]
    rows = best_query.clamp(min=0)
    keys = read.largest_at[heads[..., None], rows]
    if asked.of_places:
        own = asked.sums(asked.of_places, asked.places.shape[1]).T > 0
        weights = torch.where(seen.places, read.at_places, -1.0)[heads[..., None], rows]
        # Other patterns' places cannot win.
        best = weights.masked_fill_(~own[:, None], -2.0).argmax(dim=3)
        keys = torch.where(own.any(dim=1)[:, None], asked.places[rows, best], keys)
    for number, (of_heads, _) in read.chosen.items():
        # A text may be nothing but delimiters.
        if of_heads.shape[1]:
            keys[:, number] = of_heads[:, :1]
    return torch.where(best_query >= 0, keys, -1)


def _most_read(received: Tensor, plain: Tensor, count: int) -> Tensor:
    """int64 (heads, count), the keys that get most; fewer where there are not more to choose from."""
    allowed = received.masked_fill(~plain, -1.0)
    return allowed.topk(min(count, int(plain.sum())), dim=1).indices
