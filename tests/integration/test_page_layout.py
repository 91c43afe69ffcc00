"""How the page looks: themes, widths, what is drawn of a long text, and paper."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]


def test_themes(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    paper = "e => getComputedStyle(e).backgroundColor"

    def brightness() -> int:
        color: str = page.locator(".regard").evaluate(paper)
        return sum(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(","))

    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert (brightness() > 380) == (scheme == "light")
    page.get_by_role("button", name="Theme: auto").click()
    assert brightness() > 380
    page.get_by_role("button", name="Theme: light").click()
    assert brightness() < 380
    assert head_page.address(page).endswith("theme=dark")
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Theme: dark").click()
    page.get_by_role("button", name="Theme: auto").click()
    assert brightness() > 380  # whatever the system has


@pytest.mark.parametrize("width", [360, 1440])
def test_no_sideways_scrolling(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    path = tmp_path / "page.html"
    write_page(head_page.record(pair=True), path)
    page = open_page(path, "#pin=query-1", viewport={"width": width, "height": 780})
    expect(head_page.token(page, "key", 1).locator(".number")).not_to_be_empty()
    if width == 360:  # there the grid is folded away
        expect(page.get_by_role("grid")).to_be_hidden()
        page.get_by_role("button", name="Choose another head").click()
    expect(page.get_by_role("grid")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = head_page.token(page, "key", 1).locator(".number").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= width


def test_view_and_numbers_have_room(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(head_page.record(tokens=44), path)
    page = open_page(path)
    for width, height in ((800, 600), (1024, 768), (1100, 600), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        # All at one instant: the page is still drawn anew, and a scroll bar comes and goes.
        picker, stage, panel = page.evaluate(
            """async (names) => {
                await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                return names.map((name) => document.querySelector(name).getBoundingClientRect().toJSON());
            }""",
            [".picker", ".stage", ".panel"],
        )
        assert stage["height"] > 0.5 * height
        assert panel["height"] > 150
        assert stage["left"] >= picker["right"]
        if width <= 1180:
            assert panel["left"] == picker["left"]
            assert panel["top"] >= picker["bottom"]
        if height >= 720:
            assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")


# Where the numbers stand, and the sentences and buttons around them.
_PLACES = """() => [...document.querySelectorAll(
    ".panel-title, .panel > .note, .top li, .top-number, .why, .worked-title, .worked-title + *, .of-scaled"
)].filter(each => each.checkVisibility()).map(each => {
    const { top, right, height } = each.getBoundingClientRect();
    return [each.className, top, right, height];
})"""


def test_one_long_token_moves_nothing(open_page: OpenPage, tmp_path: Path) -> None:
    record = head_page.record()
    views = ("#pin=query-1", "#view=heads", "#view=neuron&pin=query-1&key=1")
    places: dict[str, list[Any]] = {view: [] for view in views}
    for word in ("time", 30 * "pneum"):
        tokens = tuple(
            replace(token, text=word) if token.text == "time" else token for token in record.encoder.tokens
        )
        path = tmp_path / f"{len(word)}.html"
        write_page(replace(record, encoder=replace(record.encoder, tokens=tokens)), path)
        page = open_page(path, viewport={"width": 1280, "height": 800})
        for view in views:
            head_page.go(page, view)
            expect(page.locator(".why:visible, .worked-title:visible").first).to_be_visible()
            head_page.drawn(page)
            places[view].append(page.evaluate(_PLACES))
    for view, (short, long) in places.items():
        assert len(short) > 5, view
        assert short == long, view


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080), (390, 844)])
def test_the_lines_are_in_the_first_window(
    open_page: OpenPage, tmp_path: Path, width: int, height: int
) -> None:
    """Above them is a header of one line in a low window, and on a phone no grid of heads."""
    write_page(head_page.record(tokens=14, pair=True), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", viewport={"width": width, "height": height})
    top = page.locator(".stage").evaluate("e => e.getBoundingClientRect().top")
    assert top < (340 if width == 390 else 310 if height > 900 else 190)
    # Of a short text the rows grow; a finger meets one on a phone.
    row = page.locator(".token").first.bounding_box()
    assert row is not None
    assert row["height"] == (34 if width == 1280 else 44)
    header = page.locator(".header").bounding_box()
    assert header is not None
    assert header["height"] < (120 if width == 390 else 160 if height > 900 else 50)
    expect(page.locator(".guide")).to_have_text(
        "Each word on the left spreads 100 % of its attention over the words on the right. Point at a word."
    )
    page.get_by_role("tab", name="Positions").click()
    expect(page.locator(".guide")).to_contain_text("where a word stands")


@pytest.mark.parametrize("name", ["movement", "difference"])
def test_header_views_and_footer_begin_and_end_at_one_line(
    open_page: OpenPage, compared_pages: dict[str, Path], name: str
) -> None:
    page = open_page(compared_pages[name], viewport={"width": 1920, "height": 1080})
    edge = """(e, side) => {
        const { paddingLeft, paddingRight } = getComputedStyle(e);
        const { left, right } = e.getBoundingClientRect();
        return { left: left + parseFloat(paddingLeft), right: right - parseFloat(paddingRight) }[side];
    }"""
    for view in page.get_by_role("tab").all():
        view.click()
        for side in ("left", "right"):
            found = [
                page.locator(part).first.evaluate(edge, side)
                for part in (".inside", ".choose", ".shown > :not([hidden])", ".footer")
            ]
            assert max(found) - min(found) <= 1, (view.inner_text(), side, found)


def test_bare_is_the_view_alone(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#bare&layer=1&head=2&pin=query-1", viewport={"width": 800, "height": 450})
    for name in (".header", ".choose", ".footer", ".picker", ".panel"):
        expect(page.locator(name)).to_be_hidden()
    stage = page.locator(".stage").bounding_box()
    assert stage is not None
    assert stage["height"] > 250
    assert stage["width"] > 700
    assert page.evaluate("document.documentElement.scrollHeight") <= 450
    head_page.token(page, "query", 2).click()
    assert page.url.partition("#")[2].startswith("bare&layer=1&head=2&pin=query-2")
    link = page.get_by_role("link")
    link.hover()
    assert "page.html#layer=1&head=2&pin=query-2" in str(link.get_attribute("href"))


def test_help_can_be_read(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#view=heads", viewport={"width": 1280, "height": 800})
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog")
    expect(help_.get_by_role("heading")).to_be_focused()
    # The keys in one column, what they do in a wider one; all of it in one window.
    keys, does = (help_.locator(name).first.evaluate("e => e.clientWidth") for name in ("dt", "dd"))
    assert does > keys > 100
    assert help_.evaluate("e => e.scrollHeight") < 800
    expect(help_.locator("dt").get_by_text("Point at a token")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("tab", name="Positions").click()
    page.keyboard.press("?")
    expect(help_.locator("dt").get_by_text("Point at a token")).to_have_count(0)
    expect(help_.locator("dt").first).to_have_text("Positions")


def test_thumbnail_shows_the_weights_of_its_own_head(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    expect(page.locator(".grid.drawn")).to_be_visible()
    expect(page.locator(".grid-line canvas")).to_have_count(head_page.LAYERS)
    inks = [head_page.ink(page, f".grid-line:nth-child({layer + 2}) canvas") for layer in range(2)]
    boxes = page.locator(".grid-cell").evaluate_all(
        """all => all.map(e => [
            e.offsetLeft - e.closest(".grid-line").querySelector("canvas").offsetLeft,
            e.offsetWidth, e.offsetHeight,
        ])"""
    )
    middles = (np.arange(head_page.TOKENS) + 0.5) / head_page.TOKENS
    for index, (left, width, height) in enumerate(boxes):
        layer, head = divmod(index, head_page.HEADS)
        weights = head_page.weights(head_page.record(), layer, head)
        rows, columns = (height * middles).astype(int), (left + width * middles).astype(int)
        drawn = inks[layer][np.ix_(rows, columns)]
        np.testing.assert_allclose(drawn, 255 * np.sqrt(weights / weights.max()), atol=2)


def test_long_text_draws_only_what_is_in_view(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    record = head_page.record(tokens=503)
    write_page(record, path)
    page = open_page(path, "#layer=1&head=1&form=lines")
    assert page.locator(".lines").first.evaluate("e => e.clientHeight") < 900
    page.locator(".stage").evaluate("e => { e.scrollTop = 5000; }")
    token = head_page.token(page, "query", 215)
    token.hover()
    expect(token).to_have_class(head_page.has_class("on"))
    row = page.evaluate("Array.from(regard.weightsRow(1, 1, 215))")
    expect(head_page.token(page, "key", 214).locator(".number")).to_have_text(f"{row[214]:.4f}")
    expect(head_page.token(page, "key", 0).locator(".number")).to_have_text("")
    page.locator(".stage").evaluate("e => { e.scrollTop = 0; }")
    head_page.token(page, "query", 215).click()
    page.locator(".brand").hover()
    page.locator(".stage").evaluate("e => { e.scrollTop = 0; }")
    expect(head_page.token(page, "key", 0).locator(".number")).to_have_text(f"{row[0]:.4f}")
    assert page.locator("*").count() < 10 * 503  # by the token, not by the weight


@pytest.mark.parametrize("width", [390, 1280])
def test_prints_the_whole_text_on_white(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    path = tmp_path / "page.html"
    write_page(head_page.record(tokens=60), path)
    page = open_page(path, "#theme=dark", viewport={"width": width, "height": 800})
    measure = """() => {
        const size = name => {
            const { clientWidth, clientHeight } = document.querySelector(name);
            return [clientWidth, clientHeight];
        };
        return {
            paper: getComputedStyle(document.querySelector(".regard")).backgroundColor,
            width: size(".regard")[0],
            sheet: size(".sheet"),
            room: size(".canvases"),
            lines: size(".overview"),
            scrolled: document.querySelector(".stage").scrollTop,
        };
    }"""
    page.locator(".stage").evaluate("e => { e.scrollTop = 300; }")
    before = page.evaluate(measure)
    # Still on the screen: the media are those of the paper only after the event. Nothing may be cleared:
    # Chromium prints the steps of a drawing, and a cleared rectangle wipes what is printed below it.
    drawn, cleared = page.evaluate(
        f"""() => {{
            const {{ prototype }} = CanvasRenderingContext2D;
            const {{ clearRect }} = prototype;
            let cleared = 0;
            prototype.clearRect = () => {{ cleared += 1; }};
            dispatchEvent(new Event("beforeprint"));
            prototype.clearRect = clearRect;
            return [({measure})(), cleared];
        }}"""
    )
    assert cleared == 0
    page.emulate_media(media="print")
    on_paper = page.evaluate(measure)
    assert on_paper == drawn
    assert drawn["paper"] == "rgb(255, 255, 255)" != before["paper"]
    assert drawn["width"] == 700
    assert drawn["lines"] == drawn["room"]
    assert drawn["lines"][1] == drawn["sheet"][1] > before["lines"][1]
    assert head_page.ink(page, ".overview")[-40:].any()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(measure) == before
