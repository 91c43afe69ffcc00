"""The fused form's peak memory, as the operating system saw it, where one matrix would be large."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard

pytest.importorskip("resource", reason="the peak of resident memory is a Unix number")

MIB = 2**20
MATRIX = 8 * 4096 * 4096 * 4 / MIB
"""One float32 (heads, queries, keys) matrix, 512 MiB; the written-out arithmetic holds several."""

BOUND = 200.0
"""MiB. q, k, v, the context and their gradients are 2 MiB each (4 for wide values). A block's scores are
8 MiB at most; the arithmetic holds about ten such at once (dropout's hash counts double), and the allocator
keeps some of them. Two fifths of one matrix: nothing that is written out in full fits under it."""

FORWARD = [
    "plain",
    "padding",
    "causal",
    "causal & padding",
    "window",
    "window & causal",
    "segments & padding",
    "predicate",
    "predicate of heads",
    "wide values",
    "grouped",
    "grouped + causal & padding",
    "transposed",
    "causal + bias",
    "causal + softcap",
    "causal + dropout",
    "window + bias",
    "padding + bias",
    "sinks",
    "causal + sinks",
]
BACKWARD = [
    "plain",
    "causal & padding",
    "window",
    "transposed + padding",
    "grouped + causal & padding",
    "window & causal + bias + softcap",
    "window + dropout",
    "causal + sinks",
]
CASES = [
    *((kind, "fused", False) for kind in FORWARD),
    *((kind, "fused", True) for kind in BACKWARD),
    ("plain", "reference", False),
]


@pytest.fixture(scope="module")
def growth() -> dict[tuple[str, str, bool], float]:
    paths = [str(Path(regard.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("_measure_memory.py"))],
        input=json.dumps(CASES),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    return dict(zip(CASES, json.loads(answer.stdout), strict=True))


@pytest.mark.parametrize("kind", FORWARD)
def test_forward_stays_far_below_one_matrix(kind: str, growth: dict[tuple[str, str, bool], float]) -> None:
    assert growth[kind, "fused", False] < BOUND


@pytest.mark.parametrize("kind", BACKWARD)
def test_forward_and_backward_stay_far_below_one_matrix(
    kind: str, growth: dict[tuple[str, str, bool], float]
) -> None:
    assert growth[kind, "fused", True] < BOUND


def test_the_measurement_sees_a_matrix_where_there_is_one(growth: dict[tuple[str, str, bool], float]) -> None:
    assert growth["plain", "reference", False] > MATRIX > 2 * BOUND
