"""Plain arguments: what passes, and that all else is refused by name."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.arguments import check_function, number, one_of, whole
from regard.core.errors import InputError

NOTHING = (None, "a", "2", b"2", [], [2], (), {}, object(), slice(2), 1j, torch.zeros(2), np.zeros(2))
"""What is no number."""


def test_whole_numbers() -> None:
    for value in (2, 5, np.int64(3), torch.tensor(4)):
        assert whole("k", value, least=2, most=5) == int(value)
        assert type(whole("k", value, least=2)) is int
    for bad in (*NOTHING, True, False, 2.0, math.nan, math.inf, np.float64(3), torch.tensor(3.0), 1, 6, -3):
        with pytest.raises(InputError, match=r"^k must be a whole number, from 2 to 5; got "):
            whole("k", bad, least=2, most=5)
    with pytest.raises(InputError, match=r"^k must be a whole number, at least 2; got 1\.$"):
        whole("k", 1, least=2)
    assert whole("k", 10**30, least=2) == 10**30


def test_numbers() -> None:
    for value in (2, -0.5, np.float32(0.5), torch.tensor(0.5), 10**300):
        assert number("x", value) == float(value)
    bad: Any
    for bad in (*NOTHING, True, math.nan, math.inf, -math.inf, 10**400, torch.tensor(math.nan)):
        with pytest.raises(InputError, match=r"^x must be a finite number; got "):
            number("x", bad)


def test_functions() -> None:
    check_function("metric", len, "of one thing")
    check_function("progress", None, "of two", optional=True)
    for bad in (None, 1, "len", [len]):
        with pytest.raises(InputError, match=r"^metric must be a function, of one thing; got "):
            check_function("metric", bad, "of one thing")
    with pytest.raises(InputError, match="progress must be a function"):
        check_function("progress", False, "of two", optional=True)


def test_names() -> None:
    assert one_of("kind", "bpe", ("bpe", "unigram")) == "bpe"
    for bad in (*NOTHING, "", "xyz"):
        with pytest.raises(InputError, match=r"^kind must be one of bpe, unigram; got [^?]*$"):
            one_of("kind", bad, ("bpe", "unigram"))
