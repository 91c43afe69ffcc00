"""Senses from labels: the head learns them, and asks first about what decides most."""

from collections import Counter

import numpy as np
import pytest

from regard.concordance._meaning import voted
from regard.concordance._teach import decided, fit, next_use, words_of
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
    shares = head.predict_proba(vectors[60:])
    np.testing.assert_allclose(shares.sum(1), 1)
    guesses = head.classes_[shares.argmax(1)]
    right = guesses == labels[60:]
    by_neighbours = np.array(voted(vectors[60:] @ learned.T, known)) == labels[60:]
    assert head.classes_.tolist() == ["a", "b", "c"]
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
        def predict_proba(self, vectors: np.ndarray) -> np.ndarray:
            sure = np.where(np.arange(len(vectors)) == 3, 0.55, 0.9)
            return np.stack([sure, 1 - sure], axis=1)

    assert next_use(np.eye(6, dtype=np.float32), [0, 1], Known()) == 3


def by_hand(
    alone: np.ndarray, vectors: np.ndarray, bodies: list[list[str]], known: dict[int, int]
) -> np.ndarray:
    """What `decided` says, use by use and word by word."""
    nearest = np.argsort(-(vectors @ vectors.T - 3 * np.eye(len(vectors))), axis=1)[:, :10]

    def averaged(p: np.ndarray) -> np.ndarray:
        mean = ((p + p[nearest].mean(1)) / 2) ** 1.35
        return np.asarray(mean / mean.sum(1, keepdims=True))

    shares = averaged(alone)
    for row, sense in known.items():
        shares[row] = np.arange(alone.shape[1]) == sense
    texts = Counter(word for body in bodies for word in set(body))
    kept = [[word for word in set(body) if texts[word] > 1] for body in bodies]
    every = sum(map(len, kept))
    both = np.log(alone)
    for row, words in enumerate(kept):
        for sense in range(alone.shape[1]):
            count, total = Counter[str](), 0.0
            for other, of in enumerate(kept):
                if other != row:
                    count.update(dict.fromkeys(of, shares[other, sense]))
                    total += len(of) * shares[other, sense]
            for word in words:
                rate = (count[word] + 300 * texts[word] / every) / (total + 300)
                both[row, sense] += np.log(rate) / np.sqrt(len(words))
    odds = np.exp(both)
    return averaged(odds / odds.sum(1, keepdims=True))


def test_neighbours_and_words_help_the_head() -> None:
    vectors, labels = cones(60, spread=0.5)
    draw = np.random.default_rng(1)
    bodies = [
        [*(f"{draw.choice([label, 'x'])}{n}" for n in draw.integers(0, 8, 4)), f"once{row}"]
        for row, label in enumerate(labels)
    ]
    head = fit(vectors[:9], labels[:9])
    alone, truth = head.predict_proba(vectors), np.array(labels)
    known = {row: "abc".index(label) for row, label in enumerate(labels[:9])}
    found = decided(alone, vectors, words_of(map(" ".join, bodies)), known)
    np.testing.assert_allclose(found, by_hand(alone, vectors, bodies, known), rtol=1e-6)
    wordless = decided(alone, vectors, words_of("" for _ in bodies), {})
    right = [(head.classes_[p.argmax(1)] == truth)[9:].mean() for p in (alone, wordless, found)]
    assert right[0] < right[1] < right[2] - 0.02


def test_one_use_has_neither_neighbours_nor_words() -> None:
    alone = np.array([[0.3, 0.7]])
    np.testing.assert_allclose(decided(alone, np.eye(1, dtype=np.float32), words_of(["a word"]), {}), alone)
