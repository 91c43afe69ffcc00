"""Cores, as the control group grants them."""

import os
from pathlib import Path

import pytest

from regard.embedding._cores import cores

ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("max 100000", ALLOWED),
        ("9900000 100000", ALLOWED),
        ("", ALLOWED),
    ],
)
def test_a_control_group(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path) == expected


def test_no_control_group(tmp_path: Path) -> None:
    assert cores(tmp_path) == ALLOWED
