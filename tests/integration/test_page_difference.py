"""The difference view: two texts or two models, with Python's numbers."""

import copy
import json
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
from integration import head_page
from regard.tracing import Trace, divergence, trace_text
from regard.views._assets import read
from tolerances import PAGE

OpenPage = Callable[..., BrowserPage]

TEXTS = ["He was fishing on the <i>river</i> bank.", "She withdrew money from the bank."]
SIZE = {"width": 1400, "height": 1000}
PALETTE = json.loads(read("palette.json"))


@pytest.fixture(scope="module")
def texts() -> list[Trace]:
    return regard.load().trace(TEXTS)


@pytest.fixture(scope="module")
def models() -> list[Trace]:
    """One text by the default model, and by one whose queries of layer 2 are others."""
    loaded = regard.load().loaded
    network = copy.deepcopy(loaded.network)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "layers.2.attention" in name and parameter.ndim == 2:
                parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    other = replace(loaded, network=network)
    return [trace_text(each, TEXTS[0]) for each in (loaded, other)]


@pytest.fixture(scope="module")
def of_texts(texts: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "texts.html"
    texts[0].difference_page(texts[1]).write(file)
    return file


@pytest.fixture(scope="module")
def of_models(models: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "models.html"
    models[0].difference_page(models[1]).write(file)
    return file


def _map(page: BrowserPage) -> Any:
    cells = page.locator(".divergences .grid-cell")
    said = cells.evaluate_all("all => all.map(e => e.ariaLabel.match(/: (.*) bits/)[1])")
    return np.array(said, dtype=float).reshape(6, 12)


def _rows(page: BrowserPage, layer: int, head: int, count: int) -> Any:
    return np.array(
        page.evaluate(
            "([l, h, n]) => Array.from({ length: n }, (_, i) => Array.from(regard.weightsRow(l, h, i)))",
            [layer, head, count],
        )
    )


def _close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=PAGE)


def test_the_map_is_pythons_divergence(
    open_page: OpenPage, of_texts: Path, of_models: Path, texts: list[Trace], models: list[Trace]
) -> None:
    for path, pair in ((of_texts, texts), (of_models, models)):
        page = open_page(path)
        expect(page.get_by_role("tab", selected=True)).to_have_text("Difference")
        wanted = divergence(*pair).heads.numpy()
        _close(_map(page), wanted)
        first = page.locator(".strongest-heads button").first
        layer, head = np.unravel_index(wanted.argmax(), wanted.shape)
        expect(first).to_contain_text(f"Layer {layer}, head {head}")
        assert page.locator("h1 i, .aligned i").count() == 0


def _contrast(one: list[int], other: list[int]) -> float:
    """Of two colours, after WCAG 2."""

    def light(colour: list[int]) -> float:
        parts = [part / 255 for part in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear)) + 0.05

    return max(light(one) / light(other), light(other) / light(one))


def test_a_stronger_colour_is_a_larger_divergence(open_page: OpenPage, of_texts: Path) -> None:
    """In the dark what differs more is lighter: the page speaks of neither."""
    page = open_page(of_texts)
    for theme in ("light", "dark"):
        head_page.go(page, f"#theme={theme}")
        _check_colours(page, theme)
    said = page.get_by_role("tabpanel").inner_text()
    assert said.count("The stronger a cell's colour, the ") == 2
    assert "darker" not in said.lower()


def _check_colours(page: BrowserPage, theme: str) -> None:
    cells = page.locator(".divergences .grid-cell")
    colours = cells.evaluate_all("all => all.map(e => getComputedStyle(e).backgroundColor)")
    inks = cells.evaluate_all("all => all.map(e => getComputedStyle(e).color)")
    colours, inks = (
        [[int(part) for part in re.findall(r"\d+", each)] for each in some] for some in (colours, inks)
    )
    card, full = (
        [int(part, 16) for part in re.findall("..", PALETTE[theme][name][1:])] for name in ("card", "accent")
    )
    strengths = (np.array(colours) - card)[:, 0] / (full[0] - card[0])
    assert min(_contrast(*pair) for pair in zip(colours, inks, strict=True)) >= 4.5
    order = np.argsort(_map(page).ravel(), kind="stable")
    assert strengths.max() == pytest.approx(1, abs=0.002)
    assert (np.diff(strengths[order]) > -1e-2).all()


def test_of_two_models_every_weight_is_subtracted(
    open_page: OpenPage, of_models: Path, models: list[Trace]
) -> None:
    page = open_page(of_models)
    for layer, head in ((2, 5), (5, 11)):
        wanted = models[1].weights(layer, head).double() - models[0].weights(layer, head).double()
        assert wanted.abs().max() > 0.01
        _close(_rows(page, layer, head, len(wanted)), wanted)
        columns = page.evaluate(
            "([l, h, n]) => Array.from({ length: n }, (_, i) => Array.from(regard.weightsColumn(l, h, i)))",
            [layer, head, len(wanted)],
        )
        _close(columns, wanted.T)
    _close(_rows(page, 0, 3, len(wanted)), 0)  # what stands before the change


def test_of_two_texts_partners_are_subtracted_and_the_rest_is_faded(
    open_page: OpenPage, of_texts: Path, texts: list[Trace]
) -> None:
    page = open_page(of_texts, "#view=heads&layer=4&head=2", viewport=SIZE)
    tokens = page.evaluate(
        "regard.source.tokens('encoder', 'query').map(({ text, only }) => [text, only ?? null])"
    )
    for number, trace in enumerate(texts):
        assert [text for text, only in tokens if only in (None, number)] == trace.tokens
    pairs = divergence(*texts).queries
    assert [text for text, only in tokens if only is None] == [texts[0].tokens[a] for a, _ in pairs]
    places = [place for place, (_, only) in enumerate(tokens) if only is None]
    ours, theirs = (trace.weights(4, 2).double().numpy() for trace in texts)
    wanted = np.zeros((len(tokens), len(tokens)))
    for i, (a, b) in zip(places, pairs, strict=True):
        for j, (c, d) in zip(places, pairs, strict=True):
            wanted[i, j] = theirs[b, d] - ours[a, c]
    assert np.abs(wanted).max() > 0.01
    _close(_rows(page, 4, 2, len(tokens)), wanted)
    # numbers stand at partners alone
    page.locator(f'.token[data-side="query"][data-token="{places[1]}"]').click()
    alone = page.locator('.token.only[data-side="key"]')
    assert alone.count() == len(tokens) - len(places)
    expect(page.locator(f'.token[data-side="key"][data-token="{places[0]}"] .number')).not_to_be_empty()
    assert set(alone.locator(".number").all_inner_texts()) == {""}
    assert set(alone.locator(".only-in").evaluate_all("all => all.map(e => e.textContent)")) == {
        "only in 1",
        "only in 2",
    }
    expect(page.locator('.token[title^="Only in"]')).to_have_count(page.locator(".token.only").count())
    expect(page.locator(".token[title]:not(.only)")).to_have_count(0)
    lone = next(place for place, (_, only) in enumerate(tokens) if only is not None)
    page.locator(f'.token[data-side="query"][data-token="{lone}"]').click()
    expect(page.locator(".panel")).to_contain_text("in one of the texts only")


def test_words_of_two_texts(open_page: OpenPage, tmp_path: Path) -> None:
    """A word that both have, one that one has, and one of which the other has a piece alone."""
    one, other = regard.load().trace(["Grebes are unbearably loud.", "Grebes are unbreakable."])
    one.difference_page(other).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=heads&layer=4&head=2&specials=hidden", viewport=SIZE)
    page.get_by_label("Whole words").check()
    expect(page.locator('.token[data-side="query"] .text').nth(6)).to_have_text("loud")
    shown = page.locator('.token[data-side="query"] .text').all_text_contents()
    # "un" is in both, and no word of either: it stays a piece, and so do those that go with it.
    assert shown == ["Grebes", "are", "un", "##be", "##ara", "##bly", "loud", "##break", "##able", "."]
    page.locator('.token[data-side="query"]').first.click()
    ours, theirs = (trace.weights(4, 2, query=slice(1, 4)).double().numpy().mean(0) for trace in (one, other))
    wanted = theirs[1:4].sum() - ours[1:4].sum()
    expect(page.locator('.token[data-side="key"] .number').first).not_to_be_empty()
    number = page.locator('.token[data-side="key"] .number').first.inner_text()
    _close(float(number.replace("−", "-")), wanted)
    third = regard.load().trace("Grebes are loud.")
    other.difference_page(third).write(tmp_path / "third.html")
    page = open_page(tmp_path / "third.html", "#view=heads&specials=hidden&units=words", viewport=SIZE)
    shown = page.locator('.token[data-side="query"] .text').all_inner_texts()
    assert shown == ["Grebes", "are", "unbreakable", "loud", "."]


def test_likeness_of_words_is_pythons(open_page: OpenPage, of_texts: Path, texts: list[Trace]) -> None:
    page = open_page(of_texts)
    table = page.locator(".likeness tbody tr")
    found = {
        row.locator("th").inner_text(): [float(text) for text in row.locator("td").all_inner_texts()]
        for row in table.all()
    }
    assert set(found) >= {"the", "bank"}
    last = [numbers[-1] for numbers in found.values()]
    assert last == sorted(last)
    said = page.get_by_text("Most moved").inner_text()
    assert said.startswith(f"Most moved, by the last layer: {next(iter(found))} ({last[0]:.3f}), ")
    for word in ("the", "bank"):
        wanted = [
            torch.cosine_similarity(*(trace.embedding(word, layer) for trace in texts), dim=0).item()
            for layer in range(7)
        ]
        _close(found[word], wanted)
    aligned = page.locator(".aligned li")
    assert aligned.count() == len(texts[0].tokens) + len(texts[1].tokens) - len(divergence(*texts).queries)
    for number in (1, 2):
        alone = page.locator(".aligned .alone").filter(has_text=f"only in {number}")
        assert alone.count() == len(texts[number - 1].tokens) - len(divergence(*texts).queries)


def test_a_head_is_opened_by_keyboard_and_by_pointer(open_page: OpenPage, of_models: Path) -> None:
    page = open_page(of_models)
    page.locator('.divergences [tabindex="0"]').focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "End", "ArrowLeft"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Heads")
    expect(page.locator(".where").locator("visible=true")).to_have_text("Layer 2, head 10")
    page.get_by_role("tab", name="Difference").click()
    page.locator('.divergences [data-cell="29"]').click()
    assert "view=heads" in page.url
    assert "layer=2&head=5" in page.url


def test_each_of_the_two_has_its_own_attention(
    open_page: OpenPage, of_texts: Path, texts: list[Trace]
) -> None:
    page = open_page(of_texts, "#view=heads")
    for number, trace in enumerate(texts):
        with page.expect_navigation():
            page.get_by_label(f"Text {number + 1}").click()
        expect(page.locator('.token[data-side="key"]')).to_have_count(len(trace.tokens))
        _close(_rows(page, 3, 5, len(trace.tokens)), trace.weights(3, 5))
    page.get_by_role("tab", name="Difference").click()
    with page.expect_navigation():
        page.locator('.divergences [data-cell="49"]').click()
    expect(page.get_by_label("Difference", exact=True)).to_be_checked()
    expect(page.locator(".where").locator("visible=true")).to_have_text("Layer 4, head 1")


_INK = """() => [...document.querySelectorAll(".wall .grid-line")].flatMap(line => {
    const canvas = line.querySelector("canvas"), cells = [...line.querySelectorAll(".grid-cell")];
    const { width, height } = canvas, first = cells[0].offsetLeft;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    return cells.map(({ offsetLeft, offsetWidth }) => {
        let most = 0;
        for (let y = 0; y < height; y += 1)
            for (let x = 0; x < offsetWidth; x += 1)
                most = Math.max(most, data[4 * (y * width + x + offsetLeft - first) + 3]);
        return most;
    });
})"""


def test_the_wall_has_the_divergence_of_each_head(
    open_page: OpenPage, of_models: Path, models: list[Trace]
) -> None:
    page = open_page(of_models, "#view=model&by=most")
    expect(page.locator(".wall.drawn")).to_be_visible()
    wanted = divergence(*models).heads
    layer, head = divmod(int(wanted.argmax()), 12)
    # One scale for all heads: the strongest colour of a thumbnail is its head's largest difference.
    ink = page.evaluate(_INK)
    most = np.array(page.evaluate("regard.facts.compared.kinds.encoder.most")).ravel()
    order = page.locator(".wall-name").all_text_contents()
    wanted_most = np.array(
        [most[int(name.partition(".")[0]) * 12 + int(name.partition(".")[2])] for name in order]
    )
    np.testing.assert_allclose(ink, 255 * np.sqrt(wanted_most / most.max()), atol=2)
    first = page.locator(".wall .grid-cell").first
    expect(first).to_contain_text(f"{layer}.{head}")
    expect(first.locator(".wall-number")).to_have_text(f"{wanted.max():.3f}")


def test_fits_a_phone_and_the_dark(open_page: OpenPage, of_texts: Path) -> None:
    page = open_page(of_texts, "#theme=dark", viewport={"width": 390, "height": 800})
    expect(page.locator(".divergences")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # Twelve heads stand beside each other, with two digits.
    assert page.locator(".differing").evaluate("e => e.scrollWidth <= e.clientWidth")
    cells = page.locator(".divergences .grid-line").first.locator(".grid-cell")
    assert cells.count() == 12
    assert all(re.fullmatch(r"\.\d\d", text) for text in cells.all_inner_texts())
    assert (
        max(box["right"] for box in cells.evaluate_all("a => a.map(e => e.getBoundingClientRect())")) <= 390
    )
