"""What the threads of torch are told before it is imported."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("first", "given", "wanted"),
    [
        ("", {}, "1000"),
        ("", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("", {"OMP_WAIT_POLICY": "active"}, "None"),
        ("sys.modules['torch'] = None; ", {}, "None"),  # too late
    ],
)
def test_they_wait_asleep(first: str, given: dict[str, str], wanted: str) -> None:
    chosen = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    code = f"import sys, os; {first}import regard; print(os.environ.get('GOMP_SPINCOUNT'))"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env=kept | given, capture_output=True, text=True, check=True)
    assert done.stdout == f"{wanted}\n"
