"""Quantiles of many rows at once, beside numpy's."""

import numpy as np
import pytest

from regard.tracing.patterns._counter import _quantile
from tolerances import FP64, assert_close_to_largest


@pytest.mark.parametrize("at", [0.0, 0.025, 0.5, 0.975, 1.0])
def test_quantiles_of_rows_leave_out_what_is_no_number(at: float) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 13))
    rows[1, :3] = rows[3, 2:] = np.nan
    found = _quantile(np.sort(rows, axis=1), np.full(5, at))
    assert_close_to_largest(found, np.nanquantile(rows, at, axis=1), FP64)
