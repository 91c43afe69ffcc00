"""What each row of a layer gives to the keys of each pattern, and what it would give without a pattern."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from regard.core import AttentionInputs, row_statistics
from regard.tracing.patterns._asked import Asked
from regard.tracing.patterns._patterns import Broadcast
from regard.tracing.patterns._seen import Seen, may_see, rows_at

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


def measure(inputs: AttentionInputs, asked: Asked, seen: Seen) -> Rows:
    """What each row of a layer gives to each pattern's keys; O(N) memory.

    The queries at even places come first, and those at odd places after them, in two passes that together
    cost one: `Broadcast` chooses its keys in the first and is measured in the second.
    """
    read = _Read.of(inputs, asked)
    to_place, to_value = asked.sums()
    mass = read.at_places @ to_place + read.in_values @ to_value
    size = seen.places.float() @ to_place + seen.values @ to_value
    even = (size / seen.of_query.clamp(min=1)[..., None]).expand(mass.shape).clone()
    habit = torch.where(to_place.any(dim=0), _others(read, asked, seen) @ to_place, even)
    of = asked.asked.sum(dim=0)
    size = size.expand(mass.shape).clone()
    for number, (keys, weights) in read.chosen.items():
        mass[:, 1::2, number] = weights.sum(dim=2)
        size[..., number] = _visible_of(inputs, keys, shared=asked.shared)
        even[..., number] = habit[..., number] = size[..., number] / seen.of_query.clamp(min=1)
        of[number] = asked.asked[1::2, number].sum()
    counted = (size > 0) & (size < seen.of_query[..., None]) & asked.asked
    best = torch.where(counted, mass, -1.0).topk(min(EXAMPLES, inputs.q_len), dim=1)
    best_query = torch.where(best.values < 0, -1, best.indices).transpose(1, 2)
    parts = torch.zeros(inputs.num_heads, asked.values.shape[1])
    for number, where in asked.of_values.items():
        parts[:, where] = (read.in_values[..., where] * counted[..., number, None]).sum(dim=1)
    return Rows(
        mass=mass,
        even=even,
        habit=habit,
        counted=counted.float(),
        asked=of,
        parts=parts,
        best_query=best_query,
        best_key=_best_keys(best_query, read, asked, seen),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Read:
    """What the two passes read, on the CPU.

    Args:
        at_places: (heads, queries, m), the weights at the places of the row patterns.
        in_values: (heads, queries, c), the weights in the parts of the key patterns.
        largest_at: int64 (heads, queries), the key with the largest weight.
        received: (heads, keys), the sums over the queries.
        chosen: for each `Broadcast`, by its place among the patterns, int64 (heads, n) the keys that it
            chose, and (heads, odd queries, n) their weights.
    """

    at_places: Tensor
    in_values: Tensor
    largest_at: Tensor
    received: Tensor
    chosen: dict[int, tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, inputs: AttentionInputs, asked: Asked) -> "_Read":
        device = inputs.q.device
        heads, queries, keys = inputs.num_heads, inputs.q_len, inputs.k_len
        places, values = asked.places.to(device), asked.values.to(device)
        at_places = torch.zeros(heads, queries, places.shape[1])
        in_values = torch.zeros(heads, queries, values.shape[1])
        largest_at = torch.zeros(heads, queries, dtype=torch.int64)
        received = torch.zeros(heads, keys)
        picked: dict[int, Tensor] = {}
        chosen: dict[int, tuple[Tensor, Tensor]] = {}
        for start in range(min(2, queries)):
            if start == 1:
                picked = {
                    number: _most_read(received, asked.plain, pattern.keys)
                    for number, pattern in enumerate(asked.patterns)
                    if isinstance(pattern, Broadcast)
                }
            columns = [values, *(one_hot(each.flatten(), keys).T.to(values) for each in picked.values())]
            positions = torch.arange(start, queries, 2, device=device)
            found = row_statistics(
                rows_at(inputs, positions), values=torch.cat(columns, dim=1), places=places[positions]
            )
            assert found.mass is not None
            assert found.at_places is not None
            at_places[:, start::2] = found.at_places[0].float().cpu()
            largest_at[:, start::2] = found.largest_at[0].cpu()
            received += found.received[0].float().cpu()
            widths = [each.shape[1] for each in columns]
            in_columns = torch.split(found.mass[0].float().cpu(), widths, dim=2)
            in_values[:, start::2] = in_columns[0]
            for (number, of_heads), weights in zip(picked.items(), in_columns[1:], strict=True):
                chosen[number] = of_heads, _own(weights, of_heads)
        return cls(
            at_places=at_places,
            in_values=in_values,
            largest_at=largest_at,
            received=received,
            chosen=chosen,
        )


def _own(values: Tensor, of_heads: Tensor) -> Tensor:
    """Of (heads or 1, rows, heads * n), columns for every head, each head's own: (heads, rows, n)."""
    heads = len(of_heads)
    sides = values.expand(heads, -1, -1).reshape(heads, values.shape[1], *of_heads.shape)
    return sides.diagonal(dim1=0, dim2=2).permute(2, 0, 1)


def _others(read: _Read, asked: Asked, seen: Seen) -> Tensor:
    """(heads, queries, m), the mean of what the other rows that may see it give to each place.

    Of a key that nobody else may see nothing is known: it gets the even share.
    """
    there = asked.places.clamp(min=0)
    rows = seen.of_key[:, there] - 1
    of_others = (read.received[:, there] - read.at_places) / rows.clamp(min=1)
    even = 1.0 / seen.of_query.clamp(min=1)[..., None]
    return torch.where(rows > 0, of_others, even) * seen.places


def _visible_of(inputs: AttentionInputs, keys: Tensor, *, shared: bool) -> Tensor:
    """(heads, queries), how many of a head's keys a query at an odd place may see; none of itself."""
    heads, queries = len(keys), inputs.q_len
    visible = torch.zeros(heads, queries)
    of_all = may_see(inputs, torch.arange(1, queries, 2), keys.flatten())
    visible[:, 1::2] = _own(of_all, keys).sum(dim=2).float()
    if shared:  # a token that reads itself does not read what all read
        visible[(torch.arange(queries)[None, :, None] == keys[:, None]).any(dim=2)] = 0.0
    return visible


def _best_keys(best_query: Tensor, read: _Read, asked: Asked, seen: Seen) -> Tensor:
    """int64, as `best_query`: in these rows the key of the pattern that gets most; -1 for none."""
    heads = torch.arange(len(best_query))[:, None]
    rows = best_query.clamp(min=0)
    keys = read.largest_at[heads[..., None], rows]
    weights = torch.where(seen.places, read.at_places, -1.0)
    for number, where in asked.of_places.items():
        best = weights[heads, rows[:, number], where].argmax(dim=2, keepdim=True)
        keys[:, number] = asked.places[rows[:, number], where].gather(2, best)[..., 0]
    for number, (of_heads, _) in read.chosen.items():
        if of_heads.shape[1]:  # a text may be nothing but delimiters
            keys[:, number] = of_heads[:, :1]
    return torch.where(best_query >= 0, keys, -1)


def _most_read(received: Tensor, plain: Tensor, count: int) -> Tensor:
    """int64 (heads, count), the keys that get most; fewer where there are not more to choose from."""
    allowed = received.masked_fill(~plain, -1.0)
    return allowed.topk(min(count, int(plain.sum())), dim=1).indices
