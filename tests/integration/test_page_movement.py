"""The movement map: its numbers are Python's, and it opens the page of `regard compare`."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page
from integration.head_page import address
from regard.tracing import Trace, comparison_page, movement
from regard.tracing.comparison import Movement

OpenPage = Callable[..., BrowserPage]

TEXTS = [
    "Write a poem about a man fishing on a river bank.",
    "Write a poem about a man withdrawing money from a bank.",
    "<b>She</b> sat down on the bank of the river.",
]


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return regard.load().trace(TEXTS)


@pytest.fixture(scope="module")
def moved(traces: list[Trace]) -> Movement:
    return movement(traces, "bank")


@pytest.fixture(scope="module")
def path(traces: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "bank.html"
    comparison_page(traces, "bank").write(file)
    return file


def _table(page: BrowserPage) -> list[list[str]]:
    rows = page.locator(".between tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in rows]


def test_opens_with_the_map_and_its_table_is_pythons(
    open_page: OpenPage, path: Path, moved: Movement
) -> None:
    page = open_page(path)
    expect(page.get_by_role("tab", selected=True)).to_have_text("Movement")
    expect(page.locator("h1 .part")).to_have_count(3)
    assert page.locator("h1 b, .sentences b").count() == 0
    assert page.locator("h1 .about").all_inner_texts() == 3 * ["bank"]  # what it is about
    similarity = moved.similarity()
    for way in ("Directions", "Vectors"):
        page.get_by_label(way).check()
        projection = moved.project(directions=way == "Directions")
        for pair, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
            page.get_by_label("Which two sentences").select_option(str(pair))
            found = np.array(_table(page), dtype=float)
            wanted = np.stack(
                [each[:, a, b] for each in (similarity, projection.true, projection.drawn)], axis=1
            )
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3)
        share = re.fullmatch(
            r"Distances between the sentences are drawn at (\d+) % of their length\.",
            page.locator(".in-short").inner_text(),
        )
        assert share
        said = page.locator(".belief").text_content() or ""
        assert f"keep {100 * sum(projection.share):.1f} % of the variance" in said
        assert f"r = {projection.agreement:.3f}" in said
        assert f"a drawn distance is {100 * projection.length:.1f} % of the true one" in said
        apart = 100 * projection.drawn.sum() / projection.true.sum()
        assert f"Between the sentences, at the same step, it is {apart:.1f} %" in said
        assert int(share[1]) == pytest.approx(apart, abs=0.51)
    assert address(page).endswith("way=vectors&couple=2")


def test_the_drawing_keeps_distances_in_one_scale(open_page: OpenPage, path: Path, moved: Movement) -> None:
    page = open_page(path)
    points = page.locator("circle.point")
    expect(points).to_have_count(3 * len(moved.steps))
    places = np.array(points.evaluate_all("all => all.map(e => [e.cx.baseVal.value, e.cy.baseVal.value])"))
    wanted = moved.project(directions=True).points.reshape(-1, 2)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)
    true = np.linalg.norm(wanted[:, None] - wanted[None], axis=-1)
    unit = gaps.max() / true.max()
    np.testing.assert_allclose(gaps / unit, true, rtol=0, atol=1e-3)
    # up on the screen is up
    assert np.sign(places[0, 1] - places[len(moved.steps) - 1, 1]) == np.sign(
        wanted[len(moved.steps) - 1, 1] - wanted[0, 1]
    )
    box = page.locator(".paths").evaluate("e => [e.viewBox.baseVal.width, e.viewBox.baseVal.height]")
    assert (places > 0).all()
    assert (places < np.array(box)).all()
    # the ends are named by the word in its sentence, and nothing that is written lies over anything else
    assert page.locator('.paths [font-weight="650"]').all_text_contents() == [
        "fishing on a river bank",
        "money from a bank",
        "on the bank of the river",
        "6 contextual",
    ]
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function("w => document.querySelector('.paths').viewBox.baseVal.width < w", arg=width)
        assert page.evaluate(_OVER) == []


_OVER = """() => {
    const texts = Array.from(document.querySelectorAll(".paths text"));
    const over = (a, b) =>
        a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
    return texts.flatMap((one, i) => texts.slice(i + 1)
        .filter((other) => over(one.getBBox(), other.getBBox()))
        .map((other) => `${one.textContent} over ${other.textContent}`));
}"""


def test_steps_by_keyboard_by_pointer_and_by_address(
    open_page: OpenPage, path: Path, moved: Movement
) -> None:
    page = open_page(path)
    last = len(moved.steps) - 1
    current = page.locator(".between tr[aria-current]")
    expect(current).to_contain_text("contextual")
    slider = page.get_by_role("slider", name="Step")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(current).to_have_attribute("data-step", str(last - 1))
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "learned embedding")
    page.locator(".between tr[data-step='2']").click()
    expect(current).to_have_attribute("data-step", "2")
    assert address(page).endswith("step=2")
    page.get_by_role("button", name="Play").click()
    expect(current).to_have_attribute("data-step", "3")
    page.get_by_role("button", name="Pause").click()
    head_page.go(page, "#step=1&way=vectors")
    expect(page.locator(".between tr[aria-current]")).to_have_attribute("data-step", "1")
    page = open_page(path, "#step=999&couple=77&run=12")
    expect(page.locator(".between tr[aria-current]")).to_have_attribute("data-step", str(last))


def test_each_sentence_has_its_attention(open_page: OpenPage, path: Path, traces: list[Trace]) -> None:
    page = open_page(path)
    page.get_by_role("tab", name="Heads").click()
    for run in (0, 2):
        if run:
            with page.expect_navigation():
                page.get_by_label(f"Sentence {run + 1}").check()
        expect(page.get_by_label(f"Sentence {run + 1}")).to_be_checked()
        wanted = traces[run].weights(3, 5).double().numpy()
        # The address changes first, and then the page loads anew: the sentences have lengths of their own.
        page.wait_for_function(
            "n => typeof regard !== 'undefined' && regard.weightsRow?.(3, 5, 0).length === n", arg=len(wanted)
        )
        found = page.evaluate(
            "n => Array.from({ length: n }, (_, i) => Array.from(regard.weightsRow(3, 5, i)))", len(wanted)
        )
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3)
    expect(page.get_by_role("tab", selected=True)).to_have_text("Heads")


def test_other_pages_have_no_movement(open_page: OpenPage, tiny_page: Callable[[str], Path]) -> None:
    page = open_page(tiny_page("bert"), "#view=movement&run=1")
    expect(page.locator(".headview")).to_be_visible()
    assert page.get_by_role("tab", name="Movement").count() == 0


def test_fits_a_phone_and_the_dark(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#theme=dark", viewport={"width": 390, "height": 800})
    expect(page.locator("circle.point").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
