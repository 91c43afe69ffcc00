"""`regard.view`: the page of weights that regard did not compute shows these, and says so."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page

OpenPage = Callable[..., BrowserPage]

TOKENS = ["[CLS]", "river", "bank", "##ing", "<b>x</b>", "[SEP]", "שלום"]
LAYERS, HEADS = 2, 3

_READ = """([kind, layers, heads, rows, what]) => Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) =>
        Array.from({ length: rows }, (_, i) => Array.from(regard.source[what](kind, layer, head, i)))))"""


def _softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: npt.NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return weights


@pytest.fixture
def weights() -> npt.NDArray[np.float64]:
    """Some peaked, some flat, and a row of zeros."""
    scores = np.random.default_rng(0).standard_normal((LAYERS, HEADS, len(TOKENS), len(TOKENS)))
    made = _softmax(scores * np.array([1, 4, 12])[None, :, None, None])
    made[1, 2, 3] = 0
    return made


def test_every_weight_is_the_one_given(
    open_page: OpenPage, weights: npt.NDArray[np.float64], tmp_path: Path
) -> None:
    made = regard.view(weights, TOKENS, name="mine")
    made.write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    rows = np.array(page.evaluate(_READ, ["encoder", LAYERS, HEADS, len(TOKENS), "row"]))
    columns = np.array(page.evaluate(_READ, ["encoder", LAYERS, HEADS, len(TOKENS), "column"]))
    assert np.abs(rows - weights).max() <= made.largest_difference < 5e-5
    np.testing.assert_array_equal(columns.swapaxes(-1, -2), rows)
    expect(page.locator(".difference")).to_contain_text("as they were given")
    expect(page.locator(".facts")).to_contain_text("mine")
    expect(page.locator("h1")).to_have_text("river banking <b>x</b> שלום")
    assert page.locator("h1 b").count() == 0


def test_the_head_view_shows_them(
    open_page: OpenPage, weights: npt.NDArray[np.float64], tmp_path: Path
) -> None:
    regard.view(weights, TOKENS).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#layer=1&head=2&pin=query-1")
    expect(page.locator(".panel-title")).to_contain_text("river looks at")
    expect(page.locator(".panel")).to_contain_text("Its weights, as they were given")
    expect(page.locator(".top-number")).to_have_count(len(TOKENS))
    assert head_page.listed(page) == pytest.approx(sorted(weights[1, 2, 1])[::-1], abs=1e-4)
    page.get_by_label("Whole words").check()
    expect(page.locator(".queries .chip")).to_have_count(len(TOKENS) - 1)
    page.get_by_label("Special tokens").uncheck()
    expect(page.locator(".queries .chip")).to_have_count(len(TOKENS) - 3)


def test_a_pair_and_cross_attention(
    open_page: OpenPage, weights: npt.NDArray[np.float64], tmp_path: Path
) -> None:
    regard.view(weights, TOKENS, second=5).write(tmp_path / "pair.html")
    page = open_page(tmp_path / "pair.html", "#filter=ab")
    expect(page.locator(".queries .chip")).to_have_count(5)
    expect(page.locator(".keys .chip")).to_have_count(2)
    cross = weights[:, :, :, :4] / np.maximum(weights[:, :, :, :4].sum(axis=-1, keepdims=True), 1e-9)
    regard.view(list(cross), TOKENS, key_tokens=["a", "b", "c", "d"]).write(tmp_path / "cross.html")
    page = open_page(tmp_path / "cross.html")
    rows = np.array(page.evaluate(_READ, ["cross", LAYERS, HEADS, len(TOKENS), "row"]))
    np.testing.assert_allclose(rows, cross, rtol=0, atol=5e-5)
    expect(page.locator(".keys .chip")).to_have_count(4)
