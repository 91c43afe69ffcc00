"""One head as lines, as a map, as text; several heads together; one word's row in all heads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page
from regard.views import AttentionRecord, PageToken
from unit.views.conftest import encoder_record, write_page

OpenPage = Callable[..., BrowserPage]
TALL = {"width": 1280, "height": 1100}
TEXT = "Pad, 12  \nthai: a-b thai"
TOKENS = (
    ("[CLS]", None),
    ("Pad", 0),
    (",", 0),
    ("12", 0),
    ("th", 0),
    ("##ai", 0),
    (":", 0),
    ("a", 0),
    ("-", 0),
)
TOKENS += (("b", 0), ("thai", 0), ("[SEP]", None))


@pytest.fixture(scope="module")
def record() -> AttentionRecord:
    rng = np.random.default_rng(5)
    tokens = tuple(
        PageToken(
            text=text, special=sequence is None, sequence=sequence, word=3 if text in ("th", "##ai") else i
        )
        for i, (text, sequence) in enumerate(TOKENS)
    )
    q, k = 2 * rng.standard_normal((2, 2, 3, len(TOKENS), 5), dtype=np.float32)
    return encoder_record(text=TEXT, model="m", tokens=tokens, q=q, k=k, scale=0.5)


def _weights(record: AttentionRecord, *heads: tuple[int, int]) -> Any:
    return np.stack([head_page.weights(record, *head) for head in heads])


def _form(page: BrowserPage) -> str:
    name: str = page.locator(".forms input:checked").get_attribute("value") or ""
    return name


def _tip(page: BrowserPage) -> str:
    head_page.drawn(page)
    return page.locator(".running-tip").inner_text()


def _cell(page: BrowserPage, row: int, column: int) -> dict[str, int]:
    """The middle of a cell of the map, for the mouse."""
    width, height, columns, rows = page.locator(".matrix-body").evaluate(
        """e => {
            const style = getComputedStyle(e.parentElement);
            const count = (name) => Number(style.getPropertyValue(name));
            return [e.clientWidth, e.clientHeight, count("--columns"), count("--rows")];
        }"""
    )
    return {"x": int((column + 0.5) * width / columns), "y": int((row + 0.5) * height / rows)}


def test_the_form_suits_the_length_and_stays_in_the_address(open_page: OpenPage, tmp_path: Path) -> None:
    for tokens, form in ((60, "lines"), (61, "text")):
        write_page(head_page.record(tokens=tokens), tmp_path / "page.html")
        page = open_page(tmp_path / "page.html", "#layer=0&head=1&specials=shown")
        assert _form(page) == form
    page.get_by_role("radio", name="Lines").check(force=True)
    assert head_page.address(page).endswith("&form=lines")
    assert head_page.token(page, "query", 0).is_visible()
    again = open_page(tmp_path / "page.html", "#layer=0&head=1&form=map")
    assert _form(again) == "map"
    assert _form(open_page(tmp_path / "page.html", "#layer=0&head=1&form=pie")) == "text"


def test_a_map_tells_each_weight(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=1&head=2&form=map&specials=shown", TALL)
    weights = head_page.weights(record, 1, 2)
    body = page.locator(".matrix-body")
    for row, column in ((0, 3), (7, 7), (11, 1)):
        body.hover(position=_cell(page, row, column))
        names = f"{TOKENS[row][0]} → {TOKENS[column][0]}"
        said, _, number = _tip(page).rpartition(": ")
        assert said == names
        assert float(number) == pytest.approx(weights[row, column], abs=1e-3)
    expect(page.locator(".panel-title")).to_have_text("[SEP] looks at")
    body.click(position=_cell(page, 4, 0))
    assert head_page.state(page)["pin"] == {"side": "query", "index": 4}
    page.keyboard.press("Escape")
    head_page.token(page, "key", 5).click()
    assert head_page.state(page)["pin"] == {"side": "key", "index": 5}
    head_page.token(page, "query", 0).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert head_page.state(page)["pin"] == {"side": "key", "index": 3}
    # The darkest cell is the largest weight.
    page.keyboard.press("Escape")
    page.locator(".brand").hover()
    colours = page.locator(".matrix-body canvas").first.evaluate(
        """(canvas, count) => {
            // Read from a copy: Chromium warns of a canvas that is read twice.
            const copy = new OffscreenCanvas(canvas.width, canvas.height);
            const pen = copy.getContext("2d", { willReadFrequently: true });
            pen.drawImage(canvas, 0, 0);
            const side = canvas.width / count;
            return Array.from({ length: count * count }, (_, i) => {
                const at = [side * (i % count) + 2, side * Math.floor(i / count) + 2];
                return pen.getImageData(...at, 1, 1).data[0];
            });
        }""",
        len(TOKENS),
    )
    assert colours[np.argmax(weights)] == min(colours)
    assert np.corrcoef(colours, weights.ravel())[0, 1] < -0.999


def test_a_text_is_shaded_by_the_pinned_row(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=0&head=1&form=text&pin=query-7&specials=hidden")
    # As it was typed: no mark of a piece, and the spaces of the text.
    assert page.locator(".running-text").evaluate(
        "e => e.textContent"
    ) == "Pad, 12  \nth##ai: a-b thai".replace("##", page.locator(".mark").first.text_content() or "")
    weights = head_page.weights(record, 0, 1)
    word = page.locator(".running .word")
    drawn = word.evaluate_all(
        "all => all.map(e => Number((/rgb\\((\\d+)/.exec(e.style.backgroundColor) || [0, 255])[1]))"
    )
    shown = weights[7, 1:-1]
    assert np.argmin(drawn) == np.argmax(shown)
    assert np.corrcoef(drawn, shown)[0, 1] < -0.98
    for index in (3, 9):
        head_page.token_of_text(page, index).hover()
        assert float(_tip(page)) == pytest.approx(weights[7, index], abs=1e-3)
    head_page.token_of_text(page, 7).focus()
    for key, index in (("ArrowRight", 8), ("ArrowLeft", 7), ("Home", 1), ("ArrowDown", 4), ("End", 10)):
        page.keyboard.press(key)
        pin = head_page.state(page)["pin"]
        assert pin["side"] == "query"
        assert pin["index"] == index or key == "ArrowDown"
    page.get_by_role("radio", name="What looks at it").check(force=True)
    assert head_page.state(page)["pin"] == {"side": "key", "index": 10}
    head_page.token_of_text(page, 2).hover()
    assert float(_tip(page)) == pytest.approx(weights[2, 10], abs=1e-3)
    page.keyboard.press("Escape")
    head_page.token_of_text(page, 4).click()
    assert head_page.state(page)["pin"] == {"side": "key", "index": 4}


@pytest.mark.parametrize(("how", "of"), [("mean", np.mean), ("largest", np.max)])
def test_several_heads_together(
    open_page: OpenPage, path: Path, record: AttentionRecord, how: str, of: Callable[..., Any]
) -> None:
    page = open_page(path, "#layer=0&head=0&also=0.0,0.1,0.2&pin=query-4&specials=shown", TALL)
    page.get_by_role("radio", name=how.capitalize()).check(force=True)
    assert head_page.address(page).endswith(f"&together={how}")
    weights = of(_weights(record, (0, 0), (0, 1), (0, 2)), axis=0)
    expect(page.locator(".where")).to_have_text(f"{how.capitalize()} of all 3 heads of layer 0")
    shown = [float(number) for number in head_page.numbers(page, "key")]
    np.testing.assert_allclose(shown, weights[4], rtol=0, atol=1e-3)
    assert page.locator(".top .why").locator("visible=true").count() == 0
    sums = "which sums to 1" if how == "mean" else "which need not sum to 1"
    expect(page.locator(".panel .note").first).to_contain_text(sums)
    page.get_by_role("radio", name="Map").check(force=True)
    page.locator(".matrix-body").hover(position=_cell(page, 6, 2))
    assert float(_tip(page).rpartition(": ")[2]) == pytest.approx(weights[6, 2], abs=1e-3)
    page.get_by_role("radio", name="Text").check(force=True)
    head_page.token_of_text(page, 2).hover()
    assert float(_tip(page)) == pytest.approx(weights[4, 2], abs=1e-3)


def test_one_word_in_all_heads(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=0&head=0&form=all&pin=query-4&specials=shown")
    expect(page.locator(".strip-name")).to_have_count(6)
    for row, head in enumerate((layer, head) for layer in range(2) for head in range(3)):
        page.locator(".matrix-body").hover(position=_cell(page, row, 9))
        said, _, number = _tip(page).rpartition(": ")
        assert said == f"Head {head[0]}.{head[1]}, b"
        assert float(number) == pytest.approx(head_page.weights(record, *head)[4, 9], abs=1e-3)
    page.locator(".matrix-body").click(position=_cell(page, 4, 9))
    assert (head_page.state(page)["layer"], head_page.state(page)["head"]) == (1, 1)
    page.get_by_role("button", name="Next layer").click()
    expect(page.locator(".form output")).to_have_text("Layer 0")
    page.get_by_role("button", name="Play the layers").click()
    expect(page.locator(".form output")).to_have_text("Layer 1")
    page.get_by_role("button", name="Show all layers at once").click()
    expect(page.locator(".form output")).to_have_text("All layers")


def test_the_strip_of_the_chosen_head_is_in_view(open_page: OpenPage, tmp_path: Path) -> None:
    q, k = np.random.default_rng(5).standard_normal((2, 6, 12, len(TOKENS), 5), dtype=np.float32)
    tokens = tuple(PageToken(text=text, special=sequence is None) for text, sequence in TOKENS)
    write_page(
        encoder_record(text=TEXT, model="m", tokens=tokens, q=q, k=k, scale=0.5), tmp_path / "page.html"
    )
    page = open_page(
        tmp_path / "page.html",
        "#layer=5&head=6&form=all&pin=query-4",
        viewport={"width": 1280, "height": 800},
    )
    head_page.drawn(page)
    chosen = page.locator('.strip-name[aria-selected="true"]')
    expect(chosen).to_have_text("5.6")
    page.wait_for_function(
        """() => {
            const strip = document.querySelector('.strip-name[aria-selected="true"]');
            const { left, top, width, height } = strip.getBoundingClientRect();
            return strip.contains(document.elementFromPoint(left + width / 2, top + height / 2));
        }"""
    )
    # Where nobody chose a head, it opens at the top.
    page = open_page(tmp_path / "page.html", "#form=all", viewport={"width": 1280, "height": 800}, start=True)
    head_page.drawn(page)
    assert page.evaluate("document.querySelector('.matrix-scroll, .stage').scrollTop") == 0
    expect(page.locator(".strip-name").first).to_be_in_viewport()


def test_a_long_text_follows_the_pointer_with_what_is_in_view(open_page: OpenPage, tmp_path: Path) -> None:
    write_page(head_page.record(tokens=503), tmp_path / "page.html")
    page = open_page(
        tmp_path / "page.html", "#layer=1&head=1&form=text", viewport={"width": 1280, "height": 800}
    )
    head_page.token_of_text(page, 2).hover()
    head_page.drawn(page)
    page.evaluate(
        """() => {
            window.touched = new Set();
            const note = (all) => all.forEach(({ target }) => touched.add(target));
            window.watcher = new MutationObserver(note);
            const of = document.querySelector(".running");
            watcher.observe(of, { attributes: true, subtree: true });
        }"""
    )
    head_page.token_of_text(page, 9).hover()
    head_page.drawn(page)
    inside = page.locator(".running .word").evaluate_all(
        "all => { const { bottom } = document.querySelector('.stage').getBoundingClientRect();"
        " return all.filter(e => e.getBoundingClientRect().top < bottom).length; }"
    )
    assert 0 < page.evaluate("touched.size") <= inside + 1
    page.locator(".stage").evaluate("e => { e.scrollTop = 1e6; }")
    word = page.locator(".running .word").last
    word.hover()
    expect(word).to_have_class(head_page.has_class("on"))


def test_a_map_is_saved_with_every_cell(
    open_page: OpenPage, path: Path, tmp_path: Path, record: AttentionRecord
) -> None:
    page = open_page(path, "#layer=1&head=2&form=map&specials=shown")
    with page.expect_download() as caught:
        page.get_by_role("button", name="Save the picture as SVG").click()
    assert caught.value.suggested_filename == "layer-1-head-2-map.svg"
    caught.value.save_as(tmp_path / "map.svg")
    svg = (tmp_path / "map.svg").read_text(encoding="utf-8")
    weights = head_page.weights(record, 1, 2)
    said = f"a → Pad: {weights[7, 1]:.3f}"
    assert said[:-1] in svg
    assert svg.count(" → ") == len(TOKENS) ** 2


def test_the_list_says_of_what_it_speaks_and_fits_a_finger(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#layer=0&head=1&pin=query-7&specials=shown")
    first = page.locator(".top li").first
    name, number = first.locator("bdi").inner_text(), first.locator(".top-number").get_attribute("title")
    token = first.locator(".position").inner_text()
    expect(first.get_by_role("button", name=f"{name}, token {token}, {number}", exact=True)).to_be_visible()
    why = first.get_by_role("button", name=f"Why a looks at {name}, {number}", exact=True)
    box = why.bounding_box()
    assert box
    assert min(box["width"], box["height"]) >= 24


def test_pieces_keep_their_case_and_stand_together(open_page: OpenPage, tmp_path: Path) -> None:
    regard.load().trace("GPT NASA").write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#form=text&specials=hidden", {"width": 700, "height": 500})
    words = page.locator(".running .word")
    assert words.all_text_contents() == ["GP", "##T", "NASA"]
    boxes = [word.bounding_box() or {} for word in words.all()]
    assert boxes[0]["x"] + boxes[0]["width"] == pytest.approx(boxes[1]["x"], abs=0.6)
    assert boxes[2]["x"] - boxes[1]["x"] - boxes[1]["width"] > 2
    page.get_by_role("radio", name="Lines").check(force=True)
    page.get_by_text("Display", exact=True).click()
    menu, choice = (
        page.locator(f".strength {name}").bounding_box() or {} for name in (".menu-body", "fieldset")
    )
    assert choice["x"] + choice["width"] <= menu["x"] + menu["width"]
