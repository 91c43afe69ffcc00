"""Learning rates against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from regard.core.errors import InputError
from regard.training import SCHEDULES, learning_rate

PEAK, FLOOR, WARMUP, STEPS = 2.0, 0.2, 10, 110
ON_THE_WAY = {
    "constant": {1: 0.2, 10: 2.0, 60: 2.0, 110: 2.0},
    "inverse-sqrt": {1: 0.2, 10: 2.0, 40: 1.0, 90: 2.0 / 3.0},
    "cosine": {1: 0.2, 10: 2.0, 60: 1.1, 110: 0.2},
    "linear": {1: 0.2, 10: 2.0, 60: 1.1, 110: 0.2},
    "stable": {1: 0.2, 10: 2.0, 88: 2.0, 99: 0.2 + 1.8 * (1 - math.sqrt(0.5)), 110: 0.2},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rate_goes_the_way_that_its_formula_says(name: str) -> None:
    for step, wanted in ON_THE_WAY[name].items():
        found = learning_rate(name, step, peak=PEAK, floor=FLOOR, warmup=WARMUP, steps=STEPS)
        assert found == pytest.approx(wanted), f"step {step}"


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rate_is_never_negative_nor_above_its_peak(name: str) -> None:
    for warmup in (0, 1, 7):
        rates = [learning_rate(name, step, peak=PEAK, warmup=warmup, steps=13) for step in range(1, 14)]
        assert all(0.0 <= rate <= PEAK for rate in rates)


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(InputError, match=r"schedule must be one of constant, .*; got 'cosin'"):
        learning_rate("cosin", 1, peak=1.0)
