"""The model view: a thumbnail and a number for every head, in any order, and the way to the head."""

import math
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
from regard.tracing import Trace
from regard.views import AttentionRecord, LayerRecord, MaskRecord, PageToken, RecordKind, Side, weight_rows
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]

LAYERS, HEADS, TOKENS = 3, 5, 12
NAMES = {
    "entropy": "Entropy",
    "distance": "Mean distance",
    "largest": "Largest weight",
    "to_first": "To the first token",
    "to_special": "To special tokens",
    "to_self": "To itself",
    "to_previous": "To the previous token",
    "to_next": "To the next token",
    "to_sink": "To nothing",
}


def _side(count: int, name: str = "w") -> Side:
    tokens = tuple(
        PageToken(text=f"{name}{i}", special=i in (0, count - 1), sequence=None if i == 0 else 0)
        for i in range(count)
    )
    return Side(text=name, tokens=tokens)


def _layers(
    count: int, heads: int, queries: int, keys: int, seed: int = 7, **fields: Any
) -> tuple[LayerRecord, ...]:
    rng = np.random.default_rng(seed)
    made = []
    for layer in range(count):
        q = 2 * rng.standard_normal((heads, queries, 6), dtype=np.float32)
        k = rng.standard_normal((heads, keys, 6), dtype=np.float32)
        made.append(LayerRecord(layer=layer, q=q, k=k, scale=0.5, **fields))
    return tuple(made)


def _record(layers: int = LAYERS, heads: int = HEADS, tokens: int = TOKENS, **fields: Any) -> AttentionRecord:
    made = _layers(layers, heads, tokens, tokens, **fields)
    return AttentionRecord(model="random", encoder=_side(tokens), layers={"encoder": made})


def _statistics(
    record: AttentionRecord, layer: int, head: int, kind: RecordKind = "encoder"
) -> dict[str, float]:
    """Means over the queries, by the definitions of `Trace.statistics`."""
    each = record.layers[kind][layer]
    rows = weight_rows(each, head, np.arange(each.queries))
    weights = rows[:, : each.keys]
    special = [token.special for token in record.sides(kind)[1].tokens]
    powers = np.where(rows > 0, rows, 1)
    found = {
        "entropy": -(powers * np.log(powers)).sum(axis=1).mean(),
        "largest": weights.max(axis=1).mean(),
        "to_first": weights[:, 0].mean(),
        "to_special": weights[:, special].sum(axis=1).mean(),
    }
    if kind != "cross":
        away = np.abs(np.arange(each.queries)[:, None] - np.arange(each.keys))
        total = weights.sum(axis=1)
        found["distance"] = ((weights * away).sum(axis=1) / np.where(total > 0, total, 1)).mean()
        found["to_self"] = np.diagonal(weights).mean()
        found["to_previous"] = np.diagonal(weights, -1).mean()
        found["to_next"] = np.diagonal(weights, 1).mean()
    if each.sinks is not None:
        found["to_sink"] = rows[:, -1].mean()
    return {name: float(value) for name, value in found.items()}


@pytest.fixture
def record() -> AttentionRecord:
    return _record()


def _open(open_page: OpenPage, path: Path, fragment: str = "", **options: Any) -> BrowserPage:
    page = open_page(path, f"#view=model{fragment}", **options)
    expect(page.locator(".wall.drawn")).to_be_visible(timeout=60_000)
    return page


def _cell(page: BrowserPage, layer: int, head: int) -> Any:
    return page.locator(".wall .grid-cell").filter(has_text=f"{layer}.{head}").first


def _order(page: BrowserPage) -> list[str]:
    return page.locator(".wall-name").all_text_contents()


def _table(page: BrowserPage) -> tuple[list[str], dict[str, list[float]]]:
    details = page.locator(".model-side > .table")
    if details.get_attribute("open") is None:
        details.locator("summary").click()
    expect(details.locator("tbody tr").first).to_be_attached()  # it is filled once it is open
    titles = details.locator("thead th").all_inner_texts()
    rows = {}
    for row in details.locator("tbody tr").all():
        name, *numbers = row.locator("th, td").all_inner_texts()
        rows[name] = [float(number) for number in numbers]
    return titles[1:], rows


def _check(page: BrowserPage, record: AttentionRecord, kind: RecordKind = "encoder") -> None:
    titles, rows = _table(page)
    for index, layer in enumerate(record.layers[kind]):
        for head in range(layer.heads):
            wanted = _statistics(record, index, head, kind)
            names = [title.partition(",")[0] for title in titles]
            assert sorted(names) == sorted(NAMES[name] for name in wanted)
            shown = dict(zip(names, rows[f"{layer.layer}.{head}"], strict=True))
            for name, value in wanted.items():
                assert shown[NAMES[name]] == pytest.approx(value, abs=1e-3), (name, layer.layer, head)


# A plain record has its numbers checked where tokens are hidden, and a causal mask where kinds change.
SINKS = np.array([1, -2, 3, 0, 9], dtype=np.float32)
ODD: dict[str, tuple[dict[str, Any], ...]] = {
    "rows that see nothing": ({"mask": MaskRecord(high=-3)},),
    "sinks, and sinks alone": ({"sinks": SINKS}, {"sinks": 0 * SINKS, "mask": MaskRecord(high=-3)}),
}


@pytest.mark.parametrize("name", ODD)
def test_every_number_is_pythons(open_page: OpenPage, tmp_path: Path, name: str) -> None:
    layers = _layers(len(ODD[name]), HEADS, TOKENS, TOKENS)
    odd = tuple(replace(layer, **fields) for layer, fields in zip(layers, ODD[name], strict=True))
    record = AttentionRecord(model="random", encoder=_side(TOKENS), layers={"encoder": odd})
    write_page(record, tmp_path / "page.html")
    _check(_open(open_page, tmp_path / "page.html"), record)


def test_kinds_have_their_own_heads_and_statistics(open_page: OpenPage, tmp_path: Path) -> None:
    record = AttentionRecord(
        model="m",
        encoder=_side(9, "e"),
        decoder=_side(4, "d"),
        layers={
            "encoder": _layers(2, 3, 9, 9),
            "decoder": _layers(3, 5, 4, 4, mask=MaskRecord(high=0)),
            "cross": _layers(3, 5, 4, 9),
        },
    )
    write_page(record, tmp_path / "page.html")
    page = _open(open_page, tmp_path / "page.html", "&stat=distance&by=least")
    counts = {"decoder": 15, "cross": 15, "encoder": 6}
    for kind in ("cross", "decoder", "encoder"):
        page.locator(f'input[value="{kind}"]').check()
        expect(page.locator(".wall.drawn")).to_be_visible()
        expect(page.locator(".wall .grid-cell")).to_have_count(counts[kind])
        _check(page, record, kind)
        # Between two texts there is no distance.
        assert page.evaluate("regard.state().stat") == "entropy"


def test_in_the_order_of_a_statistic_that_the_address_keeps(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    stat = "to_previous"
    page = _open(open_page, path)
    assert _order(page) == [f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS)]
    page.get_by_label("The number under each head").select_option(stat)
    wanted = {
        f"{layer}.{head}": _statistics(record, layer, head)[stat]
        for layer in range(LAYERS)
        for head in range(HEADS)
    }
    page.get_by_label("Largest first").check()
    falling = sorted(wanted, key=lambda name: -wanted[name])
    assert _order(page) == falling
    numbers = [float(text) for text in page.locator(".wall-number").all_text_contents()]
    np.testing.assert_allclose(numbers, [wanted[name] for name in falling], rtol=0, atol=1e-3)
    page.get_by_label("Smallest first").check()
    assert _order(page) == falling[::-1]
    address = page.url.partition("#")[2]
    assert "by=least" in address
    again = open_page(path, f"#{address}")
    assert _order(again) == falling[::-1]
    assert again.get_by_label("The number under each head").input_value() == stat
    again.get_by_label("Layers", exact=True).check()
    assert _order(again) == sorted(wanted)
    # A broken address falls back.
    page = again
    head_page.go(page, "#view=model&stat=nonsense&by=")
    chosen = "[regard.state().stat, regard.state().by]"
    assert page.evaluate(chosen) == ["entropy", "place"]
    for broken in ("stat=to_sink", "by=%00", "stat=__proto__"):
        head_page.go(page, "#view=model&stat=distance&by=most")
        assert page.evaluate(chosen) == ["distance", "most"]
        head_page.go(page, f"#view=model&{broken}")
        assert page.evaluate(chosen) == ["entropy", "place"], broken


def test_a_thumbnail_shows_its_own_head_and_its_cell_says_it(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    page = _open(open_page, path, "&stat=largest&by=most")
    found = page.evaluate(
        """size => [...document.querySelectorAll(".wall .grid-line")].flatMap(line => {
            const canvas = line.querySelector("canvas");
            const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const ratio = canvas.width / canvas.clientWidth, corner = canvas.getBoundingClientRect();
            return [...line.querySelectorAll(".wall .grid-cell")].map(cell => {
                const box = cell.querySelector(".wall-picture").getBoundingClientRect();
                const place = (from, to, part) => Math.floor((from - to + part / size) * ratio);
                const at = (y, x) => all[4 * (
                    place(box.y, corner.y, (y + 0.5) * box.height) * canvas.width +
                    place(box.x, corner.x, (x + 0.5) * box.width)) + 3];
                const range = Array.from({ length: size }, (_, i) => i);
                const name = cell.querySelector(".wall-name").textContent;
                return [name, range.map(y => range.map(x => at(y, x)))];
            });
        })""",
        TOKENS,
    )
    assert len(found) == LAYERS * HEADS
    for name, alphas in found:
        layer, head = (int(part) for part in name.split("."))
        weights = weight_rows(record.layers["encoder"][layer], head, np.arange(TOKENS))
        np.testing.assert_allclose(
            np.array(alphas), np.floor(255 * np.sqrt(weights / weights.max())), rtol=0, atol=2
        )
    # Screen readers are told.
    head_page.go(page, "#view=model&stat=to_self")
    value = _statistics(record, 1, 3)["to_self"]
    name = page.get_by_role("gridcell", name="Layer 1, head 3").get_attribute("aria-label")
    assert name is not None
    assert name.startswith("Layer 1, head 3, To itself ")
    assert float(name.split()[-1]) == pytest.approx(value, abs=1e-3)
    page.get_by_label("Largest first").check()
    expect(page.locator(".model-side [role=status]")).to_have_text("Heads by to itself, largest first.")


def test_pointing_shows_one_head_larger(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = _open(open_page, path, "&layer=1&head=2")
    detail = page.locator(".detail")
    expect(detail.locator("h2")).to_have_text("Layer 1, head 2")
    _cell(page, 2, 4).hover()
    expect(detail.locator("h2")).to_have_text("Layer 2, head 4")
    standing = detail.locator(".detail-standing dd").all_inner_texts()
    assert len(standing) == 3
    detail.get_by_text("All numbers of this head").click()
    _cell(page, 2, 4).hover()
    expect(detail.locator("h2")).to_have_text("Layer 2, head 4")
    terms = [term.partition(",")[0] for term in detail.locator("details dt").all_inner_texts()]
    shown = dict(zip(terms, detail.locator("details dd").all_inner_texts(), strict=True))
    for name, value in _statistics(record, 2, 4).items():
        assert float(shown[NAMES[name]]) == pytest.approx(value, abs=1e-3)
    # What stands above the others: how far this head is from the mean of all, in standard deviations.
    every = {
        name: np.array(
            [_statistics(record, layer, head)[name] for layer in range(LAYERS) for head in range(HEADS)]
        )
        for name in _statistics(record, 2, 4)
    }
    apart = {
        name: abs(_statistics(record, 2, 4)[name] - values.mean()) / (values.std() or 1)
        for name, values in every.items()
    }
    first = [NAMES[name] for name in sorted(apart, key=lambda name: -apart[name])[:3]]
    assert [
        term.partition(",")[0] for term in detail.locator(".detail-standing dt").all_inner_texts()
    ] == first
    page.mouse.move(2, 2)
    expect(detail.locator("h2")).to_have_text("Layer 1, head 2")
    assert page.evaluate("regard.state().layer") == 1
    # Its map has words on both sides, and says the weight in a cell.
    words = [f"w{place}" for place in range(TOKENS)]
    for side in ("columns", "rows"):
        assert detail.locator(f".matrix-{side} .token").all_inner_texts() == words
    weights = weight_rows(record.layers["encoder"][1], 2, np.arange(TOKENS))

    def says(query: int, key: int) -> None:
        said = detail.locator(".detail-said")
        expect(said).to_have_text(re.compile(f"^w{query} → w{key}: "))
        assert float(said.inner_text().split()[-1]) == pytest.approx(weights[query, key], abs=1e-3)

    body = detail.locator(".matrix-body")
    box = body.bounding_box()
    assert box is not None
    side = box["width"] / TOKENS
    body.hover(position={"x": 3.5 * side, "y": 5.5 * side})
    says(5, 3)
    page.mouse.move(2, 2)
    detail.get_by_role("application").focus()
    for pressed in ("ArrowRight", "ArrowDown", "ArrowDown", "End"):
        page.keyboard.press(pressed)
    says(2, TOKENS - 1)


def test_the_first_tap_shows_a_head_and_the_second_opens_it(open_page: OpenPage, path: Path) -> None:
    page = _open(open_page, path, viewport={"width": 390, "height": 844}, has_touch=True)
    for view in ("model", "heads"):
        _cell(page, 2, 3).tap()
        expect(page.locator(".detail h2")).to_have_text("Layer 2, head 3")
        assert page.evaluate("[regard.state().view, regard.state().layer]") == [view, 2]
    expect(page.locator(".where")).to_have_text("Layer 2, head 3")


def test_a_click_and_the_keyboard_open_the_head(open_page: OpenPage, path: Path) -> None:
    page = _open(open_page, path)
    _cell(page, 2, 3).click()
    expect(page.locator(".headview")).to_be_visible()
    expect(page.locator(".where")).to_have_text("Layer 2, head 3")
    page.get_by_role("tab", name="Model").click()
    expect(page.locator('.wall .grid-cell[aria-selected="true"]')).to_contain_text("2.3")
    # The wall leaves the browser its keys.
    press = """(cell, [key, modifier]) => cell.dispatchEvent(
        new KeyboardEvent("keydown", { key, [modifier]: true, bubbles: true, cancelable: true }))"""
    head_page.go(page, "#view=model&layer=1&head=2")
    cell = page.locator('.wall .grid-cell[aria-selected="true"]')
    expect(cell).to_contain_text("1.2")
    before = page.evaluate("regard.state()")
    for modifier in ("altKey", "ctrlKey", "metaKey"):
        for key in ("ArrowDown", "ArrowLeft", "Home", "Enter", " "):
            assert cell.evaluate(press, [key, modifier]) is True, (key, modifier)  # nobody took it
            assert page.evaluate("regard.state()") == before, (key, modifier)
    assert cell.evaluate(press, ["ArrowDown", "shiftKey"]) is False
    head_page.go(page, "#view=model")
    expect(cell).to_contain_text("0.0")
    assert page.locator('.wall .grid-cell[tabindex="0"]').count() == 1
    page.locator('.wall .grid-cell[tabindex="0"]').focus()
    walk = {
        "ArrowRight": "0.1",
        "ArrowDown": "1.1",
        "End": "1.4",
        "Home": "1.0",
        "ArrowUp": "0.0",
        "ArrowLeft": "0.0",
    }
    for key, name in walk.items():
        page.keyboard.press(key)
        expect(page.locator(".wall .grid-cell:focus")).to_contain_text(name)
        expect(page.locator('.wall .grid-cell[aria-selected="true"]')).to_contain_text(name)
    page.get_by_label("Smallest first").check()
    first, second = _order(page)[:2]
    page.locator('.wall .grid-cell[tabindex="0"]').focus()
    while page.locator(".wall .grid-cell:focus .wall-name").inner_text() != first:
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".wall .grid-cell:focus .wall-name")).to_have_text(second)
    page.keyboard.press("Enter")
    layer, head = second.split(".")
    expect(page.locator(".where")).to_have_text(f"Layer {layer}, head {head}")


def test_hidden_tokens_are_hidden_in_the_pictures_only(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    page = _open(open_page, path)
    picture = "document.querySelector('.wall canvas').toDataURL()"
    before = page.evaluate(picture)
    page.locator(".model-controls").get_by_label("Special tokens").uncheck()
    expect(page.locator(".model-note")).to_contain_text("Hidden tokens are hidden in the pictures only.")
    expect(page.locator(".wall.drawn canvas").first).to_be_attached()
    assert page.evaluate(picture) != before
    _check(page, record)


def test_themes_change_the_ink(open_page: OpenPage, path: Path) -> None:
    page = _open(open_page, path)
    ink = """() => {
        // Read from a copy: Chromium warns of a canvas that is read twice.
        const copy = new OffscreenCanvas(60, 60).getContext("2d");
        copy.drawImage(document.querySelector('.wall canvas'), 0, 0);
        const { data } = copy.getImageData(0, 0, 60, 60);
        let at = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > data[at + 3]) at = i;
        return [...data.slice(at, at + 3)];
    }"""
    inks = {"light": [36, 97, 192], "dark": [127, 178, 255]}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        head_page.drawn(page)
        page.wait_for_selector(".wall canvas")
        np.testing.assert_allclose(page.evaluate(ink), inks[scheme], atol=3)
    while page.evaluate("regard.state().theme") != "dark":  # whatever the system has
        page.locator(".theme").click()
    page.wait_for_selector(".wall canvas")
    np.testing.assert_allclose(page.evaluate(ink), inks["dark"], atol=3)


@pytest.mark.parametrize("width", [360, 1440])
def test_fits_the_width(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    write_page(_record(layers=4, heads=16), tmp_path / "page.html")
    page = _open(open_page, tmp_path / "page.html", viewport={"width": width, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = page.locator(".wall .grid-cell").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().toJSON())"
    )
    assert min(box["width"] for box in boxes) >= 56
    assert max(box["right"] for box in boxes) <= width
    for caption in page.locator(".wall-caption").all()[:5]:
        assert caption.evaluate("e => e.scrollWidth <= e.clientWidth")
        ring = 3  # around the picture of the chosen head
        assert caption.evaluate("e => parseFloat(getComputedStyle(e).paddingTop)") >= ring


def test_only_lines_in_view_are_drawn_and_all_are_printed(open_page: OpenPage, tmp_path: Path) -> None:
    write_page(_record(layers=32, heads=16, tokens=5), tmp_path / "page.html")
    page = _open(open_page, tmp_path / "page.html", viewport={"width": 1440, "height": 900})
    drawn = "[...document.querySelectorAll('.wall .grid-line')].map(e => e.querySelector('canvas') !== null)"
    top = page.evaluate(drawn)
    assert len(top) == 32
    assert top[0]
    assert 5 <= sum(top) <= 16
    assert not top[-1]
    page.locator(".wall .grid-cell").last.scroll_into_view_if_needed()
    expect(page.locator(".wall .grid-line").last.locator("canvas")).to_be_attached()
    bottom = page.evaluate(drawn)
    assert not bottom[0]
    assert sum(bottom) <= 16
    # Whatever is on the screen is drawn.
    seen = page.evaluate(
        """() => [...document.querySelectorAll(".wall .grid-line")].map(line => {
            const clip = document.querySelector(".wall-scroll").getBoundingClientRect();
            const box = line.getBoundingClientRect();
            return box.bottom > clip.top && box.top < clip.bottom;
        })"""
    )
    assert all(canvas for canvas, visible in zip(bottom, seen, strict=True) if visible)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert all(page.evaluate(drawn))
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".wall .grid-line canvas")).not_to_have_count(32)


def test_lines_come_where_the_whole_page_scrolls(open_page: OpenPage, tmp_path: Path) -> None:
    write_page(_record(layers=32, tokens=5), tmp_path / "page.html")
    page = _open(open_page, tmp_path / "page.html", viewport={"width": 390, "height": 844})
    last = page.locator(".wall .grid-line").last
    expect(last.locator("canvas")).to_have_count(0)
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    assert page.locator(".wall-scroll").evaluate("e => e.scrollTop") == 0
    last.scroll_into_view_if_needed()
    expect(last.locator("canvas")).to_be_attached()


def test_numbers_of_a_large_model_are_there_at_once(open_page: OpenPage, tmp_path: Path) -> None:
    write_page(_record(layers=24, heads=16, tokens=128), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=model&by=most")
    entropies = [float(text) for text in page.locator(".wall-number").all_text_contents()]
    assert len(entropies) == 384
    assert entropies == sorted(entropies, reverse=True)
    assert math.log(128) > max(entropies) > 0


def test_a_trace_brings_its_own_statistics(open_page: OpenPage, tmp_path: Path) -> None:
    trace = regard.load().trace("The tokenizer sees, the reader reads.", "The tokenizer is a reader.")
    trace.write_page(tmp_path / "page.html")
    page = _open(open_page, tmp_path / "page.html")
    titles, rows = _table(page)
    statistics = trace.statistics()
    wanted = {
        "Spread of the distance, tokens": "spread",
        "To punctuation": "to_punctuation",
        "To the rest of its word": "to_same_word",
        "To its word elsewhere": "to_repeated_word",
        "To the other text": "to_other_sentence",
        "Entropy, nats": "entropy",
        "To the next token": "to_next",
    }
    for title, name in wanted.items():
        shown = [[rows[f"{layer}.{head}"][titles.index(title)] for head in range(12)] for layer in range(6)]
        np.testing.assert_allclose(shown, statistics.mean(name), rtol=0, atol=6e-5)


def test_a_head_that_is_gone_has_no_number(open_page: OpenPage, tmp_path: Path) -> None:
    layers = (_layers(1, 5, 7, 7)[0], replace(_layers(1, 3, 7, 7)[0], layer=1))
    record = AttentionRecord(model="pruned", encoder=_side(7), layers={"encoder": layers})
    write_page(record, tmp_path / "page.html")
    page = _open(open_page, tmp_path / "page.html", "&by=most&stat=largest")
    assert sorted(_order(page)) == ["0.0", "0.1", "0.2", "0.3", "0.4", "1.0", "1.1", "1.2"]
    numbers = [float(text) for text in page.locator(".wall-number").all_text_contents()]
    assert numbers == sorted(numbers, reverse=True)


def test_the_map_hangs_the_names_in_view_and_no_others(open_page: OpenPage, tmp_path: Path) -> None:
    """All of them made every frame on the wall three times as long."""
    write_page(_record(tokens=83), tmp_path / "long.html")
    page = _open(open_page, tmp_path / "long.html")
    sides = {side: page.locator(f".detail-map .matrix-{side} .token") for side in ("rows", "columns")}
    expect(sides["columns"].first).to_have_text("w0")
    page.locator(".detail-map").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")  # the last column
    for side, names in sides.items():
        expect(names.last).to_have_text("w82" if side == "columns" else re.compile(r"w\d\d"))
        assert names.count() < 50
    # Each stands at its cells.
    found = page.evaluate(
        """() => {
            const canvas = document.querySelector(".detail-map canvas").getBoundingClientRect();
            const last = [...document.querySelectorAll(".detail-map .matrix-columns .token")].at(-1);
            return last.getBoundingClientRect().right - canvas.right;
        }"""
    )
    assert abs(found) < 2


def test_the_heads_that_feed_the_opening_head_are_drawn(
    open_page: OpenPage, poem: Trace, poem_path: Path
) -> None:
    page = open_page(poem_path, "#view=model&layer=5&head=11")
    found, feeds = poem.why_heads(5, 11), page.locator(".feeds")
    for side, name in (("key", "keys"), ("query", "queries")):
        heads = [
            each
            for each in getattr(found, f"{side}_feeds")
            if each.writer.name == "head" and abs(each.times) >= 2
        ][:4]
        told = ", ".join(f"{each.writer} {each.value - each.chance:+.2f}" for each in heads).replace("-", "−")
        expect(feeds).to_contain_text(f"Its {name} are fed by {told}.")
        expect(feeds.locator(f"path.feeds-{side}")).to_have_count(len(heads))
    expect(feeds).to_contain_text(f"they are {found.value:.2f} above the mean")
    page.evaluate("location.hash = '#view=model&layer=5&head=10'")
    expect(feeds).to_be_hidden()
