"""The head view: several heads, spans, whole words, other scales, and how it gets on without its numbers."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page
from regard.views import AttentionRecord, LayerRecord, MeasureRecord, PageToken, Side, weight_rows
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]

LAYERS, HEADS = 2, 12
WORDS = ("time", "flies", "fruit", "bananas")
PIECES: tuple[tuple[str, int | None, int | None], ...] = (
    ("[CLS]", None, None),
    ("time", 0, 0),
    ("fl", 1, 0),
    ("##ies", 1, 0),
    ("[SEP]", None, None),
    ("fruit", 2, 1),
    ("ban", 3, 1),
    ("##an", 3, 1),
    ("##as", 3, 1),
    ("[SEP]", None, None),
)
TOKENS = len(PIECES)
STARTS = [0, 1, 2, 4, 5, 6, 9]


@pytest.fixture(scope="module")
def record() -> AttentionRecord:
    rng = np.random.default_rng(29)
    side = Side(
        text="time flies",
        pair="fruit bananas",
        tokens=tuple(
            PageToken(text=text, special=word is None, sequence=sequence, word=word)
            for text, word, sequence in PIECES
        ),
        words=WORDS,
    )
    layers = []
    for layer in range(LAYERS):
        q, k = 2 * rng.standard_normal((2, HEADS, TOKENS, 5), dtype=np.float32)
        layers.append(LayerRecord(layer=layer, q=q, k=k, scale=5**-0.5))
    return AttentionRecord(model="random", encoder=side, layers={"encoder": tuple(layers)})


def _weights(record: AttentionRecord, layer: int, head: int) -> Any:
    return weight_rows(record.layers["encoder"][layer], head, np.arange(TOKENS))


def _in_words(weights: Any) -> Any:
    """Means over the pieces of a query, sums over those of a key: (7, 7)."""
    ends = [*STARTS[1:], TOKENS]
    spans = [slice(start, end) for start, end in zip(STARTS, ends, strict=True)]
    rows = np.stack([weights[span].mean(axis=0) for span in spans])
    return np.stack([rows[:, span].sum(axis=1) for span in spans], axis=1)


_token = head_page.token


def _numbers(page: BrowserPage, side: str) -> Any:
    return np.array([float(text.split()[0]) for text in head_page.numbers(page, side)])


def _state(page: BrowserPage, name: str) -> Any:
    return page.evaluate(f"regard.state().{name}")


def _cell(page: BrowserPage, layer: int, head: int) -> Any:
    return page.get_by_role("gridcell", name=f"Layer {layer}, head {head}", exact=True)


def _close(shown: Any, wanted: Any) -> None:
    np.testing.assert_allclose(shown, wanted, rtol=0, atol=1e-3)


# --- several heads


def test_several_heads_by_pointer(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=0&head=3")
    _cell(page, 1, 7).click(modifiers=["Shift"])
    _cell(page, 0, 5).click(modifiers=["Control"])
    chosen = page.locator('[role="gridcell"][aria-selected="true"]')
    expect(chosen).to_have_count(3)
    assert chosen.evaluate_all("all => all.map(e => [e.ariaLabel, e.dataset.letter])") == [
        ["Layer 0, head 3", "a"],
        ["Layer 0, head 5", "c"],
        ["Layer 1, head 7", "b"],
    ]
    assert page.locator(".legend li").all_inner_texts() == ["a\n0.3\n×", "b\n1.7\n×", "c\n0.5\n×"]
    assert head_page.address(page) == "layer=0&head=5&also=0.3%2C1.7%2C0.5"
    _token(page, "query", 2).hover()
    heads = [_weights(record, *each)[2] for each in ((0, 3), (1, 7), (0, 5))]
    expect(_token(page, "key", 0).locator(".number")).not_to_be_empty()
    _close(_numbers(page, "key"), np.max(heads, axis=0))
    letters = [text.split()[1] for text in page.locator('.token[data-side="key"] .number').all_inner_texts()]
    assert letters == ["abc"[place] for place in np.argmax(heads, axis=0)]
    expect(page.locator(".panel-title")).to_contain_text("looks at")
    top = page.locator(".top li").first
    assert top.locator(".top-head").inner_text() == "abc"[np.unravel_index(np.argmax(heads), (3, TOKENS))[0]]
    _close(head_page.listed(page)[0], np.max(heads))
    page.get_by_role("button", name="Layer 1, head 7: let go").click()
    expect(chosen).to_have_count(2)
    _cell(page, 0, 0).click()
    expect(chosen).to_have_count(1)
    assert _state(page, "also") == []


def test_a_bar_and_a_column_for_each_head(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=0&head=3&also=0.3,1.7&pin=query-2")
    bars = _token(page, "key", 1).evaluate("e => getComputedStyle(e).backgroundSize")
    shown = [float(each.split("%")[0]) / 100 for each in bars.split(", ")]
    _close(shown, [_weights(record, 0, 3)[2, 1], _weights(record, 1, 7)[2, 1]])
    places = _token(page, "key", 1).evaluate("e => getComputedStyle(e).backgroundPosition")
    # Two pixels are free above and below.
    high = _token(page, "key", 1).bounding_box()
    assert high
    assert [each.split()[1] for each in places.split(", ")] == ["2px", f"{high['height'] / 2:g}px"]
    head_page.go(page, "#layer=0&head=3&also=0.3,1.7&pin=key-2")
    page.get_by_text("All numbers as a table").click()
    expect(page.locator("tbody tr")).to_have_count(TOKENS)  # it is filled once it is open
    assert page.locator("thead th").all_inner_texts() == [
        "Query",
        "Position",
        "Layer 0, head 3",
        "Layer 1, head 7",
    ]
    cells = page.locator("tbody tr").evaluate_all(
        "all => all.map(r => Array.from(r.cells).slice(2).map(c => c.innerText))"
    )
    wanted = np.stack([_weights(record, 0, 3)[:, 2], _weights(record, 1, 7)[:, 2]], axis=1)
    _close(np.array(cells, dtype=float), wanted)


def test_several_heads_and_a_span_by_keyboard(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    page.locator('[role="gridcell"][tabindex="0"]').focus()
    for key in (" ", "ArrowRight", "ArrowRight", " ", "ArrowDown"):
        page.keyboard.press(key)
    chosen = page.locator('[role="gridcell"][aria-selected="true"]')
    names = ["Layer 0, head 0", "Layer 0, head 2", "Layer 1, head 2"]
    assert chosen.evaluate_all("all => all.map(e => e.ariaLabel)") == names
    expect(_cell(page, 1, 2)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press(" ")
    assert chosen.evaluate_all("all => all.map(e => e.ariaLabel)") == ["Layer 0, head 0"]
    page.keyboard.press("a")
    expect(chosen).to_have_count(HEADS)
    page.keyboard.press("a")
    expect(chosen).to_have_count(1)
    _token(page, "key", 6).focus()
    for _ in range(2):
        page.keyboard.press("Shift+ArrowDown")
    assert _state(page, "pin") == {"side": "key", "index": 6, "to": 8}
    for _ in range(3):
        page.keyboard.press("Shift+ArrowUp")
    assert _state(page, "pin") == {"side": "key", "index": 5, "to": 6}
    expect(_token(page, "key", 5)).to_be_focused()
    page.keyboard.press("Escape")
    assert _state(page, "pin") is None


def test_several_heads_by_touch(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, has_touch=True)
    page.get_by_label("Several heads").check()
    _cell(page, 1, 4).tap()
    expect(page.locator('[role="gridcell"][aria-selected="true"]')).to_have_count(2)


def test_all_heads_of_a_layer_can_be_told_apart(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    page.locator('[data-layer="1"]').first.click()
    cells = page.locator('[role="gridcell"][aria-selected="true"]')
    expect(cells).to_have_count(HEADS)
    colours = cells.evaluate_all("all => all.map(e => e.style.getPropertyValue('--ring'))")
    assert len(set(colours)) == HEADS
    assert page.locator(".legend .letter").all_inner_texts() == list("abcdefghijkl")
    lines = page.locator(".legend-line").evaluate_all(
        "all => all.map(e => getComputedStyle(e).backgroundImage)"
    )
    dashes = [re.sub(r"rgb\([^)]*\)", "", line) for line in lines]
    assert all(one != other for one, other in itertools.pairwise(dashes))
    for name in ("heads=1", "layer=1&head=0&also=9.9,1.1,x,1.1,0.-1,1.99"):
        head_page.go(page, f"#{name}")
        assert _state(page, "also") == ([] if name == "heads=1" else [{"layer": 1, "head": 1}])


# --- spans and words


def test_a_span_by_pointer_and_in_the_address(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    page = open_page(path, "#layer=1&head=2")
    _token(page, "query", 5).click()
    _token(page, "query", 2).click(modifiers=["Shift"])
    assert _state(page, "pin") == {"side": "query", "index": 2, "to": 5}
    assert head_page.address(page).endswith("&pin=query-2-5")
    page.locator(".brand").hover()
    weights = _weights(record, 1, 2)
    expect(page.locator(".token.pinned")).to_have_count(4)
    _close(_numbers(page, "key"), weights[2:6].mean(axis=0))
    _token(page, "query", 7).click(modifiers=["Shift"])
    assert _state(page, "pin") == {"side": "query", "index": 5, "to": 7}
    head_page.go(page, "#layer=1&head=2&pin=key-8-6&specials=hidden")
    assert _state(page, "pin") == {"side": "key", "index": 6, "to": 8}
    expect(page.locator(".panel-title")).to_have_text("Looking at ban … ##as")
    _close(_numbers(page, "query"), weights[[1, 2, 3, 5, 6, 7, 8], 6:9].sum(axis=1))
    # Hidden tokens are in no span.
    head_page.go(page, "#layer=1&head=2&pin=query-3-5&specials=hidden")
    expect(page.locator(".panel-title")).not_to_have_text("Looking at ban … ##as")
    _close(_numbers(page, "key"), weights[[3, 5]].mean(axis=0)[[1, 2, 3, 5, 6, 7, 8]])


def test_whole_words(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=1&head=2&pin=query-7")
    page.get_by_label("Whole words").check()
    assert page.locator('.token[data-side="query"] .text').all_inner_texts() == [
        *("[CLS]", "time", "flies", "[SEP]", "fruit", "bananas", "[SEP]")
    ]
    assert _state(page, "pin") == {"side": "query", "index": 6}
    assert head_page.address(page).endswith("&pin=query-6&units=words")
    words = _in_words(_weights(record, 1, 2))
    _close(_numbers(page, "key"), words[5])
    _token(page, "key", 2).click()
    page.locator(".brand").hover()
    expect(_token(page, "query", 0).locator(".number")).not_to_be_empty()
    _close(_numbers(page, "query"), words[:, 2])
    page.keyboard.press("Escape")
    best = np.unravel_index(np.argmax(words), words.shape)
    expect(page.locator(".top li").first).to_contain_text(f"{STARTS[best[0]]} →")
    _close(head_page.listed(page)[0], words[best])
    page.get_by_label("Whole words").uncheck()
    expect(page.locator('.token[data-side="query"]')).to_have_count(TOKENS)


# --- what is drawn


def _set(page: BrowserPage, name: str, place: int) -> None:
    page.get_by_label(name).evaluate(
        "(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }", str(place)
    )


def _ink(page: BrowserPage, canvas: str) -> int:
    head_page.drawn(page)
    count: int = page.locator(canvas).evaluate(
        """canvas => {
            // Read from a copy: Chromium warns of a canvas that is read twice.
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
            return data.reduce((sum, value, i) => sum + (i % 4 === 3 ? value : 0), 0);
        }"""
    )
    return count


def test_threshold_leaves_lines_out_and_numbers_alone(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    page = open_page(path, "#layer=0&head=1&pin=query-2")
    row = _weights(record, 0, 1)[2]
    everything = _ink(page, ".active")
    page.locator(".strength summary").click()
    _set(page, "Least weight", 5)
    expect(page.locator(".floor")).to_have_text("Query 2: a line for every weight from 0.1 up, of its row.")
    assert head_page.address(page).endswith("&least=0.1")
    assert 0 < _ink(page, ".active") < everything
    _close(_numbers(page, "key"), row)
    faded = page.locator('.token[data-side="key"]').evaluate_all(
        "all => all.map(e => e.classList.contains('faded'))"
    )
    assert faded == [weight < 0.1 for weight in row]
    page.get_by_label("Least weight").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".strength")).not_to_have_attribute("open", "")
    expect(page.locator(".strength summary")).to_be_focused()
    assert _state(page, "pin") is not None
    page.keyboard.press("Escape")
    expect(page.locator(".floor")).to_have_text(
        "Overview: a line for every weight from 0.100 up, of the queries in view."
    )


def test_other_scales_change_bars_and_not_numbers(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    page = open_page(path, "#layer=0&head=1&pin=query-2")
    page.locator(".strength summary").click()
    before = _ink(page, ".overview")
    row, most = _weights(record, 0, 1)[2], _weights(record, 0, 1).max()
    second = int(np.argsort(row)[-2])
    token = _token(page, "key", second)
    scales = (  # each with the linear one before it, to the largest of the head
        ("Logarithmic", "scale=log", np.maximum(0, 1 + np.log10(row / most) / 4)),
        ("Row's", "largest=own", row / row.max()),
        ("1", "largest=one", row),
    )
    for label, field, strengths in scales:
        plain_bar = token.evaluate("e => getComputedStyle(e).backgroundSize")
        page.locator(".strength .menu-body").get_by_label(label, exact=True).check(force=True)
        assert head_page.address(page).endswith(field)
        expect(token).not_to_have_css("background-size", plain_bar)
        bar = token.evaluate("e => parseFloat(e.style.backgroundSize) / 100")
        assert bar == pytest.approx(strengths[second], abs=2e-3)
        _close(_numbers(page, "key"), row)
        assert (_ink(page, ".overview") > before) == (field != "largest=one")
        head_page.go(page, "#layer=0&head=1&pin=query-2")
        expect(token).to_have_css("background-size", plain_bar)


def test_the_rest_steps_back_under_the_pointer(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    page = open_page(path, "#layer=0&head=1")
    assert page.locator(".token.faded").count() == 0
    _token(page, "query", 2).hover()
    expect(page.locator('.token[data-side="query"].faded')).to_have_count(TOKENS - 1)
    row = _weights(record, 0, 1)[2]
    expect(page.locator('.token[data-side="key"].faded')).to_have_count(
        int((row < 0.02 * _weights(record, 0, 1).max()).sum())
    )


# --- a source that must fetch its rows


def test_rows_that_come_later(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=1&head=1")
    page.evaluate(
        """() => {
            const source = regard.source;
            window.asked = 0;
            for (const name of ["row", "column"]) {
                const now = source[name].bind(source);
                source[name] = (...what) => (window.come ? now(...what) : ((window.asked += 1), null));
            }
        }"""
    )
    page.get_by_label("Special tokens").uncheck()
    _cell(page, 0, 3).click()
    _token(page, "query", 2).click()
    page.locator(".brand").hover()
    expect(page.locator(".sum")).to_have_text("The numbers are on their way.")
    assert page.evaluate("window.asked") > 0
    assert page.locator(".grid.drawn").count() == 0
    page.evaluate("window.come = true; regard.source.listeners.forEach(each => each())")
    expect(_token(page, "key", 1).locator(".number")).not_to_be_empty()
    _close(_numbers(page, "key"), _weights(record, 0, 3)[2, [1, 2, 3, 5, 6, 7, 8]])
    expect(page.locator(".grid.drawn")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".top li").first).to_be_visible()
    assert _ink(page, ".overview") > 0


def test_a_column_of_a_long_text_comes_in_idle_time(open_page: OpenPage, tmp_path: Path) -> None:
    rng = np.random.default_rng(31)
    q, k = rng.standard_normal((2, 1, 1009, 3), dtype=np.float32)
    layer = LayerRecord(layer=0, q=q, k=k, scale=1.0)
    side = Side(text="long", tokens=tuple(PageToken(text=f"t{i}", sequence=0) for i in range(1009)))
    write_page(AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)}), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#form=lines")
    assert page.evaluate("regard.source.column('encoder', 0, 0, 5)") is None
    _token(page, "key", 5).click()
    page.locator(".brand").hover()
    expect(_token(page, "query", 3).locator(".number")).not_to_be_empty()
    column = page.evaluate("Array.from(regard.source.column('encoder', 0, 0, 5))")
    wanted = np.concatenate([weight_rows(layer, 0, np.arange(i, i + 1))[:, 5] for i in range(1009)])
    np.testing.assert_allclose(column, wanted, rtol=0, atol=1e-4)
    expect(_token(page, "query", 3).locator(".number")).to_have_text(f"{column[3]:.4f}")


# --- what a click on a number asks


def _view_after_click(page: BrowserPage, side: str, index: int) -> str:
    _token(page, side, index).locator(".number").dispatch_event("click")
    view: str = page.evaluate("regard.state().view")
    return view


def test_a_number_leads_to_its_calculation_where_it_is_a_weight(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#view=heads&layer=0&head=1&pin=query-2")
    assert _view_after_click(page, "key", 3) == "neuron"
    # Nothing is pinned, or a span, whose weights are means, or a token of the same side.
    for pin in ("", "&pin=query-1-3", "&pin=key-2"):
        head_page.go(page, f"#view=heads&layer=0&head=1{pin}")
        assert _view_after_click(page, "key", 3) == "heads"
        assert _state(page, "pin") == {"side": "key", "index": 3}
    # An address that pins nothing.
    head_page.go(page, "#layer=1&head=1&pin=nonsense")
    assert _state(page, "pin") is None
    assert head_page.address(page) == "layer=1&head=1"
    for pin in ("query", "query-", "query--1", "v-1", "key-1-x", "key-12345678"):
        head_page.go(page, "#layer=1&head=1&pin=query-2")
        assert page.evaluate("regard.state().pin.index") == 2
        head_page.go(page, f"#layer=1&head=1&pin={pin}")
        assert _state(page, "pin") is None, pin
        assert head_page.address(page) == "layer=1&head=1"


def test_another_measure_and_given_weights_have_no_calculation(
    open_page: OpenPage, record: AttentionRecord, tmp_path: Path
) -> None:
    norms = tuple(np.ones((HEADS, TOKENS), dtype=np.float32) for _ in range(LAYERS))
    measured = replace(record, measures={"encoder": (MeasureRecord(name="norm", layers=norms),)})
    write_page(measured, tmp_path / "norm.html")
    page = open_page(tmp_path / "norm.html", "#view=heads&pin=query-2&what=norm")
    assert page.evaluate("regard.state().what") == "norm"
    assert _view_after_click(page, "key", 3) == "heads"
    regard.view(np.full((1, 1, 3, 3), 1 / 3), ["a", "b", "c"]).write(tmp_path / "given.html")
    page = open_page(tmp_path / "given.html", "#view=heads&pin=query-2")
    assert _view_after_click(page, "key", 1) == "heads"
