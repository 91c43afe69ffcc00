"""Directions of meaning, beside their formulas."""

import numpy as np

from regard.concordance._meaning import refined
from tolerances import FP64, assert_close_to_largest


def test_examples_move_a_query_as_rocchio_says() -> None:
    query = np.array([1.0, 2.0, 0.0])
    more, less = np.array([[0.0, 1.0, 0.0], [0.0, 3.0, 2.0]]), np.array([[4.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    # q + (0, 2, 1) - (2, 0, 2) / 2
    moved = np.array([0.0, 4.0, 0.0])
    assert_close_to_largest(refined(query, more, less), moved / 4.0, FP64)
