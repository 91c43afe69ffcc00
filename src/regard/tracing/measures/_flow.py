"""Attention flow: the most that can flow from a token down through the layers to a token of the input."""

from collections import deque

import torch
from torch import Tensor

from regard.core import attention_weights
from regard.models import Kind
from regard.tracing.measures._budget import check_cost
from regard.tracing.measures._rollout import own_attention
from regard.tracing.record import Selector, Trace, chosen_of

_UNIT = 2**52
"""Capacities are whole numbers of 1 / 2^52, so that the flow is exact and the search ends."""

_SECONDS_AN_EDGE = 2e-6
"""Of one flow, in Python, with some passes over the edges."""


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
    encoding = trace.passage(stack).encoding
    rows, keys = chosen_of("token", encoding, token), chosen_of("key", encoding, key)
    count = len(encoding.tokens)
    edges = (last + 1) * count**2
    check_cost(
        f"attention flow from {len(rows)} to {len(keys)} of {count} tokens through {last + 1} layers",
        seconds=len(rows) * len(keys) * edges * _SECONDS_AN_EDGE,
        num_bytes=400.0 * edges,
        device=torch.device("cpu"),
        way_out="ask for fewer tokens, with key=, or for trace.rollout, which takes no search",
    )
    capacities = [_capacities(trace, stack, each) for each in range(last, -1, -1)]
    result = [[_Network(capacities).flow(row, column) / _UNIT for column in keys] for row in rows]
    return torch.tensor(result, dtype=torch.float32)


def _capacities(trace: Trace, kind: "Kind", layer: int) -> list[list[int]]:
    inputs = trace.attention_of(layer, kind).inputs
    with torch.no_grad():
        mean = attention_weights(inputs)[0, :, :, : inputs.k_len].double().mean(dim=0)
    mixed = 0.5 * mean + 0.5 * torch.eye(len(mean), dtype=torch.float64, device=mean.device)
    whole: list[list[int]] = (mixed * _UNIT).round().long().tolist()
    return whole


class _Network:
    """Dinic's algorithm on layers of nodes: shortest ways first, each phase until it is blocked.

    Args:
        capacities: from each layer of nodes to the next, from the top down.

    Source: Dinic 1970, "Algorithm for solution of a problem of maximum flow in networks with power
    estimation".
    """

    def __init__(self, capacities: list[list[list[int]]]) -> None:
        count = len(capacities[0])
        self._count = count
        self._bottom = len(capacities) * count
        # Edge e and its reverse e ^ 1.
        self._to: list[int] = []
        self._left: list[int] = []
        self._edges: list[list[int]] = [[] for _ in range(self._bottom + count)]
        for depth, matrix in enumerate(capacities):
            for row, values in enumerate(matrix):
                for column, capacity in enumerate(values):
                    if capacity > 0:
                        self._join(depth * count + row, (depth + 1) * count + column, capacity)

    def _join(self, start: int, end: int, capacity: int) -> None:
        self._edges[start].append(len(self._to))
        self._edges[end].append(len(self._to) + 1)
        self._to += [end, start]
        self._left += [capacity, 0]

    def flow(self, row: int, column: int) -> int:
        """The maximum flow from a node at the top to one at the bottom."""
        total, sink = 0, self._bottom + column
        while (level := self._levels(row, sink)) is not None:
            total += self._block(row, sink, level)
        return total

    def _levels(self, source: int, sink: int) -> list[int] | None:
        level = [-1] * len(self._edges)
        level[source] = 0
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                end = self._to[edge]
                if self._left[edge] > 0 and level[end] < 0:
                    level[end] = level[node] + 1
                    waiting.append(end)
        return level if level[sink] >= 0 else None

    def _block(self, source: int, sink: int, level: list[int]) -> int:
        """Push along ways that go one level further with each step, until there is none."""
        tried = [0] * len(self._edges)
        way: list[int] = []
        total, node = 0, source
        while True:
            if node == sink:
                amount = min(self._left[edge] for edge in way)
                for edge in way:
                    self._left[edge] -= amount
                    self._left[edge ^ 1] += amount
                total, way, node = total + amount, [], source
                continue
            edges = self._edges[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if self._left[edge] > 0 and level[self._to[edge]] == level[node] + 1:
                    break
                tried[node] += 1
            else:
                if node == source:
                    return total
                back = way.pop()  # a dead end: the edge that led here is of no use
                node = self._to[back ^ 1]
                tried[node] += 1
                continue
            way.append(edge)
            node = self._to[edge]
