"""The positions view: what is added, biased and turned, against Python; refused where there is nothing."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page, tiny
from integration.tiny import TOKENS
from regard.core import Bias
from regard.models import Transformer
from regard.tracing import Trace
from regard.views import AttentionRecord, LayerRecord, PageToken, PositionsRecord, Side
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]
TinyPage = Callable[[str], Path]


def _open(open_page: OpenPage, trace: Trace, folder: Path) -> BrowserPage:
    trace.write_page(folder / "page.html")
    return open_page(folder / "page.html", "#view=positions")


def _last(page: BrowserPage, name: str) -> float:
    return float(page.locator(f".{name} >> visible=true").inner_text().split()[-1].replace("−", "-"))


def _slide(page: BrowserPage, label: str, value: int) -> None:
    slider = page.get_by_label(label, exact=True).locator("visible=true")
    slider.focus()
    page.keyboard.press("Home")
    for _ in range(value):
        page.keyboard.press("ArrowRight")


def _table(page: BrowserPage, summary: str) -> Any:
    page.get_by_text(summary).locator("visible=true").click()
    rows = page.locator("details[open] tbody tr >> visible=true")
    expect(rows.first).to_be_visible()  # it is filled once it is open
    return rows.evaluate_all(
        "rows => rows.map(r => Array.from(r.cells).map(c => c.innerText.replace('−', '-')))"
    )


@pytest.mark.parametrize("family", ["bert", "marian", "roberta"])
def test_added_vectors_are_the_models(open_page: OpenPage, tiny_page: TinyPage, family: str) -> None:
    trace = tiny.trace(family)
    table = trace.source.positions
    assert table is not None
    added = table.double().numpy()
    page = open_page(tiny_page(family), "#view=positions")
    expect(page.locator(".position-said")).to_contain_text("sinusoidal" if family == "marian" else "learned")
    _slide(page, "Position", 4)
    _slide(page, "Dimension", 3)
    assert abs(_last(page, "added-entry") - added[4, 3]) < 1e-3
    _slide(page, "Other position", 7)
    unit = added / np.linalg.norm(added, axis=1, keepdims=True)
    assert abs(_last(page, "added-pair") - unit[4] @ unit[7]) < 1e-3
    page.get_by_label("Dot product").locator("visible=true").check()
    assert abs(_last(page, "added-pair") - added[4] @ added[7]) < 1e-3
    numbers = np.array([row[2:] for row in _table(page, "Numbers of this position")], dtype=float)
    np.testing.assert_allclose(numbers, np.stack((added @ added[4], unit @ unit[4]), axis=1), atol=1e-3)
    read = "kind => Array.from(regard.source.positions(kind, 'query').table.values)"
    matrix = page.evaluate(read, trace.kinds[0])
    np.testing.assert_allclose(np.array(matrix).reshape(added.shape), added, atol=1e-3)


def test_the_matrix_has_its_numbers_as_colours_and_under_the_pointer(
    open_page: OpenPage, tiny_page: TinyPage
) -> None:
    trace = tiny.trace("bert")
    page = open_page(tiny_page("bert"), "#view=positions&theme=light")
    table = trace.source.positions
    assert table is not None
    box = page.locator(".heat-canvas >> visible=true").first.bounding_box()
    assert box is not None
    rows, columns = table.shape
    page.mouse.move(box["x"] + box["width"] * 5.5 / columns, box["y"] + box["height"] * 2.5 / rows)
    expect(page.locator(".added-entry >> visible=true")).to_contain_text("Position 2 (w7), dimension 5")
    assert abs(_last(page, "added-entry") - float(table[2, 5])) < 1e-3
    page.mouse.click(box["x"] + box["width"] * 5.5 / columns, box["y"] + box["height"] * 2.5 / rows)
    page.locator(".brand").hover()
    expect(page.locator(".added-entry >> visible=true")).to_contain_text("Position 2 (w7), dimension 5")
    pixels = page.locator(".heat-canvas >> visible=true").first.evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )
    image = np.array(pixels).reshape(*table.shape, 4)
    # In full from the 99th percentile on, as the legend says: one large entry does not empty the others.
    sizes = np.sort(table.abs().numpy(), axis=None)
    full = sizes[int(0.99 * (sizes.size - 1))]
    assert full < sizes[-1]
    said = page.locator(".heat-scale >> visible=true").first.inner_text()
    above = re.search(r"([\d.]+)\s+and above", said)
    assert above is not None, said
    assert float(above[1]) == pytest.approx(full, abs=5e-4)  # the entries are stored in 16 bits
    part = np.clip(table.numpy() / full, -1, 1)[..., None]
    more, less, none = np.array([0, 0x78, 0x4A]), np.array([0x8A, 0x2F, 0xA8]), np.array([255.0] * 3)
    scale = page.locator(".heat-bar >> visible=true").first.evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, 1).data)"
    )
    assert [scale[:3], scale[-4:-1]] == [less.tolist(), more.tolist()]
    wanted = none + (np.where(part < 0, less, more) - none) * np.abs(part)
    assert np.abs(image[..., :3] - wanted).max() <= 1.5


@pytest.mark.parametrize("family", ["bert", "marian"])
def test_all_positions_go_on_where_the_text_ends(open_page: OpenPage, tmp_path: Path, family: str) -> None:
    trace = tiny.trace(family)
    network = trace.require_model().network
    [kind, *_] = trace.kinds
    stack = network.stack(kind)  # type: ignore[arg-type]
    assert stack is not None
    table = np.asarray(stack.embeddings.positions.table)  # type: ignore[union-attr]
    count = min(512, len(table))
    trace.write_page(tmp_path / "page.html", all_positions=True)
    page = open_page(tmp_path / "page.html", "#view=positions")
    note = page.locator(".note >> visible=true").first
    expect(note).to_contain_text(f"{count} positions × {table.shape[1]} dimensions")
    expect(note).to_contain_text(f"at each place; this text has the first {len(trace.tokens)}.")
    slider = page.get_by_label("Position", exact=True).locator("visible=true")
    slider.focus()
    page.keyboard.press("End")
    said = page.locator(".added-entry >> visible=true")
    expect(said).to_contain_text(f"Position {count - 1}, dimension 0:")
    assert _last(page, "added-entry") == pytest.approx(float(table[count - 1, 0]), abs=5e-4)


def test_bias_by_distance_is_the_models(open_page: OpenPage, tiny_page: TinyPage) -> None:
    trace = tiny.trace("t5")
    page = open_page(tiny_page("t5"), "#view=positions")
    for kind in ("encoder", "decoder"):
        head_page.go(page, f"#view=positions&kind={kind}&layer=1&head=2")
        inputs = trace.attention_of(1, kind).inputs  # type: ignore[arg-type]
        assert isinstance(inputs.bias, Bias)
        size = inputs.q_len
        with torch.no_grad():
            bias = inputs.bias.block(torch.arange(size), torch.arange(size))[0].numpy()
        _slide(page, "Distance, key minus query", size - 1 - 3)
        expect(page.locator(".bias-entry")).to_contain_text("Head 2, distance -3")
        assert abs(_last(page, "bias-entry") - bias[2, 3, 0]) < 1e-3
        rows = _table(page, "Bias of every distance")
        numbers = np.array(rows, dtype=float)
        assert numbers[:, 0].tolist() == list(range(1 - size, size))
        for row in numbers:
            query = max(0, -int(row[0]))
            np.testing.assert_allclose(row[1:], bias[:, query, query + int(row[0])], atol=1e-3)
        page.get_by_text("Bias of every distance").locator("visible=true").click()  # shut again
        _slide(page, "Head", 1)
        assert page.evaluate("regard.state().head") == 1
        assert page.locator(".added-entry >> visible=true").count() == 0


@pytest.mark.parametrize("family", ["llama", "modernbert"])
def test_rotary_angles_are_the_models(open_page: OpenPage, tiny_page: TinyPage, family: str) -> None:
    trace = tiny.trace(family)
    assert trace.loaded is not None
    network = trace.loaded.network
    assert isinstance(network, Transformer)
    rotary = network.stack(trace.kinds[0]).patterns[1].rotary  # type: ignore[arg-type]
    assert rotary is not None
    rotation = rotary.rotation(torch.arange(TOKENS)[None], dtype=torch.float32)
    page = open_page(tiny_page(family), "#view=positions&layer=1")
    _slide(page, "Pair", 3)
    _slide(page, "Distance", 4)
    assert abs(_last(page, "rotary-entry") - float(rotation.cos[0, 0, 4, 3])) < 1e-3
    expect(page.locator(".rotary-entry")).to_contain_text("entries 3 and 8")
    assert abs(_last(page, "rotary-mean") - float(rotation.cos[0, 0, 4].mean())) < 1e-3
    rows = _table(page, "Angles at this distance")
    cosines = [float(row[-1]) for row in rows]
    np.testing.assert_allclose(cosines, rotation.cos[0, 0, 4, :5], atol=1e-3)
    assert page.locator(".added-entry >> visible=true").count() == 0


def test_refused_where_there_is_nothing(open_page: OpenPage, tmp_path: Path, tiny_page: TinyPage) -> None:
    page_of = open_page(tiny_page("t5"), "#view=positions&kind=cross")
    expect(page_of.locator(".position-none")).to_contain_text("knows no distance")
    trace = tiny.trace("bert")
    lost = replace(trace, encoder=replace(trace.source, positions=None))
    page_of = _open(open_page, lost, tmp_path)
    expect(page_of.locator(".position-none")).to_contain_text("is not recorded in this page")
    expect(page_of.locator(".heat-canvas >> visible=true")).to_have_count(0)
    page_of = _open(open_page, replace(lost, loaded=None), tmp_path)
    expect(page_of.locator(".position-none")).to_contain_text("cannot be seen from here")
    page_of = open_page(tiny_page("deberta-v2"), "#view=positions")
    expect(page_of.locator(".position-none")).to_contain_text("more than the distance")


def test_says_that_there_is_nothing(open_page: OpenPage, tmp_path: Path) -> None:
    q, k = np.random.default_rng(5).standard_normal((2, 1, 3, 5), dtype=np.float32)
    tokens = tuple(PageToken(text=f"t{i}", sequence=0) for i in range(3))
    side = Side(text="t", tokens=tokens, positions=PositionsRecord(said="none"))
    layer = LayerRecord(layer=0, q=q, k=k, scale=1.0)
    write_page(AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)}), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=positions")
    expect(page.locator(".position-none")).to_contain_text("there is nothing to draw")


def test_both_stacks_of_cross_attention(open_page: OpenPage, tiny_page: TinyPage) -> None:
    page = open_page(tiny_page("bart"), "#view=positions&kind=cross")
    expect(page.locator(".added-entry >> visible=true")).to_have_count(2)


def test_large_and_long_tables(open_page: OpenPage, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((2, 1, 600, 3), dtype=np.float32)
    table = 300 * rng.standard_normal((600, 11), dtype=np.float32)
    tokens = tuple(PageToken(text=f"t{i}", sequence=0) for i in range(600))
    side = Side(text="t", tokens=tokens, positions=PositionsRecord(table=table))
    layer = LayerRecord(layer=0, q=q, k=k, scale=1.0)
    write_page(AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)}), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=positions")
    expect(page.locator(".position-section .note >> visible=true").first).to_contain_text("the first of 600")
    shown = page.evaluate("Array.from(regard.source.positions('encoder', 'query').table.values)")
    np.testing.assert_array_equal(np.array(shown, np.float32), table[:512].ravel())  # 16 bits would not do


def test_no_overflow_in_any_theme_or_width(open_page: OpenPage, tiny_page: TinyPage) -> None:
    page = open_page(tiny_page("bert"))
    for theme, width in (("light", 390), ("dark", 1366)):
        page.set_viewport_size({"width": width, "height": 800})
        head_page.go(page, f"#view=positions&theme={theme}")
        expect(page.locator(".heat-canvas >> visible=true")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_positions_begin_with_two_words_in_squares(open_page: OpenPage, tmp_path: Path) -> None:
    regard.load().trace("A man was fishing on a bank.").write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=positions", viewport={"width": 1280, "height": 900})
    start = page.evaluate("regard.facts.start.pin")
    words = ["[CLS]", "A", "man", "was", "fishing", "on", "a", "bank", ".", "[SEP]"]
    other = words.index("fishing" if words[start] != "fishing" else "bank")
    expect(page.locator(".added-pair").first).to_contain_text(f"Cosine of positions {start} and {other}:")
    square = page.locator(".heat-sheet.square").first
    box = square.locator(".heat-box").bounding_box()
    assert box is not None
    assert box["width"] == pytest.approx(box["height"], abs=1)
    for names in square.locator(".heat-names").all():
        assert names.locator("bdi").all_text_contents() == words
    # Each word stands beside its own row.
    tops = (
        square.locator(".heat-names")
        .first.locator("bdi")
        .evaluate_all(
            "all => all.map(e => e.getBoundingClientRect().top + e.getBoundingClientRect().height / 2)"
        )
    )
    wanted = [box["y"] + (place + 0.5) * box["height"] / len(words) for place in range(len(words))]
    assert tops == pytest.approx(wanted, abs=3)
