"""The names of heads on a page: those of `regard heads`, their counts, and the heads of a name picked out."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import tiny
from regard.tracing import Trace

OpenPage = Callable[..., BrowserPage]
TEXT = "The cat sat on the mat, and the dog lay on the rug."


SAID = {
    "looks at the word before": "previous",
    "looks at the word after": "next",
    "looks at the same word": "duplicate token",
    "rests on marks": "delimiter sink",
    "looks a fixed way off": "positional stride",
    "all look at the same words": "broadcast",
    "something else": "none",
}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return regard.load().trace(TEXT)


@pytest.fixture(scope="module")
def path(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    trace.write_page(file)
    return file


def _named(trace: Trace, least: float) -> dict[tuple[int, int], str]:
    """The name of every head as Python has it, of those with so large an effect."""
    return {
        (card.layer, card.head): card.pattern
        if card.pattern != "none" and round(card.best.effect, 4) >= least
        else "none"
        for card in trace.heads()
    }


def test_names_are_counted_and_picked(open_page: OpenPage, path: Path, trace: Trace) -> None:
    least = 0.5
    named = _named(trace, least)
    counts = Counter(named.values())
    assert counts["previous"] > 0
    for view, cells in (("heads", ".picker-heads .grid-cell"), ("model", ".wall .grid-cell")):
        page = open_page(path, f"#view={view}&effect={least}&does=nonsense")
        chips = page.locator(".name-chips .button:visible")
        shown = dict(text.rsplit(" ", 1) for text in chips.all_inner_texts())
        assert {SAID[name]: int(count) for name, count in shown.items()} == counts
        expect(page.locator(".grid-cell.faint")).to_have_count(0)
        chips.filter(has_text="the word before").click()
        assert "does=previous" in page.url
        expect(page.locator(".grid-cell.faint")).to_have_count(len(named) - counts["previous"])
        faint = page.locator(cells).evaluate_all("all => all.map(e => e.classList.contains('faint'))")
        assert faint == [name != "previous" for name in named.values()]
        chips.filter(has_text="the word before").click()
        expect(page.locator(".grid-cell.faint")).to_have_count(0)


def test_a_name_stands_by_title_and_thumbnail(open_page: OpenPage, path: Path, trace: Trace) -> None:
    best = trace.heads()[0, 2].best
    assert best.pattern == "previous"
    said = f"looks at the word before ({100 * best.effect:.0f} %)"
    page = open_page(path, "#view=heads&layer=0&head=2")
    expect(page.locator(".head-name")).to_have_text(said)
    expect(page.locator(".head-name")).to_have_attribute(
        "title", "Each token looks at the token just before it."
    )
    cell = page.get_by_role("gridcell", name="Layer 0, head 2")
    expect(cell).to_have_attribute("aria-label", f"Layer 0, head 2, {said}")
    line = page.locator(".picker-said")
    expect(line).to_have_text(f"Layer 0, head 2: {said}")
    cell.focus()
    page.keyboard.press("ArrowLeft")
    expect(line).to_have_text("Layer 0, head 1")
    cell.hover()
    expect(line).to_have_text(f"Layer 0, head 2: {said}")
    page = open_page(path, "#view=model&layer=0&head=2")
    expect(page.locator(".detail h2")).to_have_text(f"Layer 0, head 2: {said}")
    expect(page.locator(".wall-does").nth(2)).to_have_text("previous")
    assert trace.heads()[5, 0].best.pattern == "delimiter sink"
    shown = page.locator(".wall-does").nth(5 * 12)
    expect(shown).to_have_text("sink")
    # With a least effect above the head's own it has no name in the grid.
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Effect from").focus()
    page.keyboard.press("End")
    expect(page.locator(".wall-does").nth(2)).to_have_text("")
    assert "effect=1" in page.url


def test_a_text_too_short_for_names_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    tiny.model("bert").trace("w3 w5 w7").write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=heads")
    expect(page.locator(".names")).to_contain_text("too few words")
    expect(page.locator(".name-chips, .names .slider")).to_have_count(2)
    expect(page.locator(".name-chips:visible, .names .slider:visible")).to_have_count(0)


def test_a_name_stands_apart_from_its_heads_title_on_a_phone(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#layer=1&head=6", viewport={"width": 390, "height": 844})
    title, name = (page.locator(f".view .{each}").bounding_box() for each in ("where", "head-name"))
    assert title is not None
    assert name is not None
    assert name["x"] >= title["x"] + title["width"] + 6 or name["y"] >= title["y"] + title["height"]
