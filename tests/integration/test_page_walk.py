"""The walk on the space bar, and the bars of "Why?": each card has its address, and true numbers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import ViewportSize, expect
from transformers import AutoModel

import regard
from integration import head_page
from integration.axe import axe
from integration.live_models import live_model
from regard.checkpoints import DEFAULT_MODEL, find
from regard.tracing.pages._instead import instead_of
from regard.views import render_page
from regard.views._assets import read

OpenPage = Callable[..., BrowserPage]

BANK = "Write a poem about a man fishing on a river bank."
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}

# Heights of the bars of every list in a card, in fractions of the largest; 0 where a number has no bar.
_BARS = r"""all => all.map(strip => {
  const count = strip.viewBox.baseVal.width;
  const found = Array(count).fill(0);
  for (const [, at, size] of [...strip.querySelectorAll("path")].map(e => e.getAttribute("d")).join("")
    .matchAll(/M([\d.]+) 1h\.76v(-?[\d.]+)h/g)) found[Math.floor(Number(at))] = -Number(size);
  return found;
})"""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, regard.Trace]:
    path = tmp_path_factory.mktemp("walk") / "bank.html"
    trace = regard.load().trace(BANK)
    trace.write_page(path)
    return path, trace


@pytest.fixture(scope="module")
def theirs(bank: tuple[Path, regard.Trace]) -> Any:
    """The run of transformers' model on the same tokens, in float64, and the model."""
    model = AutoModel.from_pretrained(find(DEFAULT_MODEL).folder, attn_implementation="eager").double().eval()
    ids = torch.tensor([bank[1].stack(None).encoding.token_ids])
    with torch.no_grad():
        return model, ids, model(ids, output_hidden_states=True, output_attentions=True)


def _card(page: BrowserPage) -> int | None:
    return head_page.state(page)["walk"]  # type: ignore[no-any-return]


def _said(page: BrowserPage) -> str:
    return page.locator(".walk-said").inner_text()


def test_space_begins_and_goes_on_and_escape_leaves(
    open_page: OpenPage, bank: tuple[Path, regard.Trace]
) -> None:
    page = open_page(bank[0], start=True, viewport=DESK)
    opened = page.locator(".door-said").inner_text()
    expect(page.locator(".walk")).to_be_hidden()
    expect(page.get_by_role("button", name="Sixty-second walk: space")).to_be_visible()
    texts = []
    for number in range(1, 9):
        page.keyboard.press("Space")
        assert _card(page) == number
        assert head_page.address(page).endswith(f"walk={number}")
        texts.append(_said(page))
    assert len(set(texts)) == 8
    expect(page.locator(".door-question").first).to_be_hidden()
    expect(page.locator(".door-said")).to_be_hidden()
    assert page.evaluate("scrollY") == 0
    for key, number in {"Shift+Space": 7, "ArrowLeft": 6, "ArrowRight": 7}.items():
        page.keyboard.press(key)
        assert _card(page) == number
        assert _said(page) == texts[number - 1]
    # Back in the browser is back in the walk.
    page.go_back()
    assert _card(page) == 6
    page.keyboard.press("Escape")
    assert _card(page) is None
    expect(page.locator(".door-said")).to_have_text(opened)
    assert "walk" not in head_page.address(page)
    # By hand, to the end.
    page.get_by_role("button", name="Sixty-second walk").click()
    expect(page.get_by_role("button", name="‹ Back")).to_be_disabled()
    for number in range(2, 9):
        page.get_by_role("button", name="Next ›").click()
        assert _card(page) == number
    page.get_by_role("button", name="Finish").click()
    assert _card(page) is None
    # The space bar is a button's own where one has the focus.
    page.get_by_role("button", name="Why?").focus()
    page.keyboard.press("Space")
    assert _card(page) is None
    expect(page.locator(".answer-why")).to_be_visible()


def test_every_card_has_an_address_and_its_room(open_page: OpenPage, bank: tuple[Path, regard.Trace]) -> None:
    page = open_page(bank[0], "#walk=8", start=True, reduced_motion="reduce")
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        for number in range(1, 9):
            page.evaluate(f"location.hash = '#walk={number}'")
            expect(page.locator(".walk-count")).to_have_text(f"{number} of 8")
            expect(page.locator(".door > .door-sentence")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
            transition = page.locator(".door-arcs").first.evaluate("e => getComputedStyle(e).transition")
            assert transition in ("none", "none 0s ease 0s")
            # A phone has the colours of a desk.
            assert axe(page, colours=size is DESK).violations == []
            # Nothing has to be scrolled for it.
            assert page.evaluate("document.documentElement.scrollHeight") == size["height"]


def test_what_it_says_is_lit(open_page: OpenPage, bank: tuple[Path, regard.Trace]) -> None:
    page = open_page(bank[0], "#walk=1", start=True, viewport=DESK, reduced_motion="reduce")

    def look() -> list[Any]:
        words = page.locator(".door > .door-sentence .door-word")
        style = "(e, name) => getComputedStyle(e)[name]"
        arcs = float(page.locator(".door > .door-sentence .door-arcs").evaluate(style, "opacity"))
        followed, other = (words.nth(i).evaluate(style, "color") for i in (0, 6))
        ink = page.locator(".walk-said").evaluate(style, "color")
        washed = words.first.evaluate(style, "backgroundColor") != "rgba(0, 0, 0, 0)"
        return [arcs > 0.5, followed == ink, other == ink, washed]

    # The arcs are on, the word that is followed and the others are in ink, the one is marked.
    wanted = [
        [False, True, True, False],
        [False, True, False, True],
        [False, True, True, True],
        [True, True, True, True],
        [True, True, True, True],
        [False, True, False, True],
    ]
    for each in wanted:
        assert look() == each
        page.keyboard.press("Space")


def test_its_numbers_are_the_models(
    open_page: OpenPage, bank: tuple[Path, regard.Trace], theirs: Any
) -> None:
    model, ids, run = theirs
    page = open_page(bank[0], "#walk=2", start=True, viewport=DESK)
    state = head_page.state(page)
    layer, head, query, key = state["layer"], state["head"], state["pin"]["index"], 3
    bars = page.locator(".walk-picture .story-strip")

    # Two rows of the table.
    table = model.embeddings.word_embeddings.weight.detach().numpy()
    rows = table[[ids[0, query], ids[0, key]], :32]
    assert f"list of {table.shape[1]} numbers" in _said(page)
    np.testing.assert_allclose(bars.evaluate_all(_BARS), rows / np.abs(rows).max(), atol=0.021)

    # Shares, and the values times their shares.
    weights = run.attentions[layer][0, head, query].numpy()
    page.evaluate("location.hash = '#walk=4'")
    share = page.locator(".walk-picture .share.on")
    expect(share).to_contain_text(f"{100 * weights[key]:.0f} %")
    flex = page.locator(".walk-picture .share").evaluate_all("all => all.map(e => Number(e.style.flexGrow))")
    assert sum(flex) == pytest.approx(1, abs=1e-4)
    assert max(flex) == pytest.approx(weights[key], abs=1e-4)
    page.evaluate("location.hash = '#walk=5'")
    attention = model.encoder.layer[layer].attention.self
    with torch.no_grad():
        v = attention.value(run.hidden_states[layer])[0].reshape(ids.shape[1], 12, 32)[:, head].numpy()
    largest = np.argsort(-weights, kind="stable")
    mixed = weights[:, None] * v
    lines = np.stack([*mixed[largest[:4]], mixed[largest[4:]].sum(axis=0), mixed.sum(axis=0)])
    np.testing.assert_allclose(bars.evaluate_all(_BARS), lines / np.abs(lines).max(), atol=0.021)
    names = page.locator(".walk-picture .story-name").all_inner_texts()
    assert names[0] == f"{100 * weights[key]:.1f} % of poem"

    # Every head of the layer.
    page.evaluate("location.hash = '#walk=6'")
    drawn = page.locator(".walk-heads li").evaluate_all(
        "all => all.map(e => [...e.querySelectorAll('path')].map(p => p.style.getPropertyValue('--share')))"
    )
    assert len(drawn) == 12
    for shares, row in zip(drawn, run.attentions[layer][0, :, query].numpy(), strict=True):
        wanted = [each for each in row if each >= 0.02]
        np.testing.assert_allclose([float(each) for each in shares], wanted, atol=1e-3)
    assert "12 heads" in _said(page)
    assert f"head {head} of layer {layer}" in _said(page)

    # Every layer, and how alike the word still is to what came in.
    page.evaluate("location.hash = '#walk=7'")
    assert "6 layers" in _said(page)
    cosines = page.locator(".walk-picture .story-number").all_inner_texts()
    states = [torch.from_numpy(table)[ids[0, query]], *(each[0, query] for each in run.hidden_states)]
    found = [float(torch.cosine_similarity(states[0], each, dim=0)) for each in states]
    np.testing.assert_allclose([float(each) for each in cosines], found, atol=1e-3)


def test_what_is_asked_for_and_offered(
    open_page: OpenPage, bank: tuple[Path, regard.Trace], theirs: Any
) -> None:
    """The bars of "Why?", against a loop over transformers' own q and k."""
    model, ids, run = theirs
    page = open_page(bank[0], "#asks=why", start=True, viewport=DESK)
    state = head_page.state(page)
    layer, head, query, key = state["layer"], state["head"], state["pin"]["index"], 3
    attention = model.encoder.layer[layer].attention.self
    with torch.no_grad():
        q, k = (
            made(run.hidden_states[layer])[0].reshape(ids.shape[1], 12, 32)[:, head].numpy()
            for made in (attention.query, attention.key)
        )
    count = len(k)
    usual = [sum(k[i][d] for i in range(count)) / count for d in range(32)]
    gives = {i: [q[query][d] * (k[i][d] - usual[d]) / 32**0.5 for d in range(32)] for i in range(count)}
    order = sorted(range(32), key=lambda d: -gives[key][d])
    weights = run.attentions[layer][0, head, query].numpy()
    others = [i for i in np.argsort(-weights, kind="stable") if i != key]
    shown = [key, *others[:3]]

    def turned(row: Any) -> list[float]:
        return [row[d] * np.sign(q[query][d]) for d in order]

    asked = np.array(turned(q[query]))
    offered = np.array([turned([k[i][d] - usual[d] for d in range(32)]) for i in shown])
    assert asked.min() > 0
    bars = page.locator(".answer-why .offers .story-strip").evaluate_all(_BARS)
    np.testing.assert_allclose(bars[0], asked / asked.max(), atol=0.021)
    np.testing.assert_allclose(bars[1:], offered / np.abs(offered).max(), atol=0.021)
    fit = {i: sum(gives[i]) for i in range(count)}
    best = max(abs(each) for each in fit.values())
    drawn = page.locator(".offer-fit > span").evaluate_all(
        "all => all.map(e => Number(e.style.getPropertyValue('--size')) * (e.className ? -1 : 1))"
    )
    np.testing.assert_allclose(drawn, [fit[i] / best for i in shown], atol=1e-3)
    # What fits is what the softmax sees: shares are its powers.
    np.testing.assert_allclose(
        np.exp(list(fit.values())) / np.exp(list(fit.values())).sum(), weights, atol=1e-6
    )
    most = f"{gives[key][order[0]]:.2f}; all together give {fit[key]:.2f}"
    expect(page.locator(".answer-why")).to_contain_text(
        f"The first gives most, {most}, by which poem fits better than the mean."
    )
    shares = page.locator(".offers .offer-share:not(.offer-head)").all_inner_texts()
    assert shares == [f"{100 * weights[i]:.0f} %" for i in shown]

    # The arithmetic is behind a button, and its address keeps it.
    expect(page.locator(".story-worked")).to_have_count(0)
    button = page.get_by_role("button", name="Work it out")
    button.press("Enter")
    expect(page.locator(".story-worked strong")).to_have_text(f"{100 * weights[key]:.1f} %")
    expect(button).to_be_focused()
    assert "sums" in head_page.address(page)
    assert axe(page).violations == []
    # Of a word that fits worse than the mean, what takes most from it.
    page.evaluate("location.hash = '#view=door&layer=5&head=11&pin=query-1&key=9&asks=why'")
    least = min(gives[9])
    expect(page.locator(".answer-why")).to_contain_text(
        f"The first takes most, {-least:.2f}; all together take {-fit[9]:.2f}, "
        "by which a fits worse than the mean."
    )


def test_another_word_is_guessed_before_its_share_is_shown(
    open_page: OpenPage, bank: tuple[Path, regard.Trace]
) -> None:
    page = open_page(bank[0], "#asks=why", start=True, viewport=DESK)
    state = head_page.state(page)
    found = instead_of(bank[1], state["layer"], state["head"], state["pin"]["index"], 3)
    rows = page.locator(".instead li")
    assert [text.split()[0] for text in rows.all_inner_texts()] == ["poem", *(each["text"] for each in found)]
    assert rows.locator(".offer-share").count() == 1  # its own
    for each in found:
        button = page.get_by_role("button", name=f"Look at {each['text']}")
        button.press("Enter")
        row = rows.filter(has_text=each["text"])
        expect(row.locator(".offer-share")).to_have_text(f"{100 * each['share']:.0f}\u00a0%")
        size = row.locator(".instead-bar > span").evaluate("e => e.style.getPropertyValue('--size')")
        assert float(size) == pytest.approx(each["share"], abs=1e-5)
    assert len(head_page.state(page)["guessed"]) == 3
    assert axe(page).violations == []
    # What the file does not know, it does not ask.
    page.get_by_role("option", name="river").click()
    expect(page.locator(".offers")).to_be_visible()
    expect(rows).to_have_count(0)


def test_a_decoder_ends_with_what_comes_next(open_page: OpenPage, tmp_path: Path) -> None:
    model = live_model(tmp_path / "gpt2", "gpt2", num_layers=29)
    trace = model.trace("a man on the river bank.")
    trace.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#walk=1", start=True, viewport=DESK)
    assert "which word comes next" in _said(page)
    page.evaluate("location.hash = '#walk=7'")
    assert f"{len(model.loaded.network.stack('decoder').layers)} layers" in _said(page)
    page.set_viewport_size(PHONE)
    # Of 31 lists so many as can be read from afar, with the first and the last.
    lists = page.locator(".story-state .story-name")
    assert [lists.nth(at).inner_text() for at in (0, 1, -1)] == [
        "learned embedding",
        "after layer 2",
        "after layer 28: contextual",
    ]
    expect(lists).to_have_count(9)
    assert page.evaluate("document.documentElement.scrollHeight") == PHONE["height"]
    page.evaluate("location.hash = '#walk=8'")
    with torch.no_grad():
        logits = model(torch.tensor([trace.stack(None).encoding.token_ids])).logits
    assert logits is not None
    best = float(logits[0, -1].double().softmax(dim=0).max())
    expect(page.locator(".story-next .story-number").first).to_have_text(f"{100 * best:.1f} %")
    assert axe(page).violations == []


def test_what_a_page_does_not_hold_is_said(open_page: OpenPage, tmp_path: Path) -> None:
    render_page(head_page.record()).write(tmp_path / "page.html")  # without a story
    page = open_page(tmp_path / "page.html", "#walk=2", start=True)
    expect(page.locator(".walk-picture")).to_contain_text("is not on this page")
    page.keyboard.press("Space")
    expect(page.locator(".offers li")).not_to_have_count(0)


def test_a_page_of_two_sentences_walks_through_the_first(open_page: OpenPage, tmp_path: Path) -> None:
    model, (ready, *_) = live_model(tmp_path / "bert", "bert"), json.loads(read("ready.json"))
    model.live_page(ready["text"]).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True, viewport=DESK, reduced_motion="reduce")
    expect(page.get_by_role("button", name="Sixty-second walk")).to_be_visible()
    expect(page.locator(".walk")).to_be_hidden()
    for number in range(1, 9):
        page.keyboard.press("Space")
        assert _card(page) == number
        expect(page.locator(".door > .door-sentence")).to_have_text(ready["text"])
        expect(page.locator(".walk-said")).to_be_visible()
        assert axe(page, colours=number == 1).violations == []
        assert page.evaluate("document.documentElement.scrollHeight") == DESK["height"]
    # It leads back to where it began.
    page.keyboard.press("Space")
    expect(page.locator(".door-guess")).to_be_visible()
    expect(page.locator(".walk")).to_be_hidden()
    for go in (lambda: page.evaluate("location.hash = '#walk=3'"), page.reload):
        go()
        expect(page.locator(".walk-count")).to_have_text("3 of 8")
        expect(page.locator(".offers")).to_be_visible()


def test_in_a_live_page_the_field_is_away(open_page: OpenPage, tmp_path: Path) -> None:
    model = live_model(tmp_path / "gpt2", "gpt2")
    model.live_page("a man on the river bank.").write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True, viewport=DESK, reduced_motion="reduce")
    field = page.get_by_role("textbox").first
    expect(field).to_be_enabled()
    field.focus()
    before = field.input_value()
    page.keyboard.press("Space")  # is typed
    assert _card(page) is None
    assert field.input_value() != before
    page.get_by_role("button", name="Sixty-second walk").click()
    assert _card(page) == 1
    expect(field).to_be_hidden()
    expect(page.locator(".walk-said")).to_contain_text("which word comes next")
    expect(page.locator(".door > .door-sentence")).to_contain_text(re.compile("river"))
    for number in range(2, 9):
        page.keyboard.press("Space")
        assert _card(page) == number
        assert axe(page, colours=number == 2).violations == []
    page.keyboard.press("Escape")
    expect(field).to_be_visible()
