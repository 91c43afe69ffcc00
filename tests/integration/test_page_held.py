"""A page that does not hold all heads: what it holds is exact, what it does not hold is shown as such."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page
from regard.views import (
    AttentionRecord,
    LayerRecord,
    MaskRecord,
    MeasureRecord,
    Page,
    PageToken,
    Side,
    render_page,
    weight_rows,
)
from tolerances import PAGE

OpenPage = Callable[..., BrowserPage]

LAYERS, HEADS, TOKENS, DIM = 4, 6, 23, 64
ASKED = [("encoder", 1, 4), ("encoder", 3, 2), ("encoder", 3, 5)]


def _record(*, pair: bool = False, **fields: Any) -> AttentionRecord:
    rng = np.random.default_rng(13)
    tokens = tuple(
        PageToken(
            text=f"w{i}", special=i in (0, TOKENS - 1), sequence=1 if pair and i > TOKENS // 2 else 0, word=i
        )
        for i in range(TOKENS)
    )
    side = Side(text="long", pair="other" if pair else None, tokens=tokens)
    usual: dict[str, Any] = {
        "mask": MaskRecord(low=-19),
        "bias": rng.standard_normal((HEADS, TOKENS, TOKENS), dtype=np.float32),
        "sinks": np.linspace(-1, 1, HEADS, dtype=np.float32),
    }
    layers = []
    for layer in range(LAYERS):
        q = 2 * rng.standard_normal((HEADS, TOKENS, DIM), dtype=np.float32)
        k = rng.standard_normal((HEADS // 2, TOKENS, DIM), dtype=np.float32)
        layers.append(LayerRecord(layer=layer, q=q, k=k, scale=0.1, **(usual | fields)))
    norms = tuple(rng.random((HEADS, TOKENS), dtype=np.float32) for _ in range(LAYERS))
    rollout = tuple(rng.random((1, TOKENS, TOKENS), dtype=np.float32) for _ in range(LAYERS))
    measures = (MeasureRecord(name="norm", layers=norms), MeasureRecord(name="rollout", layers=rollout))
    return AttentionRecord(
        model="random", encoder=side, layers={"encoder": tuple(layers)}, measures={"encoder": measures}
    )


def _small(record: AttentionRecord) -> Page:
    """A page that holds what is asked for, and some of the first heads, but none of layer 2."""
    heads: list[Any] = list(ASKED)
    low, high = 0.05, len(render_page(record, max_mb=None).html) / 1e6
    # The least room for these, and then for two heads more.
    while high - low > 0.001:
        middle = (low + high) / 2
        try:
            page = render_page(record, heads=heads, max_mb=middle)
        except ValueError:
            low = middle
            continue
        count = sum(map(len, page.held.values()))
        if count == len(ASKED) + 2:
            return page
        low, high = (middle, high) if count < len(ASKED) + 2 else (low, middle)
    raise AssertionError("no such size")


@pytest.fixture(scope="module")
def record() -> AttentionRecord:
    return _record()


@pytest.fixture(scope="module")
def page(record: AttentionRecord) -> Page:
    found = _small(record)
    assert found.held == {
        ("encoder", 0): (0,),
        ("encoder", 1): (0, 4),
        ("encoder", 2): (),
        ("encoder", 3): (2, 5),
    }
    return found


@pytest.fixture
def path(page: Page, tmp_path: Path) -> Path:
    page.write(tmp_path / "page.html")
    return tmp_path / "page.html"


def _state(page: BrowserPage) -> tuple[int, int]:
    values = page.evaluate("regard.state()")
    return values["layer"], values["head"]


def test_what_is_held_is_exact(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    browser = open_page(path)
    for number, head in ((0, 0), (1, 0), (1, 4), (3, 2), (3, 5)):
        layer = record.layers["encoder"][number]
        wanted = weight_rows(layer, head, np.arange(TOKENS))
        rows = browser.evaluate(
            f"Array.from({{ length: {TOKENS} }}, "
            f"(_, i) => Array.from(regard.weightsRow({number}, {head}, i)))"
        )
        np.testing.assert_allclose(rows, wanted, atol=PAGE)
        column = browser.evaluate(f"Array.from(regard.weightsColumn({number}, {head}, 7))")
        np.testing.assert_allclose(column, wanted[:, 7], atol=PAGE)
        steps = browser.evaluate(
            f"(({{ q, products, bias }}) => [q, products, bias].map(x => Array.from(x)))"
            f"(regard.source.steps('encoder', {number}, {head}, 9))"
        )
        q, k = layer.q[head, 9], layer.k[head // 2]
        assert layer.bias is not None
        for found, exact in zip(steps, (q, k @ q, layer.bias[head, 9]), strict=True):
            np.testing.assert_allclose(found, exact, atol=10 * PAGE)


def test_says_which_it_holds_and_how_to_get_others(open_page: OpenPage, path: Path) -> None:
    browser = open_page(path)
    expect(browser.locator(".refusal")).to_be_hidden()  # a plain address asks for no other
    assert _state(browser) == (0, 0)
    for view in ("heads", "model", "neuron"):
        browser.locator(f'[data-view="{view}"]').click()
        line = browser.locator(".held")
        expect(line).to_be_visible()
        expect(line).to_contain_text(
            "holds 5 of 24 heads (layer 0: head 0; layer 1: heads 0, 4; layer 2: none; layer 3: heads 2, 5)"
        )
        expect(line).to_contain_text("--heads 0.1, or trace.page(heads=[(0, 1)])")


def test_a_page_that_holds_all_says_nothing(
    open_page: OpenPage, record: AttentionRecord, tmp_path: Path
) -> None:
    render_page(record).write(tmp_path / "all.html")
    browser = open_page(tmp_path / "all.html", "#layer=2&head=3")
    expect(browser.locator(".held")).to_have_count(0)
    expect(browser.locator("[aria-disabled]")).to_have_count(0)
    assert _state(browser) == (2, 3)


def test_an_address_that_names_another_says_so(open_page: OpenPage, path: Path) -> None:
    browser = open_page(path, "#layer=2&head=3&also=3.5,3.1")
    assert _state(browser) == (1, 4)  # the nearest
    said = browser.locator(".refusal")
    expect(said).to_contain_text("2.3, 3.1 are not in this file, which shows layer 1, head 4")
    expect(said).to_contain_text("--heads 2.3,3.1, or trace.page(heads=[(2, 3), (3, 1)])")
    assert browser.evaluate("regard.state().also") == [{"layer": 3, "head": 5}]
    browser.keyboard.press("Escape")
    expect(said).to_be_hidden()
    browser.evaluate("location.hash = '#layer=0&head=5'")
    expect(said).to_contain_text("Layer 0, head 5 is not in this file, which shows layer 0, head 0")


def test_a_head_that_is_not_held_cannot_be_opened(open_page: OpenPage, path: Path) -> None:
    browser = open_page(path)
    for view in ("heads", "model"):
        head_page.go(browser, f"#view={view}&layer=1&head=4")
        _check_refusal(browser, view)


def _check_refusal(browser: BrowserPage, view: str) -> None:
    cells = browser.locator(".grid-cell" if view == "heads" else ".wall .grid-cell")
    expect(cells).to_have_count(LAYERS * HEADS)
    shown = [cell.get_attribute("aria-disabled") for cell in cells.all()]
    assert [i for i, each in enumerate(shown) if each is None] == [0, 6, 10, 20, 23]
    cells.nth(8).click(force=True)
    expect(browser.locator(".refusal")).to_contain_text("Layer 1, head 2 is not in this file")
    assert _state(browser) == (1, 4)
    assert browser.evaluate("regard.state().view") == view
    assert "not in this file" in (cells.nth(8).get_attribute("aria-label") or "")
    cells.nth(20).click()
    expect(browser.locator(".refusal")).to_be_hidden()
    assert _state(browser) == (3, 2)


def test_keys_in_the_grid_and_on_the_wall_go_past_them(open_page: OpenPage, path: Path) -> None:
    browser = open_page(path, "#layer=0&head=0")
    browser.locator('.grid-cell[tabindex="0"]').focus()
    way = [
        ("ArrowDown", (1, 0)),
        ("ArrowRight", (1, 4)),
        ("ArrowDown", (3, 5)),
        ("ArrowDown", (3, 5)),
        ("ArrowLeft", (3, 2)),
        ("ArrowUp", (1, 0)),
        ("End", (1, 4)),
        ("Home", (1, 0)),
    ]
    for key, wanted in way:
        browser.keyboard.press(key)
        assert _state(browser) == wanted, key
    expect(browser.locator(".refusal")).to_be_hidden()
    browser.keyboard.press("a")  # all of a layer that are there
    assert browser.evaluate("regard.state().also.map(({ head }) => head)") == [0, 4]

    head_page.go(browser, "#view=model&layer=0&head=0")
    browser.locator('.wall .grid-cell[tabindex="0"]').focus()
    way = [
        ("ArrowRight", (1, 0)),
        ("ArrowRight", (1, 4)),
        ("ArrowDown", (3, 5)),
        ("Home", (3, 2)),
        ("ArrowUp", (1, 0)),
        ("End", (1, 4)),
        ("ArrowLeft", (1, 0)),
    ]
    for key, wanted in way:
        browser.keyboard.press(key)
        assert _state(browser) == wanted, key


def test_the_calculation_offers_what_is_held(open_page: OpenPage, path: Path) -> None:
    browser = open_page(path, "#view=neuron&layer=3&head=2")
    options = [
        browser.locator(f'select[aria-label="{name}"] option').all_inner_texts() for name in ("Layer", "Head")
    ]
    assert options == [["0", "1", "3"], ["2", "5"]]
    browser.locator('select[aria-label="Layer"]').select_option("0")
    assert _state(browser) == (0, 0)


_PICTURE = """([layer, head, view]) => {
    const pixels = regard.source.thumbnail("encoder", layer, head, view);
    return pixels && Array.from(pixels);
}"""


def test_a_picture_is_of_the_tokens_on_show_or_none(open_page: OpenPage, tmp_path: Path) -> None:
    record = _record(pair=True, sinks=None)
    _small(record).write(tmp_path / "pair.html")
    browser = open_page(tmp_path / "pair.html")
    every = list(range(TOKENS))
    for places, there in ((every, True), (every[1:-1], True), (every[:9], False)):
        view = {"queries": places, "keys": places, "width": len(places), "height": len(places)}
        pixels = browser.evaluate(_PICTURE, [2, 3, view])
        assert (pixels is not None) == there
        if there:
            weights = weight_rows(record.layers["encoder"][2], 3, np.array(places))[:, places]
            wanted = 255 * np.sqrt(weights / weights.max())
            assert np.abs(np.array(pixels).reshape(wanted.shape) - np.floor(wanted)).max() == 0


def test_the_wall_hatches_them_and_draws_measures_of_layers(open_page: OpenPage, path: Path) -> None:
    browser = open_page(path, "#view=model")
    expect(browser.locator(".wall.drawn")).to_be_visible(timeout=60_000)
    browser.locator("select").nth(1).select_option("norm")
    expect(browser.locator(".wall.drawn")).to_be_visible(timeout=60_000)
    browser.locator("select").nth(1).select_option("rollout")
    expect(browser.locator(".wall.drawn")).to_be_visible(timeout=60_000)
    browser.locator(".model-side > .table summary").click()
    rows = browser.locator(".model-side > .table tbody tr")
    expect(rows).to_have_count(LAYERS * HEADS)
    assert "–" not in rows.nth(9).inner_text()  # statistics are there of all


def test_a_page_of_one_head_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    render_page(_record(), only=[("encoder", 1, 4)]).write(tmp_path / "page.html")
    browser = open_page(tmp_path / "page.html", start=True)
    assert _state(browser) == (1, 4)
    expect(browser.locator(".held")).to_have_text(
        "This page holds 1 of the model's 24 heads (layer 1: head 4), and nothing of the others."
    )
    expect(browser.locator(".grid-cell")).to_have_count(HEADS)
    row = browser.evaluate("Array.from(regard.source.row('encoder', 1, 4, 9))")
    wanted = weight_rows(_record().layers["encoder"][1], 4, np.array([9]))[0]
    np.testing.assert_allclose(row, wanted, rtol=0, atol=PAGE)
    browser.evaluate("location.hash = '#layer=1&head=5'")
    expect(browser.locator(".refusal")).to_contain_text("trace.page(only=[(1, 5)])")
    browser.get_by_role("tab", name="Model").click()
    expect(browser.locator(".wall .grid-cell")).to_have_count(HEADS)
