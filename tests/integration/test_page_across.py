"""The front door of a model of two stacks: a text above, one below, and weights that were made by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import ViewportSize, expect

from integration import head_page
from integration.axe import axe
from integration.first_screen import first_screen
from regard.views import AttentionRecord, LayerRecord, MaskRecord, PageToken, Side, render_page

OpenPage = Callable[..., BrowserPage]

SOURCE, TARGET = "four hundred thirty seven", "vier hundert sieben und dreißig"
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


def _side(text: str, before: str, after: str) -> Side:
    words = [*filter(None, [before]), *text.split(), *filter(None, [after])]
    tokens = tuple(
        PageToken(text=word, special=word.startswith("["), word=None if word.startswith("[") else at)
        for at, word in enumerate(words)
    )
    return Side(text=text, tokens=tokens)


def _rows(rows: dict[int, dict[int, float]], queries: int, keys: int) -> np.ndarray:
    """Weights; what is not given is even."""
    made = np.full((queries, keys), 1 / keys)
    for query, shares in rows.items():
        left = (1 - sum(shares.values())) / (keys - len(shares))
        made[query] = [shares.get(key, left) for key in range(keys)]
    return made


def _layer(weights: np.ndarray, mask: MaskRecord | None = None) -> LayerRecord:
    """A layer whose softmax gives these weights: the scores are their logarithms."""
    heads, _, keys = weights.shape
    k = np.broadcast_to(np.eye(keys, dtype=np.float32), (heads, keys, keys))
    return LayerRecord(layer=0, q=np.log(weights).astype(np.float32), k=k.copy(), scale=1.0, mask=mask)


# The source's tokens are its four words and [EOS]; the target's are [BOS] and its five words.
ROWS = [
    {1: {0: 0.8}, 3: {3: 0.7}, 4: {2: 0.9}, 5: {4: 0.95}},  # "vier" looks at "four", "und" at "thirty"
    {4: {1: 0.7}},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    encoder, decoder = _side(SOURCE, "", "[EOS]"), _side(TARGET, "[BOS]", "")
    layers: dict[Any, Any] = {
        "encoder": (_layer(np.full((2, 5, 5), 0.2)),),
        "decoder": (_layer(np.full((2, 6, 6), 1 / 6), MaskRecord(high=0)),),
        "cross": (_layer(np.stack([_rows(each, 6, 5) for each in ROWS])),),
    }
    record = AttentionRecord(model="by hand", encoder=encoder, decoder=decoder, layers=layers)
    render_page(record).write(tmp_path / "page.html")
    return tmp_path / "page.html"


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_first_screen_is_short(open_page: OpenPage, path: Path, size: ViewportSize) -> None:
    page = open_page(path, start=True, viewport=size)
    assert first_screen(page).fits(words=60, numbers=10, controls=8)
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    said = page.locator(".door-said")
    expect(said).to_have_text("In one of 2 heads, vier gives 80\u00a0% of its attention to four.")
    expect(page.locator(".door-note").first).to_contain_text("what comes next; in this text, hundert.")
    lines = page.locator(".door > .door-sentence .door-line")
    expect(lines).to_have_text([SOURCE, TARGET])
    assert axe(page).violations == []


def test_words_below_look_at_words_above(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True)
    said = page.locator(".door-said")
    word = page.locator(".door > .door-sentence .door-word")
    page.get_by_role("option", name="und", exact=True).click()
    expect(said).to_have_text("In one of 2 heads, und gives 90\u00a0% of its attention to thirty.")
    assert head_page.state(page)["kind"] == "cross"
    # To the place of "und" among the tokens stands "seven" above: that is not itself.
    page.get_by_role("listbox").press("End")
    expect(said).to_have_text(
        "In one of 2 heads, dreißig looks at no word: 95\u00a0% of its attention rests on [EOS]."
    )
    page.get_by_role("listbox").press("ArrowLeft")
    page.get_by_role("listbox").press("ArrowLeft")
    expect(said).to_have_text("In one of 2 heads, sieben gives 70\u00a0% of its attention to seven.")
    # A word above leads to the word below that looks at it most.
    word.filter(has_text="thirty").click()
    expect(page.get_by_role("option", selected=True)).to_have_text("und")
    # The strongest arc ends at "thirty".
    arcs = page.locator(".door > .door-sentence .door-arcs g")
    assert arcs.evaluate_all("all => all.map((e) => e.dataset.to)")[-1] == "2"
    page.get_by_role("button", name="And the other heads?").click()
    expect(page.locator(".door-card")).to_have_count(2)
    expect(page.locator(".door-card").last).to_contain_text("hundred 70\u00a0%")
    page.locator(".door-card").last.click()
    expect(said).to_have_text("In one of 2 heads, und gives 70\u00a0% of its attention to hundred.")


def test_why_it_looks_there(open_page: OpenPage, path: Path) -> None:
    """The keys made by hand are a number each: what "und" asks for is the logarithms of its own row."""
    page = open_page(path, start=True, viewport=DESK)
    page.get_by_role("option", name="und", exact=True).click()
    page.get_by_role("button", name="Why?").click()
    answer = page.locator(".answer-why")
    expect(answer.locator(".share.on")).to_have_text("thirty90 %")
    expect(answer.locator(".offers li").nth(1)).to_contain_text("thirty offers")
    expect(answer.locator(".offers .asks")).to_contain_text("und asks")
    # 0.9 beside 0.025: log 0.9 is above the mean by 4/5 of log 36; each key lacks a fifth of each number.
    fit, most = 0.8 * np.log(36), 0.2 * np.log(40)
    expect(answer).to_contain_text(
        f"{most:.2f}; all together give {fit:.2f}, by which thirty fits better than the mean."
    )
    answer.get_by_role("button", name="Work it out").click()
    expect(answer.locator(".story-worked strong")).to_have_text("90.0 %")
    assert axe(page).violations == []
    # Another kind of attention that is chosen in the views leaves it as it is.
    page.evaluate("location.hash = '#view=door&kind=encoder&head=1&pin=query-0&asks=why'")
    expect(answer).to_contain_text("vier has 100 % to give")
    expect(answer.locator(".share.on")).to_have_text("four80 %")


def test_the_views_are_where_they_were(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True)
    page.get_by_role("button", name="All views").click()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Heads")
    page.get_by_label("Encoder", exact=True).check(force=True)
    assert head_page.state(page)["kind"] == "encoder"
    page.get_by_role("link", name="regard").click()
    expect(page.locator(".door-said")).to_contain_text("vier gives")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Copy picture").click()
    assert saved.value.suggested_filename == "regard.png"
