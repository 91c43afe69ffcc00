"""Attention through layers: rollout, the product of the weights, and flow, the most that gets through."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_weights
from regard.core.errors import InputError
from regard.models import Kind, StackKind
from regard.tracing.record import Selector, Trace, check_cost, chosen_of

_ENTRIES = 2**22
"""Weights of one block, over all heads."""

_UNIT = 2**52
"""Capacities are whole numbers of 1 / 2^52, so that the flow is exact and the search ends."""

_SECONDS_AN_EDGE = 7e-6
"""The time of one flow for each edge, which it passes several times."""


def rollout(
    trace: Trace, token: Selector | None = None, *, kind: "Kind | None" = None, layer: int = -1
) -> Tensor:
    """How much of each token of the input is in a token after some layers, if attention were all that mixes.

        r_i = row i of  B_l B_(l-1) .. B_0,   B = 0.5 I + 0.5 mean_h A_h

    A row vector goes from the last layer down, r <- 0.5 r + 0.5 r A: O(N) memory for each token asked for.

    Args:
        token: which tokens after the layer: an index, a slice or a word; None gives all, (N, N).
        kind: "encoder" or "decoder"; needed only where there are both.
        layer: the last layer that counts.

    Returns:
        float32 on the CPU, (tokens, N); rows sum to 1, less what went to attention sinks.

    Raises:
        InputError: a layer, token or word that is not there; or kind "cross", which leads from one stack to
            another.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.rollout("flies").sum(dim=1).round(decimals=5)
        tensor([1.])

    Source: Abnar and Zuidema 2020, arXiv 2005.00928, section 3, equation 1, with their A = 0.5 W + 0.5 I.
    """
    stack = own_attention(trace, kind, "rollout")
    rows = list(chosen_of("token", trace.stack(stack).encoding, token))
    # The last of the steps is the whole way.
    *_, flow = rollout_steps(trace, stack, trace.layer_index(layer, stack), rows)
    return flow.float().cpu()


def rollout_steps(trace: Trace, stack: "StackKind", last: int, rows: Sequence[int]) -> Iterator[Tensor]:
    """Rollout step by step, from layer `last` down to 0: float64 (rows, N); the last one is the rollout."""
    # Layers 0 to `last`.
    inputs = [trace.attention_of(each, stack).inputs for each in range(last + 1)]
    count = len(trace.stack(stack).encoding.tokens)
    # Each row starts as one token: (rows, tokens).
    flow = torch.zeros(len(rows), count, dtype=torch.float64, device=inputs[0].q.device)
    flow[range(len(rows)), list(rows)] = 1.0
    for layer_inputs in reversed(inputs):
        # Not around the yield: no_grad would then hold for whoever asks.
        with torch.no_grad():
            # Half of each token stays (the residual stream), half is mixed by attention.
            flow = 0.5 * flow + 0.5 * through(flow, layer_inputs)
        yield flow


def own_attention(trace: Trace, kind: "Kind | None", what: str) -> "StackKind":
    """The stack whose own attention is meant."""
    if kind == "cross" or (kind is None and len(trace.kinds) > 1):
        listed = " or ".join(f'"{each}"' for each in trace.kinds if each != "cross")
        raise InputError(
            f"kind must be {listed} for {what}, which goes through one stack's own attention; got {kind!r}."
        )
    own = trace.kind(kind)
    assert own != "cross"
    return own


def through(rows: Tensor, inputs: AttentionInputs) -> Tensor:
    """rows @ mean_h A_h, (T, N) -> (T, N), a block of A's rows at a time; a sink's column is left out."""
    result = torch.zeros_like(rows)
    # Only queries with some flow matter; under a causal mask later ones have none.
    seen = (rows != 0).any(dim=0).nonzero()[:, 0]
    size = max(1, _ENTRIES // (inputs.num_heads * inputs.num_columns))
    for start in range(0, len(seen), size):
        block = seen[start : start + size]
        # (block, keys): the mean over heads; a sink's column is left out.
        mean = attention_weights(inputs, block)[0, :, :, : inputs.k_len].double().mean(dim=0)
        result += rows[:, block] @ mean
    return result


def flow(
    trace: Trace,
    token: Selector,
    *,
    key: Selector | None = None,
    kind: "Kind | None" = None,
    layer: int = -1,
) -> Tensor:
    """The maximum flow from a token after some layers to a token of the input, weights as capacities.

    Every token of every layer is a node; from token i after a layer to token j before it leads an edge of
    capacity 0.5 mean_h A_h[i, j] + 0.5 [i = j]. Flows to several tokens are each found by themselves.

    Args:
        token: which tokens after the layer: an index, a slice or a word.
        key: which tokens of the input; None gives all.
        kind: "encoder" or "decoder"; needed only where there are both.
        layer: the last layer that counts.

    Returns:
        float32 on the CPU, (tokens, keys), from 0 to 1.

    Raises:
        InputError: a layer, token or word that is not there; kind "cross"; or more flows through more edges
            than the forecast lets through.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> flow = trace.flow("flies")
        >>> flow.shape, bool((flow >= trace.rollout("flies") - 1e-6).all())
        (torch.Size([1, 7]), True)

    Source: Abnar and Zuidema 2020, arXiv 2005.00928, section 3, "Attention flow".
    """
    stack = own_attention(trace, kind, "flow")
    last = trace.layer_index(layer, stack)
    encoding = trace.stack(stack).encoding
    rows, keys = chosen_of("token", encoding, token), chosen_of("key", encoding, key)
    count = len(encoding.tokens)
    # Each layer has an edge from every token to every other.
    edges = (last + 1) * count**2
    check_cost(
        f"attention flow from {len(rows)} to {len(keys)} of {count} tokens through {last + 1} layers",
        seconds=len(rows) * len(keys) * edges * _SECONDS_AN_EDGE,
        num_bytes=16.0 * ((last + 2) * count) ** 2,
        device=torch.device("cpu"),
        way_out="ask for fewer tokens, with key=, or for trace.rollout, which takes no search",
    )
    # From the last layer to the first: flow starts at the top.
    left = _capacities([trace.attention_of(each, stack).inputs for each in range(last, -1, -1)])
    # One search for each pair of a token above and a token below.
    flows = [[_most(left.copy(), row, (last + 1) * count + column) for column in keys] for row in rows]
    return torch.tensor(flows, dtype=torch.float64).div(_UNIT).float()


def _capacities(layers: list[AttentionInputs]) -> npt.NDArray[np.int64]:
    """(nodes, nodes), the first nodes the tokens after the last layer, which stands first in the list."""
    count = layers[0].k_len
    # (layers + 1) x tokens nodes, as a matrix of capacities.
    left = np.zeros(((len(layers) + 1) * count,) * 2, dtype=np.int64)
    for depth, inputs in enumerate(layers):
        with torch.no_grad():
            mean = attention_weights(inputs)[0, :, :, :count].double().mean(dim=0).cpu()
        start, end = depth * count, (depth + 1) * count
        # Half of the mean weights, half the token itself.
        mixed = 0.5 * mean + 0.5 * torch.eye(count, dtype=torch.float64)
        left[start:end, end : end + count] = (mixed * _UNIT).round().long().numpy()
    return left


def _most(left: npt.NDArray[np.int64], source: int, sink: int) -> int:
    """The maximum flow, along the widest of the shortest ways; `left` becomes what is left.

    Source: Edmonds and Karp 1972, "Theoretical improvements in algorithmic efficiency for network flow
    problems".
    """
    total, most = 0, np.iinfo(np.int64).max
    while True:
        # The node before each on the way, and how much fits through so far.
        before, width = np.full(len(left), -1), np.zeros(len(left), dtype=np.int64)
        before[source], width[source], edge = source, most, np.array([source])
        # Breadth first: all nodes reached in the same number of steps at once.
        while before[sink] < 0:
            # The least capacity along the way to each.
            wide = np.minimum(width[edge][:, None], left[edge])
            wide[:, before >= 0] = 0  # these were reached in fewer steps
            nodes = wide.any(axis=0).nonzero()[0]
            # The sink cannot be reached any more: the flow is largest.
            if not len(nodes):
                return total
            # The widest of several ways of the same length counts.
            best = wide[:, nodes].argmax(axis=0)
            before[nodes], width[nodes], edge = edge[best], wide[best, nodes], nodes
        # Back from the sink to the source.
        way = [sink]
        while way[-1] != source:
            way.append(before[way[-1]])
        ends, starts = np.array(way[:-1]), np.array(way[1:])
        left[starts, ends] -= width[sink]
        # A later way may send it back.
        left[ends, starts] += width[sink]
        total += int(width[sink])
