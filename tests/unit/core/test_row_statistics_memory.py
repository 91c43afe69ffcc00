"""The peak memory of all statistics of rows, as the operating system saw it, where a matrix is large."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard

pytest.importorskip("resource", reason="the peak of resident memory is a Unix number")

MATRIX = 8 * 4096 * 4096 * 4 / 2**20
"""MiB of one float32 (heads, queries, keys) matrix."""

BOUND = 150.0
"""MiB. Two blocks are 16 MiB, the answers are 30 numbers a row, 4 MiB: some 30 in all, 55 with a bias. The
worst of all texts, one word over and over ("causal"), has as many pairs as a block has entries, 105. Less
than a third of one matrix."""

KINDS = ["plain", "causal", "window & causal", "causal + bias"]


@pytest.fixture(scope="module")
def growth() -> dict[str, float]:
    paths = [str(Path(regard.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("_measure_memory.py"))],
        input=json.dumps([(kind, "statistics", False) for kind in KINDS]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    return dict(zip(KINDS, json.loads(answer.stdout), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_all_statistics_stay_far_below_one_matrix(kind: str, growth: dict[str, float]) -> None:
    assert growth[kind] < BOUND < MATRIX / 3
