"""What is drawn in the place of the weights: its numbers are Python's, and what cannot be had is named."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page, tiny
from regard.tracing import Trace
from tolerances import PAGE

OpenPage = Callable[..., BrowserPage]

TEXT = "The <b>man</b> was fishing on the riverbank."
MATRICES = ["value_zeroing", "rollout", "gradient"]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return regard.load().trace(TEXT)


@pytest.fixture(scope="module")
def number(trace: Trace) -> Any:
    word = trace.embedding("fishing")
    return lambda output: output.last_hidden_state[0, 2] @ word


@pytest.fixture(scope="module")
def path(trace: Trace, number: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    assert trace.write_page(file, measures=MATRICES, of=number).left_out == {}
    return file


def _python(trace: Trace, number: Any, what: str, layer: int, head: int) -> Any:
    found = {
        "norm": lambda: trace.norm_weighted(layer, head),
        "value_zeroing": lambda: trace.value_zeroing(layer),
        "rollout": lambda: trace.rollout(layer=layer),
        "gradient": lambda: trace.attention_gradients(layer, head, of=number),
    }[what]()
    return found.double().numpy()


def _number(text: str) -> float:
    return float(text.replace("−", "-"))


def _close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=PAGE)


def test_rows_and_columns_are_pythons(open_page: OpenPage, path: Path, trace: Trace, number: Any) -> None:
    page = open_page(path)
    for what, (layer, head) in itertools.product(("norm", *MATRICES), ((0, 7), (5, 2))):
        wanted = _python(trace, number, what, layer, head)
        rows, columns = page.evaluate(
            """([what, layer, head, n]) => ["row", "column"].map((name) =>
                Array.from({ length: n }, (_, i) =>
                    Array.from(regard.source[name]("encoder", layer, head, i, what))))""",
            [what, layer, head, len(wanted)],
        )
        _close(rows, wanted)
        _close(columns, wanted.T)
        # small numbers are right too, not only small
        np.testing.assert_allclose(rows, wanted, rtol=0, atol=2e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("what", ["norm", *MATRICES])
def test_numbers_on_the_page(open_page: OpenPage, path: Path, trace: Trace, number: Any, what: str) -> None:
    page = open_page(
        path, f"#layer=5&head=2&what={what}&pin=query-2", viewport={"width": 1400, "height": 1000}
    )
    wanted = _python(trace, number, what, 5, 2)[2]
    expect(head_page.token(page, "key", 3).locator(".number")).not_to_be_empty()
    _close([_number(text) for text in head_page.numbers(page, "key")], wanted)
    listed = [_number(text) for text in page.locator(".top .top-number").all_inner_texts()]
    order = np.sort(np.abs(wanted))[::-1][: len(listed)]
    _close(np.abs(listed), order)
    expect(page.locator(".said-drawn")).to_contain_text(re.compile(r"\d{4}, arXiv \d{4}\.\d{5}\)"))
    assert page.locator(".top .why").locator("visible=true").count() == 0  # it has no calculation
    page.get_by_text("All numbers as a table").first.click()
    cells = page.locator(".panel tbody td:last-child")
    expect(cells).to_have_count(len(wanted))  # it is drawn once it is open
    _close([_number(text) for text in cells.all_inner_texts()], wanted)


def test_what_is_drawn_is_chosen_by_keyboard_and_stands_in_the_address(
    open_page: OpenPage, path: Path
) -> None:
    page = open_page(path)
    choose = page.get_by_label("What is drawn").first
    assert choose.locator("option").all_inner_texts() == [
        "Weights",
        "Norm-weighted",
        "Value zeroing",
        "Rollout",
        "Weight × gradient",
    ]
    expect(page.locator(".said-drawn")).to_be_hidden()
    expect(page.locator(".caution")).to_have_text(
        "Attention is not explanation (Jain and Wallace 2019, arXiv 1902.10186)."
    )
    choose.focus()
    page.keyboard.press("ArrowDown")
    assert head_page.address(page).endswith("what=norm")
    page.get_by_role("tab", name="Model").click()
    expect(page.get_by_label("What is drawn").locator("visible=true")).to_have_value("norm")
    head_page.go(page, "#what=nonsense")
    assert head_page.state(page)["what"] == "weights"


def test_signs_are_told_without_colours(open_page: OpenPage, path: Path, trace: Trace, number: Any) -> None:
    wanted = _python(trace, number, "gradient", 5, 2)[2]
    assert (wanted < 0).any()
    assert (wanted > 0).any()
    size = {"width": 1400, "height": 1000}
    page = open_page(path, "#layer=5&head=2&what=gradient&pin=query-2", viewport=size)
    expect(head_page.token(page, "key", 3).locator(".number")).not_to_be_empty()
    for key, text in enumerate(head_page.numbers(page, "key")):
        assert text[0] == ("−" if wanted[key] < 0 else "+"), (key, text)
        less = re.search(r"\bless\b", head_page.token(page, "key", key).get_attribute("class") or "")
        assert bool(less) == (wanted[key] < 0)
    # below zero the cells of the large picture have a stroke across their corner
    head_page.go(page, "#view=model&layer=5&head=2&what=gradient")
    expect(page.locator(".wall.drawn")).to_be_visible()
    page.wait_for_timeout(200)
    wanted = _python(trace, number, "gradient", 5, 2)
    most, least = (np.unravel_index(at, wanted.shape) for at in (wanted.argmax(), wanted.argmin()))
    places = [[int(i), int(j)] for i, j in (most, least)]
    struck = page.locator(".detail-map canvas").first.evaluate(_STRUCK, [places, wanted.shape])
    assert struck == [False, True]


_STRUCK = """(canvas, [places, [rows, columns]]) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return places.map(([row, column]) => {
        const side = canvas.clientWidth / columns, ratio = canvas.width / canvas.clientWidth;
        const at = (x, y) => {
            const place = Math.floor((row * side + y) * ratio) * canvas.width
                + Math.floor((column * side + x) * ratio);
            return data.slice(4 * place, 4 * place + 4).join();
        };
        return at(3.5, 3.5) !== at(side - 3.5, 3.5);
    });
}"""


def test_what_is_not_there_is_named_with_the_reason(open_page: OpenPage, tmp_path: Path) -> None:
    trace = tiny.model("bert").trace("w3 w5", keep="qk")
    assert isinstance(trace, Trace)
    made = trace.write_page(tmp_path / "page.html", measures=["rollout", "value_zeroing", "gradient"])
    assert list(made.left_out) == ["norm", "value_zeroing", "gradient"]
    page = open_page(tmp_path / "page.html")
    said = " ".join(page.locator(".headview, .view-top").locator("option:disabled").all_text_contents())
    for reason in made.left_out.values():
        assert " ".join(reason.split()) in " ".join(said.split())
    assert "Rollout" not in said
    assert "keep=" in made.left_out["norm"]


def test_fits_a_phone(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#what=gradient&theme=dark", viewport={"width": 390, "height": 800})
    expect(page.locator(".said-drawn")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
