"""The log-likelihood is scipy's G, and a hand calculation."""

import math

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from regard.concordance import likelihood
from tolerances import FP64


def test_by_hand() -> None:
    # Of 10 words 6 here, of 10 words 2 there: 4 are expected of each.
    cells = [(6, 4), (2, 4), (4, 6), (8, 6)]
    wanted = 2 * sum(seen * math.log(seen / expected) for seen, expected in cells)
    assert likelihood([6, 4], [2, 8])[0] == pytest.approx(wanted, rel=FP64)


def test_against_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 40, (2, 50))
    found = likelihood(a, b)
    for word in range(50):
        table = [[a[word], b[word]], [a.sum() - a[word], b.sum() - b[word]]]
        if a[word] + b[word]:
            wanted = chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic
            assert abs(found[word]) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
            assert found[word] == 0 or (found[word] > 0) == (a[word] / a.sum() > b[word] / b.sum())
        else:
            assert found[word] == 0
