"""A word's movement: the axes are the common way and what sets texts apart, and what is said is true."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from regard.core.errors import InputError
from regard.tracing.comparison import Movement

TEXTS, STEPS, WIDTH = 3, 5, 7


def _movement(vectors: Any, **fields: Any) -> Movement:
    texts, steps = vectors.shape[:2]
    usual: dict[str, Any] = {
        "model": "m",
        "words": texts * ("bank",),
        "texts": tuple(f"text {i}" for i in range(texts)),
        "steps": tuple(map(str, range(steps))),
        "vectors": vectors,
    }
    return Movement(**(usual | fields))


@pytest.fixture
def vectors() -> npt.NDArray[np.float64]:
    scales = np.array([9.0, 4.0, 2.0, 1.0, 0.5, 0.3, 0.1])
    made: npt.NDArray[np.float64] = (
        np.random.default_rng(0).standard_normal((TEXTS, STEPS, WIDTH)) * scales + 3
    )
    made[:, 0] = made[0, 0]  # one learned embedding for all
    return made


@pytest.mark.parametrize("directions", [False, True])
def test_the_axes_are_principal_components(vectors: npt.NDArray[np.float64], directions: bool) -> None:
    if directions:
        vectors = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    mean = vectors.mean(axis=0)
    first = np.linalg.eigh(np.cov(mean.T))[1][:, -1]
    rest = (vectors - mean).reshape(-1, WIDTH)
    between = rest.var(axis=0).sum()
    rest = rest - np.outer(rest @ first, first)
    second = np.linalg.eigh(rest.T @ rest)[1][:, -1]
    centred = vectors.reshape(-1, WIDTH) - vectors.mean(axis=(0, 1))
    wanted = centred @ np.stack([first, second], axis=1)
    found = _movement(vectors).project(directions=directions)
    np.testing.assert_allclose(np.abs(found.points.reshape(-1, 2)), np.abs(wanted), atol=1e-9)
    np.testing.assert_allclose(found.share, wanted.var(axis=0) / centred.var(axis=0).sum(), rtol=1e-9)
    assert found.apart == pytest.approx((rest @ second).var() / between, rel=1e-9)


def test_a_small_difference_is_seen_beside_a_long_way() -> None:
    vectors = np.zeros((2, 4, 5))
    vectors[:, :, 0] = [0.0, 10.0, 20.0, 20.0]
    vectors[:, :, 1] = [0.0, 9.0, 0.0, 0.0]  # the second component of all points, and nothing of the texts
    vectors[0, 3, 2], vectors[1, 3, 2] = 1.0, -1.0
    found = _movement(vectors).project()
    assert found.drawn[3, 0, 1] == pytest.approx(2.0, abs=1e-12)
    assert found.apart == pytest.approx(1.0, abs=1e-12)


def test_one_text_is_drawn_by_its_two_largest_components(vectors: npt.NDArray[np.float64]) -> None:
    centred = vectors[0] - vectors[0].mean(axis=0)
    axes = np.linalg.eigh(np.cov(centred.T))[1][:, ::-1][:, :2]
    found = _movement(vectors[:1]).project()
    np.testing.assert_allclose(np.abs(found.points[0]), np.abs(centred @ axes), atol=1e-9)
    assert found.apart is None


def test_distances_and_what_is_said_of_them(vectors: npt.NDArray[np.float64]) -> None:
    found = _movement(vectors).project()
    true, drawn = [], []
    points = found.points.reshape(-1, 2)
    flat = vectors.reshape(-1, WIDTH)
    for i in range(len(flat)):
        for j in range(i):
            true.append(float(np.sqrt(((flat[i] - flat[j]) ** 2).sum())))
            drawn.append(float(np.sqrt(((points[i] - points[j]) ** 2).sum())))
    assert found.agreement == pytest.approx(np.corrcoef(true, drawn)[0, 1], abs=1e-12)
    assert found.length == pytest.approx(sum(drawn) / sum(true), abs=1e-12)
    assert all(short <= long + 1e-12 for short, long in zip(drawn, true, strict=True))
    for step in range(STEPS):
        gap = vectors[0, step] - vectors[2, step]
        assert found.true[step, 0, 2] == pytest.approx(np.linalg.norm(gap), abs=1e-12)
        gap = found.points[0, step] - found.points[2, step]
        assert found.drawn[step, 0, 2] == pytest.approx(np.linalg.norm(gap), abs=1e-12)
    assert found.true[0].max() == 0


def test_similarity_is_the_cosine(vectors: npt.NDArray[np.float64]) -> None:
    a, b = vectors[0, 3], vectors[1, 3]
    wanted = a @ b / np.sqrt((a @ a) * (b @ b))
    assert _movement(vectors).similarity()[3, 0, 1] == pytest.approx(wanted, abs=1e-12)


def test_turns_so_that_words_move_to_the_right(vectors: npt.NDArray[np.float64]) -> None:
    for each in (vectors, -vectors):
        points = _movement(each).project().points
        assert points[:, -1, 0].mean() >= points[:, 0, 0].mean()
        assert points[0, -1, 1] >= points[-1, -1, 1]


def test_what_does_not_move_has_no_correlation() -> None:
    found = _movement(np.ones((2, 3, 4))).project()
    assert (found.agreement, found.share, found.length) == (None, (0.0, 0.0), 1.0)
    assert not found.points.any()
    facts = _movement(np.zeros((2, 3, 1))).facts()
    assert facts["similarity"][0][0][1] is None
    assert facts["projections"]["directions"]["agreement"] is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"vectors": np.full((TEXTS, STEPS, 2), np.inf)}, "finite"),
        (
            {"vectors": np.zeros((17, STEPS, 2)), "texts": 17 * ("x",), "words": 17 * ("x",)},
            "1 to 16; got 17",
        ),
    ],
)
def test_refuses(vectors: npt.NDArray[np.float64], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        _movement(**({"vectors": vectors} | fields))


def test_different_words_are_drawn_by_where_they_end() -> None:
    """Two that end close are drawn close, whatever the way there was; forms of one word are one word."""
    vectors = np.random.default_rng(3).standard_normal((4, 3, 6)) * 9
    ends = np.array(
        [[5.0, 0, 0, 0.1, 0, 0], [-5, 0, 0, 0, 0.1, 0], [-4, 3, 0, 0, 0, 0.1], [4, 3, 0, 0, 0, 0]]
    )
    vectors[:, -1] = ends
    words = ("money", "river", "bank", "bank")
    found = _movement(vectors, words=words).project()
    assert found.ends
    np.testing.assert_allclose(found.drawn[-1], found.true[-1], atol=0.02)
    assert found.apart == pytest.approx(1.0, abs=1e-3)
    assert not _movement(vectors, words=("bank", "Bank#2", "bank", "bank")).project().ends
