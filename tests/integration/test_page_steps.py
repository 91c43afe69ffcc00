"""A decoder's rows step by step; and what a mask forbids is not there, neither as a number nor in a list."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page, tiny
from integration.tiny import TOKENS
from regard.tracing import Trace

OpenPage = Callable[..., BrowserPage]
TinyPage = Callable[[str], Path]
HEAD = "#layer=1&head=2"


def _written(page: BrowserPage) -> Any:
    return page.evaluate("regard.state().row")


def _row(page: BrowserPage, number: int, of: int = TOKENS) -> None:
    """Waits until a row is on show: said, drawn and listed."""
    expect(page.locator(".steps output")).to_contain_text(f"Row {number} of {of}:")
    expect(page.locator('.token.on[data-side="query"]')).to_have_attribute("data-token", str(number - 1))
    expect(page.locator(".panel .note").first).to_contain_text("Where its 100 % goes.")


def _there(page: BrowserPage, side: str) -> list[int]:
    found = page.locator(f'.token[data-side="{side}"] >> visible=true')
    return [int(each) for each in found.evaluate_all("all => all.map(e => e.dataset.token)")]


def _listed(page: BrowserPage) -> dict[int, float]:
    places = page.locator(".top .position").all_inner_texts()
    return dict(zip(map(int, places), head_page.listed(page), strict=True))


def _close(shown: Any, wanted: Any) -> None:
    np.testing.assert_allclose(shown, wanted, rtol=0, atol=1e-3)


def test_rows_as_they_were_written(open_page: OpenPage, tiny_page: TinyPage) -> None:
    trace = tiny.trace("gpt2")
    page = open_page(tiny_page("gpt2"), HEAD)
    weights = trace.weights(1, 2).numpy()
    assert _there(page, "query") == list(range(TOKENS))
    page.get_by_role("button", name="Show the rows step by step").click()
    _row(page, 1)
    slider = page.get_by_label("Row that is being written")
    expect(slider).to_be_focused()
    expect(slider).to_have_attribute("max", str(TOKENS - 1))
    expect(slider).to_have_attribute("aria-valuetext", f"Row 1 of {TOKENS}: w3")
    for row in range(2, 5):
        page.keyboard.press("ArrowRight")
        _row(page, row)
        assert _there(page, "query") == list(range(row))
        assert _there(page, "key") == list(range(row))
        _close([float(each) for each in head_page.numbers(page, "key")[:row]], weights[row - 1, :row])
        listed = _listed(page)
        assert sorted(listed) == list(range(row))
        _close([listed[key] for key in range(row)], weights[row - 1, :row])
    assert head_page.address(page).endswith("&row=3")
    page.keyboard.press("]")
    _row(page, 5)
    page.keyboard.press("[")
    page.keyboard.press("[")
    _row(page, 3)
    page.get_by_role("button", name="Next row").click()
    _row(page, 4)
    page.get_by_role("button", name="Row before").click()
    _row(page, 3)
    page.get_by_role("button", name="Show all rows at once").click()
    assert _written(page) is None
    expect(page.locator('.token[data-side="query"] >> visible=true')).to_have_count(TOKENS)
    expect(page.get_by_role("button", name="Show the rows step by step")).to_be_focused()
    assert "row=" not in page.url


def test_keys_go_to_the_first_and_the_last_row(open_page: OpenPage, tiny_page: TinyPage) -> None:
    page = open_page(tiny_page("gpt2"), HEAD)
    page.locator('[role="gridcell"][tabindex="0"]').focus()
    page.keyboard.press("]")
    _row(page, 1)
    head_page.token(page, "key", 0).hover()
    expect(page.locator(".token.at")).to_have_count(1)
    page.keyboard.press("Control+]")
    assert _written(page) == 0  # that is a key of the browser
    page.keyboard.press(
        "Control+Alt+]"
    )  # as AltGr; it lets go of what is under the pointer, and is in the address
    _row(page, 2)
    assert head_page.address(page).endswith("&row=1")
    for _ in range(2):
        page.keyboard.press("[")
        _row(page, 1)
    page.get_by_role("button", name="Show all rows at once").click()
    page.keyboard.press("[")
    _row(page, TOKENS)
    page.keyboard.press("]")
    _row(page, TOKENS)


def test_the_address_says_the_row_whose_lines_are_drawn(open_page: OpenPage, tiny_page: TinyPage) -> None:
    page = open_page(tiny_page("gpt2"), f"{HEAD}&row=99")
    assert _written(page) == TOKENS - 1
    assert head_page.address(page).endswith(f"&row={TOKENS - 1}")
    _row(page, TOKENS)
    head_page.go(page, f"{HEAD}&row=-1")
    assert _written(page) is None
    assert head_page.address(page).endswith("head=2")
    head_page.go(page, f"{HEAD}&row=2")
    _row(page, 3)
    at_the_left = page.locator(".lines.overview").evaluate(_INK_OF_ROWS)
    assert [ink > 0 for ink in at_the_left] == [query <= 2 for query in range(TOKENS)]


_INK_OF_ROWS = """canvas => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    const rows = Array.from({ length: 10 }, () => 0);
    data.forEach((value, i) => {
        const row = Math.floor(Math.floor(i / 4 / canvas.width) / (canvas.height / 10));
        if (i % 4 === 3 && (i / 4) % canvas.width < 3) rows[row] += value;
    });
    return rows;
}"""


def test_what_is_not_written_cannot_be_reached(open_page: OpenPage, tiny_page: TinyPage) -> None:
    trace = tiny.trace("gpt2")
    page = open_page(tiny_page("gpt2"), f"{HEAD}&row=4&pin=key-6")
    assert page.evaluate("regard.state().pin") is None
    page.locator('.token[data-side="key"][data-token="1"]').focus()
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    expect(page.locator('.token[data-side="key"][data-token="4"]')).to_be_focused()
    page.locator('.token[data-side="key"][data-token="2"]').click()
    page.locator(".brand").hover()
    expect(page.locator(".panel-title")).to_have_text("Looking at w7")
    listed = _listed(page)
    assert sorted(listed) == [2, 3, 4]  # earlier queries cannot look ahead, later ones are not written
    _close([listed[query] for query in (2, 3, 4)], trace.weights(1, 2).numpy()[2:5, 2])
    numbers = head_page.numbers(page, "query")
    assert numbers[:2] == ["", ""]
    assert "" not in numbers[2:5]
    page.get_by_text("All numbers as a table").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    assert page.locator("tbody td:last-child").all_inner_texts()[:2] == ["–", "–"]


def test_a_decoder_beside_an_encoder(open_page: OpenPage, tiny_page: TinyPage) -> None:
    trace = tiny.trace("bart")
    page = open_page(tiny_page("bart"), f"{HEAD}&kind=cross&row=2", viewport={"width": 1280, "height": 900})
    _row(page, 3, of=5)
    assert _there(page, "query") == [0, 1, 2]
    assert _there(page, "key") == list(range(TOKENS))
    row = trace.weights(1, 2, kind="cross", query=2)[0].tolist()
    _close([float(each) for each in head_page.numbers(page, "key")], row)
    page.locator('input[value="decoder"]').check()
    _row(page, 3, of=5)
    expect(page.locator('.token[data-side="key"] >> visible=true')).to_have_count(3)
    page.locator('input[value="encoder"]').check()
    assert _written(page) is None
    expect(page.locator(".steps")).to_be_hidden()
    page.keyboard.press("]")
    assert _written(page) is None


def test_rows_play_to_the_end(open_page: OpenPage, tiny_page: TinyPage) -> None:
    page = open_page(tiny_page("gpt2"), f"{HEAD}&row=7", color_scheme="light")  # alone with its clock
    page.clock.install()
    page.get_by_role("button", name="Play the rows").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.clock.run_for(10_000)
    _row(page, TOKENS)
    player = page.get_by_role("button", name="Play the rows")
    expect(player).to_be_visible()
    player.click()  # from the first again
    _row(page, 1)
    page.get_by_role("button", name="Pause").click()
    stopped = _written(page)
    page.clock.run_for(1200)
    assert _written(page) == stopped
    player.click()
    page.get_by_role("tab", name="Model").click()
    page.clock.run_for(1200)
    assert _written(page) == stopped


def test_nothing_plays_by_itself_where_motion_is_unwanted(open_page: OpenPage, tiny_page: TinyPage) -> None:
    page = open_page(tiny_page("gpt2"), f"{HEAD}&row=7", reduced_motion="reduce")
    _row(page, 8)
    expect(page.get_by_role("button", name="Play the rows")).to_have_count(0)
    page.get_by_role("button", name="Next row").click()
    _row(page, 9)


def test_masked_keys_are_not_listed(open_page: OpenPage, tiny_page: TinyPage) -> None:
    trace = tiny.trace("mistral")  # a window of 3
    page = open_page(tiny_page("mistral"), f"{HEAD}&pin=query-5")
    expect(page.locator(".top li")).to_have_count(3)
    row = trace.weights(1, 2, query=5)[0].tolist()
    listed = _listed(page)
    assert sorted(listed) == [3, 4, 5]
    _close([listed[key] for key in (3, 4, 5)], row[3:6])
    assert [text != "" for text in head_page.numbers(page, "key")] == [3 <= key <= 5 for key in range(TOKENS)]
    page.get_by_text("All numbers as a table").click()
    expect(page.locator("tbody tr")).to_have_count(TOKENS)
    cells = page.locator("tbody td:last-child").all_inner_texts()
    assert [cell != "–" for cell in cells] == [3 <= key <= 5 for key in range(TOKENS)]
    # A span has what any of it may look at.
    head_page.go(page, f"{HEAD}&pin=query-4-6")
    expect(page.locator(".top li")).to_have_count(5)
    assert sorted(_listed(page)) == [2, 3, 4, 5, 6]


def test_measures_are_not_of_masked_keys_either(open_page: OpenPage, tmp_path: Path) -> None:
    trace = tiny.trace("gpt2")
    trace.page(measures=["norm", "value_zeroing", "rollout"]).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#layer=1&head=2&pin=query-3")
    for what in ("norm", "value_zeroing", "rollout"):
        page.get_by_label("What is drawn").select_option(what)
        assert page.evaluate("regard.state().what") == what
        head_page.drawn(page)
        expect(page.locator(".top li")).to_have_count(4)
        assert sorted(_listed(page)) == [0, 1, 2, 3]
        assert [text != "" for text in head_page.numbers(page, "key")] == [key < 4 for key in range(TOKENS)]


def test_the_strongest_of_a_head_are_no_masked_ones(open_page: OpenPage, tmp_path: Path) -> None:
    trace = tiny.model("gpt2").trace("w3 w5 w7")
    assert isinstance(trace, Trace)
    trace.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", HEAD)
    expect(page.locator(".top li")).to_have_count(6)
    assert min(head_page.listed(page)) > 0
