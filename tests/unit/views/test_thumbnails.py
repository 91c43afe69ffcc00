"""Small pictures of heads: which queries and keys they are of, by hand."""

import numpy as np

from regard.views._thumbnails import binned, sampled


def test_queries_are_evenly_spaced() -> None:
    assert sampled(np.arange(10), 3).tolist() == [1, 5, 8]


def test_a_bin_has_its_largest_number() -> None:
    rows = np.array([[1.0, 5.0, 2.0, 3.0]])
    assert binned(rows, np.array([0, 2, 3]), 2).tolist() == [[2.0, 3.0]]
