"""The peak memory of attention and its statistics, as the operating system saw it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard

pytest.importorskip("resource", reason="the peak of resident memory is a Unix number")

MIB = 2**20
MATRIX = 4 * 4096 * 4096 * 4 / MIB
"""One float32 (heads, queries, keys) matrix, 256 MiB; the written-out arithmetic holds several."""

BOUND = 127.0
"""MiB. q, k, v, the context and their gradients are 1 MiB each (2 for wide values). A block's scores are 4
MiB where they are written out, about ten such at once (dropout's hash counts double), and 8 otherwise; the
allocator keeps some of them: 60 in all. Nothing that is written out in full fits under it."""

FORWARD = [
    "plain",
    "window & causal",
    "segments & padding",
    "predicate of heads",
    "grouped + causal & padding",
    "transposed + wide values",
    "window + bias",
    "causal + softcap",
    "causal + sinks",
]
BACKWARD = ["transposed + padding", "window & causal + bias + softcap", "window + dropout + sinks"]
STATISTICS = ["causal", "window & causal + bias"]
"""Two blocks are 16 MiB, the answers are 30 numbers a row, 2 MiB: some 25 in all. The worst of all texts, one
word over and over ("causal"), has as many pairs as a block has entries: 86 to 123, as the
allocator keeps them."""

CASES = [
    *((kind, "fused", False) for kind in FORWARD),
    *((kind, "fused", True) for kind in BACKWARD),
    *((kind, "statistics", False) for kind in STATISTICS),
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


@pytest.mark.parametrize(("kind", "form", "backward"), CASES[:-1])
def test_all_stays_far_below_one_matrix(
    kind: str, form: str, backward: bool, growth: dict[tuple[str, str, bool], float]
) -> None:
    assert growth[kind, form, backward] < BOUND


def test_the_measurement_sees_a_matrix_where_there_is_one(growth: dict[tuple[str, str, bool], float]) -> None:
    """Of half the length, with several matrices of a quarter."""
    assert growth["plain", "reference", False] > MATRIX / 2 > BOUND
