"""Learning rates against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from regard.core.errors import InputError
from regard.training._run import SCHEDULES, learning_rate

PEAK, FLOOR, WARMUP, STEPS = 2.0, 0.2, 10, 109  # what falls reaches the floor at 110
ON_THE_WAY = {
    "constant": {1: 0.2, 10: 2.0, 60: 2.0, 110: 2.0},
    "inverse-sqrt": {1: 0.2, 10: 2.0, 40: 1.0, 90: 2.0 / 3.0},
    "cosine": {1: 0.2, 10: 2.0, 60: 1.1, 109: 0.2 + 0.9 * (1 - math.cos(math.pi / 100))},
    "linear": {1: 0.2, 10: 2.0, 60: 1.1, 109: 0.2 + 1.8 / 100},
    "stable": {1: 0.2, 10: 2.0, 88: 2.0, 99: 0.2 + 1.8 * (1 - math.sqrt(0.5))},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rate_goes_the_way_that_its_formula_says(name: str) -> None:
    for step, wanted in ON_THE_WAY[name].items():
        found = learning_rate(name, step, peak=PEAK, floor=FLOOR, warmup=WARMUP, steps=STEPS)
        assert found == pytest.approx(wanted), f"step {step}"


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_step_moves_and_none_further_than_the_peak(name: str) -> None:
    for warmup in (0, 1, 7, 20):
        for steps in (1, 2, 13):
            given = {"peak": PEAK, "warmup": warmup, "steps": steps}
            rates = [learning_rate(name, step, **given) for step in range(1, steps + 1)]
            assert all(0.0 < rate <= PEAK for rate in rates)
            assert warmup > steps or max(rates) == PEAK


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(InputError, match=r"schedule must be one of constant, .*; got 'cosin'"):
        learning_rate("cosin", 1, peak=1.0)
