"""Attention made by hand, whose pattern is known: sharp scores at chosen keys, as a trace of one layer."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.core import AttentionInputs, Causal
from regard.models import Kind
from regard.text import Encoding
from regard.tracing import AttentionTrace, Trace, TracedStack

SHARP = 20.0
"""A score that leaves all other keys exp(-20) of the weight."""

Wanted = Callable[[Sequence[int], int], Sequence[int]]
"""The keys that a query of some token ids is to attend to, evenly; none leaves it attending to all."""


def scored(
    ids: Sequence[int], wanted: Sequence[Wanted], *, causal: bool, keys: Sequence[int] | None = None
) -> AttentionInputs:
    """Queries and keys whose scores are SHARP at the wanted keys: k is the identity, q the rows of scores."""
    count = len(ids if keys is None else keys)
    q = torch.zeros(1, len(wanted), len(ids), count)
    for head, rule in enumerate(wanted):
        for query in range(len(ids)):
            for key in rule(ids, query):
                q[0, head, query, key] = SHARP
    k = torch.eye(count).expand(1, len(wanted), count, count)
    return AttentionInputs(q=q, k=k, v=k, scale=1.0, mask=Causal() if causal else None)


def traced(
    inputs: AttentionInputs, ids: Sequence[int], kind: Kind = "decoder", target: Sequence[int] = ()
) -> Trace:
    """A trace of one layer that holds this record; of "cross", of a decoder that reads the target."""
    context = torch.zeros(inputs.q.shape[1:])
    attention = AttentionTrace(inputs=inputs, context=context)
    passage = TracedStack(encoding=Encoding.from_ids(ids), attention=(attention,))
    if kind == "encoder":
        return Trace(model="by hand", encoder=passage)
    if kind == "decoder":
        return Trace(model="by hand", decoder=passage)
    own = AttentionTrace(inputs=scored(target, [uniform] * inputs.num_heads, causal=True), context=context)
    decoder = TracedStack(encoding=Encoding.from_ids(target), attention=(own,), cross_attention=(attention,))
    of_encoder = AttentionTrace(inputs=scored(ids, [uniform], causal=False), context=context)
    return Trace(model="by hand", encoder=replace(passage, attention=(of_encoder,)), decoder=decoder)


def shuffled(inputs: AttentionInputs, seed: int = 0) -> AttentionInputs:
    """The same keys in another order: every row keeps its weights, at other places."""
    torch.manual_seed(seed)
    order: Tensor = torch.randperm(inputs.k_len)
    return replace(inputs, k=inputs.k[:, :, order])


def uniform(ids: Sequence[int], query: int) -> list[int]:
    """Every key alike."""
    return []


def offset(by: int) -> Wanted:
    """The key so many places on."""
    return lambda ids, query: [query + by] if 0 <= query + by < len(ids) else []


def duplicate(ids: Sequence[int], query: int) -> list[int]:
    """The last earlier occurrence of the same token; without one, every key alike."""
    return [at for at in range(query) if ids[at] == ids[query]][-1:]


def induction(ids: Sequence[int], query: int) -> list[int]:
    """The token after the last earlier occurrence of the same token; without one, every key alike."""
    return [at + 1 for at in range(query) if ids[at] == ids[query]][-1:]


def sink(ids: Sequence[int], query: int) -> list[int]:
    """The first token."""
    return [0]


def shared(*keys: int) -> Wanted:
    """The same keys for every query."""
    return lambda ids, query: keys
