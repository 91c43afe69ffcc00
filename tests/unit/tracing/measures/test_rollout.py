"""Rollout and flow: against whole matrices and all cuts."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.tracing import Trace
from regard.tracing.measures._rollout import _most
from tolerances import WEIGHTS
from unit.models import tiny
from unit.tracing import measured
from unit.tracing.measured import NETWORKS, kinds, traced

NAMES = ("encoder", "decoder", "both", "bart", "gemma2", "deberta-v2")
OWN = [(name, kind) for name, kind in kinds(*NAMES) if kind != "cross"]


def mixed(trace: Trace, kind: Any, layers: int) -> list[np.ndarray]:
    count = len(trace.stack(kind).tokens)
    return [
        0.5 * np.eye(count) + 0.5 * measured.weights(trace, kind, layer).mean(axis=0)
        for layer in range(layers)
    ]


@pytest.mark.parametrize(("name", "kind"), OWN)
def test_rollout_is_the_product_of_the_matrices(name: str, kind: Any) -> None:
    trace = traced(NETWORKS[name]())
    whole = np.eye(len(trace.stack(kind).tokens))
    for layer, matrix in enumerate(mixed(trace, kind, len(trace.attention(kind)))):
        whole = matrix @ whole
        found = trace.rollout(kind=kind, layer=layer)
        assert np.abs(found.numpy() - whole).max() < WEIGHTS
        assert np.abs(trace.rollout(-2, kind=kind, layer=layer).numpy() - whole[-2:-1]).max() < WEIGHTS
    assert np.abs(trace.rollout(slice(1, 4), kind=kind).numpy() - whole[1:4]).max() < WEIGHTS


def test_rollout_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(NETWORKS["decoder"]())
    whole = trace.rollout()
    monkeypatch.setattr("regard.tracing.measures._rollout._ENTRIES", 2 * 5 * 7)
    assert (trace.rollout() - whole).abs().max() < WEIGHTS


@pytest.mark.parametrize("measure", ["rollout", "flow"])
def test_only_through_a_stack_s_own_attention(measure: str) -> None:
    trace = traced(NETWORKS["both"]())
    for kind in (None, "cross"):
        with pytest.raises(InputError, match=f'must be "encoder" or "decoder" for {measure}, .*got {kind!r}'):
            getattr(trace, measure)(1, kind=kind)
    with pytest.raises(InputError, match="layer must be from 0 to 1"):
        getattr(trace, measure)(1, kind="encoder", layer=2)


def smallest_cut(matrices: list[np.ndarray], row: int, column: int) -> float:
    """The maximum flow, by Ford and Fulkerson: the least that leaves any set of nodes with the source."""
    count = len(matrices[0])
    layers = len(matrices)
    capacity = np.zeros((count * (layers + 1),) * 2)
    for depth, matrix in enumerate(matrices):
        capacity[depth * count : (depth + 1) * count, (depth + 1) * count : (depth + 2) * count] = matrix
    sink = layers * count + column
    # Other nodes at the bottom lead nowhere, and at the top are led to from nowhere.
    inner = list(range(count, layers * count))
    best = np.inf
    for chosen in product((False, True), repeat=len(inner)):
        inside = np.zeros(len(capacity), dtype=bool)
        inside[row] = True
        inside[inner] = chosen
        inside[layers * count :] = True
        inside[sink] = False
        best = min(best, float(capacity[np.ix_(inside, ~inside)].sum()))
    return best


@pytest.mark.parametrize(
    ("name", "kind"), [("encoder", "encoder"), ("both", "decoder"), ("decoder", "decoder")]
)
def test_flow_is_the_smallest_cut(name: str, kind: Any) -> None:
    network = NETWORKS[name]()
    ids, target = [3, 1, 4, 5], [4, 7, 1, 2] if len(network.prefixes) == 2 else None
    trace = regard.tracing.trace_ids(tiny.loaded(network), ids, target)
    layers = min(3, len(trace.attention(kind)))
    matrices = mixed(trace, kind, layers)[::-1]
    found = trace.flow(slice(1, 4), kind=kind, layer=layers - 1).numpy()
    wanted = [[smallest_cut(matrices, row, column) for column in range(4)] for row in range(1, 4)]
    assert np.abs(found - np.array(wanted)).max() < WEIGHTS
    assert np.abs(trace.flow(2, key=3, kind=kind, layer=layers - 1).numpy() - found[1:2, 3:]).max() == 0.0
    # A way through the layers can carry what rollout says goes along it.
    assert (found >= trace.rollout(slice(1, 4), kind=kind, layer=layers - 1).numpy() - WEIGHTS).all()


def test_a_flow_that_has_to_turn_back() -> None:
    # The first way found is 0 -> 0 -> 0 -> 0; the second, by 1, has to send it round by 1.
    edges = np.zeros((8, 8), dtype=np.int64)
    for depth, matrix in enumerate([[[1, 1], [0, 0]], [[1, 1], [1, 0]], [[1, 0], [1, 0]]]):
        edges[2 * depth : 2 * depth + 2, 2 * depth + 2 : 2 * depth + 4] = matrix
    found = [_most(edges.copy(), source, sink) for source, sink in ((0, 6), (0, 7), (1, 6))]
    assert found == [2, 0, 0]


def test_a_flow_that_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(NETWORKS["encoder"]())
    monkeypatch.setattr("regard.tracing.record._trace.MOST_SECONDS", 1e-3)
    with pytest.raises(
        InputError, match=r"flow from 7 to 7 of 7 tokens .* more than 0; ask for fewer tokens"
    ):
        trace.flow(slice(None))
    assert trace.flow(1, key=1).shape == (1, 1)
    assert torch.isfinite(trace.flow(1, key=1)).all()
