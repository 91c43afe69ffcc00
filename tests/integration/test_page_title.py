"""The texts above the views: their words are the tokens'."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_page(head_page.record(pair=True), tmp_path / "page.html")
    return tmp_path / "page.html"


def _shades(page: BrowserPage) -> dict[str, float]:
    """Each word, and how much of the colour is behind it."""
    found = page.locator(".word").evaluate_all(
        "all => all.map(e => [e.textContent, parseFloat(e.style.getPropertyValue('--part'))])"
    )
    return {word: part / 40 for word, part in found}


def test_pointing_at_a_word_points_at_its_token(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    assert page.locator(".word").all_inner_texts() == ["time", "flies", "fruit", "bananas"]
    page.locator(".word", has_text="flies").hover()
    expect(head_page.token(page, "query", 2)).to_have_class(head_page.has_class("on"))
    page.locator(".brand").hover()
    expect(page.locator(".token.on")).to_have_count(0)
    page.locator(".word", has_text="bananas").click()
    assert head_page.state(page)["pin"] == {"side": "query", "index": 6}


def test_words_are_shaded_by_the_row_of_the_pinned_one(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#layer=1&head=2&pin=query-1")
    row = head_page.weights(head_page.record(), 1, 2)[1]
    found = _shades(page)
    for word, places in {"time": [1], "flies": [2, 3], "fruit": [5], "bananas": [6]}.items():
        wanted = min(1.0, row[places].sum() / row.max())
        assert found[word] == pytest.approx(wanted if wanted >= 0.02 else 0, abs=3e-3)
    page.evaluate("location.hash += '&view=positions'")
    expect(page.locator(".positions")).to_be_visible()
    assert set(_shades(page).values()) == {0}  # where no row is on show
    page.evaluate("location.hash = location.hash.replace('&view=positions', '')")
    page.keyboard.press("Escape")
    assert set(_shades(page).values()) == {0}
    assert np.ptp(list(found.values())) > 0.1
