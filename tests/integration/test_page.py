"""The page in a real browser: its numbers, its keys, its filters, and what it must never do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

from integration import head_page
from regard.views import AttentionRecord, PageToken, Side
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]


@pytest.mark.parametrize(
    ("kv_heads", "offset", "encoding"), [(1, 0, "int16"), (2, 3000, "float32"), (head_page.HEADS, 0, "int16")]
)
def test_every_row_is_pythons_within_the_stated_difference(
    open_page: OpenPage, tmp_path: Path, kv_heads: int, offset: float, encoding: str
) -> None:
    record = head_page.record(kv_heads=kv_heads, offset=offset)
    written = write_page(record, tmp_path / "page.html")
    assert written.encoding == encoding
    page = open_page(tmp_path / "page.html")
    read = "([l, h, n]) => Array.from({length: n}, (_, i) => Array.from(regard.weightsRow(l, h, i)))"
    read_columns = read.replace("weightsRow", "weightsColumn")
    for layer, head in np.ndindex(head_page.LAYERS, head_page.HEADS):
        rows = np.array(page.evaluate(read, [layer, head, head_page.TOKENS]))
        assert np.abs(rows - head_page.weights(record, layer, head)).max() <= written.largest_difference
        columns = np.array(page.evaluate(read_columns, [layer, head, head_page.TOKENS]))
        np.testing.assert_allclose(columns.T, rows, rtol=0, atol=1e-12)
    # It marks when it is interactive.
    marks = page.evaluate("performance.getEntriesByName('regard-interactive').map(m => m.startTime)")
    assert len(marks) == 1
    # A browser blurs both clocks by up to 0.1 ms; the rest is rounding.
    assert 0 < marks[0] <= page.evaluate("regard.interactiveMs") + 0.25
    page.locator(".exact summary").click()
    expect(page.locator(".difference")).to_contain_text(f"{written.largest_difference:.1e}")
    expect(page.locator(".exact summary")).to_have_text("checked")
    page.keyboard.press("Escape")
    expect(page.locator(".difference")).to_be_hidden()


def test_pointing_at_a_query_shows_its_row_and_at_a_key_its_column(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#layer=1&head=2")
    head_page.token(page, "query", 5).hover()
    expect(head_page.token(page, "query", 5)).to_have_class(head_page.has_class("on"))
    row = page.evaluate("Array.from(regard.weightsRow(1, 2, 5))")
    assert head_page.numbers(page, "key") == [f"{weight:.4f}" for weight in row]
    assert np.abs(np.array(row) - head_page.weights(head_page.record(), 1, 2)[5]).max() < 1e-3
    assert set(head_page.numbers(page, "query")) == {""}
    assert head_page.ink(page, ".active").any()
    best = int(np.argmax(row))
    first = page.locator(".top li").first
    expect(first).to_contain_text(head_page.WORDS[best])
    expect(first).to_contain_text(head_page.percent(row[best]))
    page.locator(".brand").hover()
    head_page.go(page, "#layer=0&head=1")
    head_page.token(page, "key", 3).hover()
    expect(head_page.token(page, "key", 3)).to_have_class(head_page.has_class("on"))
    column = page.evaluate("Array.from({length: 8}, (_, q) => regard.weightsRow(0, 1, q)[3])")
    assert head_page.numbers(page, "query") == [f"{weight:.4f}" for weight in column]
    assert set(head_page.numbers(page, "key")) == {""}
    page.locator(".brand").hover()
    expect(page.locator(".token.on")).to_have_count(0)
    assert not head_page.ink(page, ".active").any()
    assert head_page.ink(page, ".overview").any()


def test_click_pins_and_the_other_side_reads_one_weight(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    head_page.token(page, "query", 2).click()
    page.locator(".brand").hover()
    expect(head_page.token(page, "query", 2)).to_have_attribute("aria-selected", "true")
    expect(head_page.token(page, "query", 2)).to_have_class(head_page.has_class("on"))
    head_page.token(page, "key", 6).hover()
    weight = page.evaluate("regard.weightsRow(0, 0, 2)[6]")
    expect(page.locator(".token.at .number")).to_have_text(f"{weight:.4f}")
    expect(page.locator(".top .marked")).to_contain_text(f"{weight:.4f}")
    page.keyboard.press("Escape")
    expect(page.locator(".token.pinned")).to_have_count(0)
    assert head_page.state(page)["pin"] is None


def test_keyboard_reaches_everything(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    seen = []
    for _ in range(13):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("document.activeElement.getAttribute('role') || document.activeElement.tagName")
        )
    assert seen.count("gridcell") == 1
    assert seen.count("option") == 2  # one way into each column, then the arrows
    page.locator('[role="gridcell"][tabindex="0"]').focus()
    for key in ("ArrowDown", *["ArrowRight"] * (head_page.HEADS + 1), "ArrowLeft"):
        page.keyboard.press(key)
    assert (head_page.state(page)["layer"], head_page.state(page)["head"]) == (1, head_page.HEADS - 2)
    chosen = page.locator('[role="gridcell"][aria-selected="true"]')
    expect(chosen).to_have_count(1)
    expect(chosen).to_be_focused()
    expect(chosen).to_have_attribute("aria-label", f"Layer 1, head {head_page.HEADS - 2}")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.getAttribute('role')") != "option":
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(head_page.token(page, "query", 2)).to_be_focused()
    row = page.evaluate(f"Array.from(regard.weightsRow(1, {head_page.HEADS - 2}, 2))")
    expect(head_page.token(page, "key", 4).locator(".number")).to_have_text(f"{row[4]:.4f}")
    page.keyboard.press("Enter")
    assert head_page.state(page)["pin"] == {"side": "query", "index": 2}
    page.keyboard.press("ArrowRight")
    expect(head_page.token(page, "key", 2)).to_be_focused()
    page.keyboard.press("End")
    expect(head_page.token(page, "key", head_page.TOKENS - 1)).to_be_focused()
    page.keyboard.press("Escape")
    assert head_page.state(page)["pin"] is None
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_keyboard_enters_the_numbers_of_the_row_on_show(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    head_page.token(page, "query", 0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".panel-title")).to_have_text("Looking at time")
    page.keyboard.press("Tab")
    expect(page.locator(".top button").first).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".top button").nth(1)).to_be_focused()
    assert head_page.state(page)["hover"] == {"side": "key", "index": 1}
    page.locator(".theme").focus()
    expect(page.locator(".panel-title")).to_have_text("Strongest in this head")
    # Pinning from the list moves the focus to the token.
    first = page.locator(".top button").first
    index = int(first.get_attribute("data-token") or "")
    first.focus()
    page.keyboard.press("Enter")
    expect(head_page.token(page, "query", index)).to_be_focused()
    expect(head_page.token(page, "query", index)).to_have_class(head_page.has_class("pinned"))


def test_touch_reads_one_weight_of_a_pinned_row(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, has_touch=True)
    query = {"side": "query", "index": 2}
    head_page.token(page, "query", 2).tap()
    assert head_page.state(page)["pin"] == query
    for key in (6, 3):
        head_page.token(page, "key", key).tap()
        weight = page.evaluate(f"regard.weightsRow(0, 0, 2)[{key}]")
        expect(page.locator(".token.at .number")).to_have_text(f"{weight:.4f}")
        assert head_page.state(page)["pin"] == query
    head_page.token(page, "key", 3).tap()
    expect(page.locator(".token.at")).to_have_count(0)
    assert (head_page.state(page)["pin"], head_page.state(page)["hover"]) == (query, None)
    head_page.token(page, "key", 3).tap()
    page.keyboard.press("Escape")
    assert (head_page.state(page)["pin"], head_page.state(page)["hover"]) == (None, None)


def test_choices_are_outlined_where_the_system_chooses_the_colours(
    open_page: OpenPage, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    write_page(head_page.record(pair=True), path)
    page = open_page(path, "#pin=query-1", forced_colors="active")
    for selector, part in (
        (".token.pinned .chip", ""),
        (".filter.pairs input:checked + span", ""),
        ('.grid-cell[aria-selected="true"]', "::after"),
    ):
        outline = page.locator(selector).evaluate("(e, part) => getComputedStyle(e, part).outlineStyle", part)
        assert outline == "solid"


def test_footer_says_which_lines_are_drawn_and_specials_can_be_hidden(
    open_page: OpenPage, path: Path
) -> None:
    page = open_page(path)
    floor = page.locator(".floor")
    expect(floor).to_contain_text("Overview: a line for every weight from 0.004 up")
    expect(floor).to_be_hidden()  # until there is more to say than that
    head_page.token(page, "key", 3).click()
    expect(floor).to_have_text("Key 3: a line for every weight from 0.0005 up, of its column.")
    expect(floor).to_be_hidden()
    head_page.token(page, "query", 2).hover()
    expect(floor).to_have_text("Key 3, query 2: one line, for the weight between the two.")
    page.locator(".brand").hover()
    head_page.go(page, "#pin=key-4")
    page.get_by_label("Special tokens").uncheck()
    assert head_page.shown(page, "query") == head_page.shown(page, "key") == [1, 2, 3, 5, 6]
    assert head_page.state(page)["pin"] is None  # the pinned [SEP] is gone
    page.get_by_label("Special tokens").check()
    assert len(head_page.shown(page, "query")) == head_page.TOKENS


def test_screen_reader_is_told_the_row(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#pin=query-1")
    row = page.evaluate("Array.from(regard.weightsRow(0, 0, 1))")
    expect(page.get_by_role("status")).to_contain_text(f"{max(row):.4f}")
    page.get_by_text("All numbers as a table").click()
    expect(page.get_by_role("row", name=f"bananas 6 {row[6]:.4f}", exact=True)).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(head_page.TOKENS)


FILTERS: dict[str, tuple[list[int], list[int]]] = {
    "aa": ([1, 2, 3], [1, 2, 3]),
    "ab": ([1, 2, 3], [5, 6]),
    "ba": ([5, 6], [1, 2, 3]),
    "bb": ([5, 6], [5, 6]),
    "all": ([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
}


def test_pair_filter_hides_and_never_renormalises(open_page: OpenPage, tmp_path: Path) -> None:
    write_page(head_page.record(pair=True), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#layer=1&head=0")
    for name, (queries, keys) in FILTERS.items():
        page.locator(f'input[name="regard-filter"][value="{name}"]').check()
        assert head_page.shown(page, "query") == queries
        assert head_page.shown(page, "key") == keys
        head_page.token(page, "query", queries[0]).hover()
        row = page.evaluate(f"Array.from(regard.weightsRow(1, 0, {queries[0]}))")
        expect(head_page.token(page, "key", keys[0]).locator(".number")).to_have_text(f"{row[keys[0]]:.4f}")
        assert head_page.numbers(page, "key") == [f"{row[key]:.4f}" for key in keys]
        if name != "all":
            hidden = sum(weight for i, weight in enumerate(row) if i not in keys)
            expect(page.locator(".sum")).to_have_text(
                f"{head_page.percent(hidden)} go to words that are not shown."
            )


def _copied(page: BrowserPage) -> str:
    """The address that Copy link puts on the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".told")).to_contain_text("Copied. It leads to this file on this computer")
    copied: str = page.evaluate("navigator.clipboard.readText()")
    page.context.clear_permissions()
    return copied


def test_address_keeps_and_restores_the_view(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(head_page.record(pair=True), path)
    page = open_page(path)
    page.get_by_role("gridcell", name="Layer 1, head 2").click()
    page.locator('input[value="ba"]').check()
    page.get_by_label("Special tokens").uncheck()
    head_page.token(page, "key", 3).click()
    address, _, fragment = _copied(page).partition("#")
    assert address == path.as_uri()
    again = open_page(path, f"#{fragment}", start=True)
    for name, value in {
        "layer": 1,
        "head": 2,
        "filter": "ba",
        "specials": False,
        "pin": {"side": "key", "index": 3},
    }.items():
        assert head_page.state(again)[name] == value
    expect(again.locator(".token.pinned")).to_have_count(1)


def test_back_goes_to_the_view_before(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("gridcell", name="Layer 1, head 2").click()
    head_page.token(page, "query", 3).click()
    began = head_page.state(page)
    page.get_by_role("tab", name="Model").click()
    page.get_by_role("tab", name="Heads").click()
    page.locator(".why:visible").first.click()
    assert head_page.state(page)["view"] == "neuron"
    page.locator(".neuron-row").nth(2).click()  # no step of its own
    for view in ("heads", "model", "heads"):
        page.go_back()
        expect(page.get_by_role("tab", selected=True)).to_have_attribute("data-view", view)
    found = head_page.state(page)
    assert [found[name] for name in ("layer", "head", "pin")] == [
        began[name] for name in ("layer", "head", "pin")
    ]
    page.go_forward()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Model")
    page.go_back()
    expect(page.locator(".headview")).to_be_visible()
    assert page.evaluate("history.length") == 5  # a blank page and four steps


def test_broken_address_falls_back(open_page: OpenPage, path: Path) -> None:
    broken = ("#layer=99&head=-1", "#pin=query-99999&filter=zz&theme=<b>", "#%&layer=%")
    page = open_page(path, broken[0])
    for fragment in (*broken[1:], broken[0]):
        state = head_page.state(page)
        assert (state["layer"], state["head"], state["pin"], state["filter"]) == (0, 0, None, "all")
        assert head_page.address(page) == "layer=0&head=0"
        page.evaluate("fragment => { location.hash = fragment; }", fragment)
        page.wait_for_url("**#layer=0&head=0")
        head_page.token(page, "query", 1).hover()
        expect(head_page.token(page, "key", 1).locator(".number")).not_to_be_empty()
        page.locator(".brand").hover()


def test_hostile_tokens_are_text_and_nothing_else(open_page: OpenPage, tmp_path: Path) -> None:
    hostile = (
        "</script><img src=x onerror=alert(1)>",
        "<b>bold</b>",
        "a\0b",
        "\u202egnp",
        "שלום",
        "🙂",
        "\u200b",
        "",
    )
    shown = (*hostile[:2], "a\u2400b", *hostile[3:6], "U+200B", "(empty)")
    record = head_page.record()
    tokens = tuple(PageToken(text=text, sequence=0, word=0) for text in hostile)
    side = Side(text=hostile[0], tokens=tokens)
    changed = AttentionRecord(model=hostile[0], encoder=side, layers=record.layers)
    write_page(changed, tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    assert page.locator('.token[data-side="query"] .text').evaluate_all(
        "all => all.map(e => e.textContent)"
    ) == list(shown)
    assert page.locator(".sentence").evaluate("e => e.textContent") == hostile[0]
    for index in range(len(hostile)):
        head_page.token(page, "query", index).click()
    page.get_by_text("All numbers as a table").click()
    assert page.locator("img, b").count() == 0
    page.locator("tbody th").first.wait_for(state="attached")  # the table is drawn after the picture
    assert page.locator("tbody th").evaluate_all("all => all.map(e => e.textContent)") == list(shown)


def test_policy_stops_a_script_that_is_not_the_pages_own(browser: Browser, path: Path) -> None:
    html = path.read_text(encoding="utf-8")
    path.write_text(
        html.replace(
            "</body>", "<script>window.intruder = 1</script><p id=p style='color: red'>x</p></body>"
        ),
        encoding="utf-8",
    )
    # Not `open_page`: here the console is expected to complain.
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_function("window.regard && window.regard.ready")
        assert page.evaluate("window.intruder") is None
        assert page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
        failed = page.evaluate("fetch('data:text/plain,x').then(() => false, () => true)")
        assert failed is True
