"""Steps of negative sampling against the formula in float64, one example after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.kernels import NegativeSampling
from regard.kernels import _negative_sampling as negative_sampling
from tolerances import FP32_OF_LARGEST
from unit.kernels.targets import TARGETS

pytestmark = pytest.mark.skipif(not TARGETS, reason="the processor has no AVX2")

WORDS, ROWS, EXAMPLES = 23, 31, 61


def lists(draw: np.random.Generator, count: int, below: int) -> tuple[Any, Any]:
    """So many lists of one to four numbers, as places in one array."""
    first = np.concatenate([[0], draw.integers(1, 5, count).cumsum()])
    return first, draw.integers(0, below, first[-1]).astype(np.int32)


def by_hand(
    tables: Any, pieces: Any, words: Any, targets: Any, rate: float, is_whole: bool
) -> tuple[Any, Any, float]:
    read, predicted = (table.astype(np.float64) for table in tables)
    loss = 0.0
    for example, (target, *others) in enumerate(targets.tolist()):
        own = words[1][words[0][example] : words[0][example + 1]]
        rows = [row for word in own for row in pieces[1][pieces[0][word] : pieces[0][word + 1]]]
        h = sum(read[row] for row in rows) / len(rows)
        before, g = predicted.copy(), np.zeros_like(h)
        for sign, word in [(1, target), *((-1, other) for other in others if other != target)]:
            y = sign * (h @ before[word])
            loss += np.log1p(np.exp(-y))
            moved = rate * sign / (1 + np.exp(y))
            g += moved * before[word]
            predicted[word] += moved * h
        for row in rows:
            read[row] += g if is_whole else g / len(rows)
    return read, predicted, loss


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(("size", "negatives", "is_whole"), [(13, 5, False), (37, 1, True), (100, 19, False)])
def test_each_step_is_the_formula(
    target: Any, size: int, negatives: int, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negative_sampling, "here", lambda: target)
    learn, draw = NegativeSampling(size, negatives, is_whole=is_whole), np.random.default_rng(1)
    tables = tuple(np.zeros((count, learn.width), np.float32) for count in (ROWS, WORDS))
    for table in tables:
        table[:, :size] = draw.normal(size=(len(table), size))
    pieces, words = lists(draw, WORDS, ROWS), lists(draw, EXAMPLES, WORDS)
    targets = draw.integers(0, WORDS, (EXAMPLES, 1 + negatives)).astype(np.int32)
    assert (targets[:, :1] == targets[:, 1:]).any()  # a word drawn that is the one to predict
    wanted = by_hand(tables, pieces, words, targets, 0.05, is_whole)
    loss = learn(tables, pieces, words, targets, 0.05)
    for found, exact in zip(tables, wanted, strict=False):
        assert np.abs(found - exact).max() < EXAMPLES * FP32_OF_LARGEST * np.abs(exact).max()
        assert not found[:, size:].any()
    assert loss == pytest.approx(wanted[2], rel=1e-5)


def test_scores_far_from_zero_stay_finite() -> None:
    learn = NegativeSampling(3, 1)
    tables = tuple(np.zeros((2, learn.width), np.float32) for _ in range(2))
    tables[0][0, 0], tables[1][0, 0], tables[1][1, 0] = 1e3, -1e3, 1e3
    one = np.array([0, 1]), np.array([0], np.int32)
    loss = learn(tables, (np.arange(3), np.arange(2, dtype=np.int32)), one, np.array([[0, 1]], np.int32), 0.1)
    assert loss == 2e6  # both wrong, by a million
    assert tables[1][:, 0].tolist() == [-900.0, 900.0]
    assert tables[0][0, 0] == 1e3 - 200
