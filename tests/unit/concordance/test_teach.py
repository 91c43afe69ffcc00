"""Senses from labels: the head learns them, and asks first about what decides most."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from regard.concordance import _teach
from regard.concordance._lines import Line
from regard.concordance._meaning import voted
from regard.concordance._teach import (
    Taught,
    decided,
    drawn_use,
    fit,
    nearest_of,
    next_use,
    taught,
    tempered,
    words_of,
)
from regard.core.errors import InputError
from unit.concordance.conftest import Make


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
    nearest = nearest_of(vectors)
    found = decided(alone, nearest, words_of(map(" ".join, bodies)), known)
    np.testing.assert_allclose(found, by_hand(alone, vectors, bodies, known), rtol=1e-6)
    wordless = decided(alone, nearest, words_of("" for _ in bodies), {})
    right = [(head.classes_[p.argmax(1)] == truth)[9:].mean() for p in (alone, wordless, found)]
    assert right[0] < right[1] < right[2] - 0.02


def test_one_use_has_neither_neighbours_nor_words() -> None:
    alone = np.array([[0.3, 0.7]])
    nearest = nearest_of(np.eye(1, dtype=np.float32))
    np.testing.assert_allclose(decided(alone, nearest, words_of(["a word"]), {}), alone)


def told(vectors: np.ndarray, labels: list[str], known: dict[int, str]) -> tuple[float, float, Taught]:
    """What is said of the uses without a label, what is right, and all of it."""
    found = taught(vectors, words_of("" for _ in labels), known)
    rest = [row for row in range(len(labels)) if row not in known]
    right = np.array(found.names)[found.shares[rest].argmax(1)] == np.array(labels)[rest]
    return float(found.shares[rest].max(1).mean()), float(right.mean()), found


@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_probabilities_are_as_right_as_the_examples_bear_out(wrong: float) -> None:
    """Labels of which some are dealt at random: said and right fall together."""
    vectors, labels = cones(50, spread=0.4)
    gaps, before, estimates = [], [], []
    for seed in range(5):
        draw = np.random.default_rng(seed)
        dealt = [str(draw.choice(list("abc"))) if draw.random() < wrong else label for label in labels]
        known = {row: dealt[row] for row in draw.permutation(150)[:30].tolist()}
        said, right, found = told(vectors, dealt, known)
        np.testing.assert_allclose(found.shares.sum(1), 1)
        gaps.append(said - right)
        rest = [row for row in range(150) if row not in known]
        before.append(tempered(found.shares, 1 / found.power)[rest].max(1).mean() - right)
        estimates += [found.right - right, found.of_all - right]
    assert abs(np.mean(gaps)) < 0.08
    if wrong:  # without the tempering it is far off
        assert np.mean(before) > np.mean(gaps) + 0.1
    assert abs(np.mean(estimates)) < 0.1


def test_each_label_is_left_out_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, labels = cones(40, spread=0.6)
    known = dict(list(enumerate(labels))[:21])
    words, nearest, right = words_of("" for _ in labels), nearest_of(vectors), 0
    for row, label in known.items():
        rest = {other: name for other, name in known.items() if other != row}
        head = fit(vectors[[*rest]], [*rest.values()])
        numbers = {other: "abc".index(name) for other, name in rest.items()}
        shares = decided(head.predict_proba(vectors), nearest, words, numbers)
        right += "abc"[shares[row].argmax()] == label
    assert taught(vectors, words, known).right == pytest.approx(right / 21)
    calls = []
    monkeypatch.setattr(_teach, "fit", lambda some, names: calls.append(names) or fit(some, names))
    monkeypatch.setattr(_teach, "_TURNS", 5)
    taught(vectors, words, known)
    assert [len(names) for names in calls] == [16, 17, 17, 17, 17, 21]


def test_what_is_left_of_two_labels_is_one_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, labels = cones(10)
    found = taught(vectors, words_of("" for _ in labels), {0: "a", 1: "b"})
    assert (found.names, found.shares.shape) == (["a", "b"], (30, 2))
    assert np.isfinite(found.shares).all()


def test_the_first_are_drawn_and_then_every_second(made: Make, tmp_path: Path) -> None:
    index = made("\n".join(f"a bank {n} of {n % 2}" for n in range(40)))
    seen: list[int] = []

    def ask(line: Line, names: Sequence[str]) -> str:
        seen.append(line.place.use)
        return "ab"[line.place.body.endswith("1")]

    assert index.teach("bank", tmp_path / "a.json", ask, most=26) == 26
    rows = [line.place.use for line in index.find("bank", k=None)]
    asked = [rows.index(use) for use in seen]
    assert len(set(asked)) == 26
    drawn = [drawn_use(40, asked[:at]) for at in range(26)]
    assert [a == b for a, b in zip(asked, drawn, strict=True)][:20] == [True] * 20
    assert [at for at in (21, 23, 25) if asked[at] == drawn[at]] == [21, 23, 25]
    assert [at for at in (20, 22, 24) if asked[at] == drawn[at]] != [20, 22, 24]
    assert drawn_use(3, [0, 1, 2]) is None
    again = index.senses("bank", file=tmp_path / "a.json")
    assert "On your 26 examples, left out in turn: " in again.about
