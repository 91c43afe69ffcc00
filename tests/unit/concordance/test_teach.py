"""Senses from labels: the head learns them, and asks first about what decides most."""

from typing import cast

import numpy as np
import pytest

from regard.concordance._meaning import voted
from regard.concordance._teach import Head, fit, next_use, shared
from regard.core.errors import InputError


def cones(count: int, size: int = 24, spread: float = 0.5, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Unit vectors around three directions, with more noise in some others, as those of real uses have."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(np.random.default_rng(9).standard_normal((size, 3)))[0].T
    of = np.arange(3 * count) % 3
    noise = rng.standard_normal((3 * count, size)) * np.linspace(1.6, 0.1, size)
    vectors = centres[of] + spread * noise
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), ["abc"[each] for each in of]


def test_beats_the_neighbours_and_its_probabilities_hold() -> None:
    vectors, labels = cones(600)
    learned, known = vectors[:60], labels[:60]
    head = fit(learned, known)
    shares = head.probabilities(vectors[60:])
    np.testing.assert_allclose(shares.sum(1), 1)
    guesses = [head.names[best] for best in shares.argmax(1)]
    right = np.array(guesses) == labels[60:]
    by_neighbours = np.array(voted(vectors[60:] @ learned.T, known)) == labels[60:]
    assert head.names == ("a", "b", "c")
    assert right.mean() > by_neighbours.mean()
    told, error = shares.max(1), 0.0
    for low in np.arange(0.3, 1.0, 0.1):
        inside = (told > low) & (told <= low + 0.1)
        error += abs(right[inside].sum() - told[inside].sum()) / len(told)
    assert error < 0.05


def test_needs_two_senses() -> None:
    with pytest.raises(InputError, match=r"labels must be of two senses or more; got 1\."):
        fit(np.eye(3, dtype=np.float32), ["a", "a", "a"])


def test_asks_about_what_is_new_and_not_known() -> None:
    vectors, labels = cones(30, spread=0.3)
    asked: list[int] = []
    for _ in range(3):
        row = next_use(vectors, asked, None)
        assert row is not None
        asked.append(row)
    assert sorted(labels[row] for row in asked) == ["a", "b", "c"]
    # A head that knows a and b is unsure of c.
    known = [row for row, label in enumerate(labels) if label != "c"][:20]
    head = fit(vectors[known], [labels[row] for row in known])
    row = next_use(vectors, known, head)
    assert row is not None
    assert labels[row] == "c"
    assert next_use(vectors[:2], [0, 1], None) is None


def test_asks_where_the_head_is_unsure() -> None:
    class Known:
        def probabilities(self, vectors: np.ndarray) -> np.ndarray:
            sure = np.where(np.arange(len(vectors)) == 3, 0.55, 0.9)
            return np.stack([sure, 1 - sure], axis=1)

    assert next_use(np.eye(6, dtype=np.float32), [0, 1], cast(Head, Known())) == 3


def test_neighbours_share_what_the_head_says() -> None:
    vectors, labels = cones(400, spread=0.4)
    head = fit(vectors[:9], labels[:9])
    alone = head.probabilities(vectors)
    both = shared(alone, vectors)
    nearest = np.argsort(-(vectors @ vectors.T - 3 * np.eye(len(vectors))), axis=1)[:, :10]
    by_hand = ((alone + alone[nearest].mean(1)) / 2) ** 1.35
    np.testing.assert_allclose(both, by_hand / by_hand.sum(1, keepdims=True), rtol=1e-6)
    truth = np.array(labels)
    right = [(np.array(head.names)[each.argmax(1)] == truth)[9:].mean() for each in (alone, both)]
    assert right[1] > right[0] + 0.02
    assert (shared(alone[:1], vectors[:1]) == alone[:1]).all()
