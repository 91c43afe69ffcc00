"""A word's way through the layers: from the learned embedding to the contextual one."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from regard.blocks import Stack
from regard.models import StackKind, Transformer
from regard.tracing.measures._layers import is_row_wise, recorded_outputs, sublayers_of, widened
from regard.tracing.measures._needed import hidden_of
from regard.tracing.record import Trace, token_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """How far a word's vector is, and how far it goes, at embedding layers 0 (learned) to L (contextual).

    Args:
        word: what was asked for.
        tokens: the pieces whose mean it is.
        norms: float64 (L + 1,), lengths |e_l|.
        to_previous: float64 (L + 1,), cosines of e_l with e_(l-1); NaN for the first, where a vector is zero,
            and between vectors of different width.
        to_first, to_last: float64 (L + 1,), cosines with e_0 and with e_L.
        shares: for each of L moves e_(l+1) - e_l what each step of it did, by name: "embedding" (position,
            token type and norm, before layer 0), "attention", "cross_attention", "ffn", "norm" (the last
            one). A step's share is its projection on the move, so that they sum to 1; each step is with the
            residual and the norm around it. None where they cannot be told: without the model, through the
            lens, or in a layer with more in it.
    """

    word: str
    tokens: tuple[str, ...]
    norms: Tensor
    to_previous: Tensor
    to_first: Tensor
    to_last: Tensor
    shares: tuple[dict[str, float], ...] | None

    def __repr__(self) -> str:
        return (
            f"Trajectory({self.word!r}, {len(self.norms)} embedding layers, cosine of the first and the last "
            f"{float(self.to_first[-1]):.3f})"
        )


def trajectory(trace: Trace, token: int | str, *, kind: StackKind | None = None) -> Trajectory:
    """Follow a word's vector from its learned to its contextual embedding.

        cos(e_l, e_m) = e_l . e_m / (|e_l| |e_m|)

    Args:
        token: an index or a word; of several pieces their mean is followed, as in `Trace.embedding`.
        kind: "encoder" or "decoder"; needed only where there are both.

    Returns:
        See `Trajectory`.

    Raises:
        InputError: a token that is not there, or a trace without the hidden states of all layers.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("the man fishing on the river bank")
        >>> way = trace.trajectory("bank")
        >>> way.norms.shape, round(sum(way.shares[3].values()), 6)
        (torch.Size([7]), 1.0)
    """
    passage = trace.passage(kind)
    stack: StackKind = "decoder" if passage is trace.decoder else "encoder"
    rows = list(token_of("token", passage.encoding, token))
    hidden_of(trace, stack)
    vectors = [passage.embeddings(layer)[rows].double().mean(dim=0) for layer in range(len(passage.hidden))]
    before = [None, *vectors[:-1]]
    return Trajectory(
        word=token if isinstance(token, str) else passage.tokens[rows[0]],
        tokens=tuple(passage.tokens[row] for row in rows),
        norms=torch.stack([each.norm() for each in vectors]).cpu(),
        to_previous=_cosines(before, vectors),
        to_first=_cosines([vectors[0]] * len(vectors), vectors),
        to_last=_cosines([vectors[-1]] * len(vectors), vectors),
        shares=_shares(trace, stack, rows, vectors),
    )


def _cosines(one: "list[Tensor | None] | list[Tensor]", other: list[Tensor]) -> Tensor:
    return torch.tensor([_cosine(a, b) for a, b in zip(one, other, strict=True)], dtype=torch.float64)


def _cosine(a: Tensor | None, b: Tensor) -> float:
    if a is None or a.shape != b.shape:
        return math.nan
    return float((a @ b) / (a.norm() * b.norm()))


def _shares(
    trace: Trace, kind: StackKind, rows: list[int], vectors: list[Tensor]
) -> tuple[dict[str, float], ...] | None:
    network = None if trace.loaded is None else trace.loaded.network
    keeping = trace.passage(kind).keeping
    if not isinstance(network, Transformer) or not keeping.outputs or keeping.layers is not None:
        return None
    stack = network.stack(kind)
    if not all(is_row_wise(layer) for layer in stack.layers):
        return None
    shares = []
    for index in range(len(stack.layers)):
        points = _points(trace, kind, stack, index, rows)
        if index == 0:
            points = [("", vectors[0]), ("embedding", points[0][1]), *points[1:]]
        start, end = points[0][1], points[-1][1]
        if start.shape != end.shape:  # embeddings of another width have no direction to compare
            points = points[1:]
            start = points[0][1]
        move = end - start
        length = float(move @ move)
        shares.append(
            {
                name: float((after - before) @ move) / length if length else math.nan
                for (_, before), (name, after) in pairwise(points)
            }
        )
    return tuple(shares)


def _ffn(layer: nn.Module) -> nn.Module:
    assert isinstance(layer.ffn, nn.Module)
    return widened(layer.ffn)


def _points(
    trace: Trace, kind: StackKind, stack: Stack, index: int, rows: list[int]
) -> list[tuple[str, Tensor]]:
    """Where a word's vector stands before a layer, and after each step of it, in float64."""
    layer = stack.layers[index]
    x = hidden_of(trace, kind)[index][rows].double()
    known = recorded_outputs(trace, kind, layer, index)
    points = [("", x.mean(dim=0))]
    with torch.no_grad():
        for name in sublayers_of(layer):
            part = _ffn(layer) if name == "ffn" else known[name][0, rows].double()

            def work(given: Tensor, part: nn.Module | Tensor = part) -> Tensor:
                return part if isinstance(part, Tensor) else part(given)

            x = widened(getattr(layer, f"{name}_residual"))(x, work)
            points.append((name, x.mean(dim=0)))
        if index == len(stack.layers) - 1 and stack.norm is not None:
            points.append(("norm", widened(stack.norm)(x).mean(dim=0)))
    return points
