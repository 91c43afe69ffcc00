"""What a mask lets be seen."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.core import AttentionInputs, Bias, DenseBias
from regard.tracing.patterns._asked import Asked


class Seen(NamedTuple):
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


def look_at_mask(inputs: AttentionInputs, asked: Asked) -> Seen:
    """How many keys each query may see, and which of the patterns'; a block of rows at a time."""
    queries, keys = inputs.q_len, inputs.k_len
    there = asked.places.clamp(min=0)
    named = asked.places >= 0
    all_keys = torch.arange(keys)
    parts = []
    step = max(1, _BLOCK // keys)
    of_key: Tensor | float = 0.0
    for start in range(0, queries, step):
        rows = torch.arange(start, min(queries, start + step))
        block = may_see(inputs, rows, all_keys)
        of_key = of_key + block.sum(dim=1).float()
        places = block.gather(2, there[rows].expand(block.shape[0], -1, -1)) & named[rows]
        parts.append((block.sum(dim=2).float(), places, block.float() @ asked.values))
    of_query, at_places, in_values = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
    assert isinstance(of_key, Tensor)
    return Seen(of_query, of_key, at_places, in_values)


def same_view(one: AttentionInputs, other: AttentionInputs) -> bool:
    """Whether two layers of one text surely let the same be seen."""
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
    if dense is not None:
        allowed = allowed & (dense.block(rows, columns)[0].float() > _HIDDEN)
    return allowed.cpu()
