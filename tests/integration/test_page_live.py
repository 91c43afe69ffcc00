"""The live page: what is typed into it is read, run and compared as Python would, or refused in words."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import test_cli
from integration.axe import axe
from integration.first_screen import first_screen
from integration.live_models import MOST_TOKENS, live_model
from integration.test_cli import DEFAULT_MODEL, Run
from regard.tracing import Trace, Write, Zero
from regard.tracing.edits import unseen_word
from regard.tracing.pages._instead import instead_of, left_by
from regard.tracing.pages._live_page import live_model as packed
from regard.tracing.pages._names import MOST_WEIGHTS, names_of
from regard.tracing.pages._page import page_record
from regard.tracing.pages._story import beside, word_at
from regard.tracing.reasons import pairs_of_head
from regard.views import every_head, find_start
from regard.views._assets import read

run = test_cli.run

OpenPage = Callable[..., BrowserPage]

READY = [each["text"] for each in json.loads(read("ready.json"))]
OPENING = "a man on the river bank."
OTHER = "the man on a money bank."
CLOSE = 1e-4
# An encoder, and a decoder with turned positions and groups of heads. What is inside of the others is held in
# tests/unit/tracing/pages, and their tokenizers in tests/parity.
FAMILIES = ("bert", "llama")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, regard.Model]:
    folder = tmp_path_factory.mktemp("live")
    return {family: live_model(folder / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def rounded(models: dict[str, regard.Model]) -> dict[str, regard.Model]:
    """The models with the weights that their pages have."""
    return {family: _rounded(model) for family, model in models.items()}


@pytest.fixture(scope="module")
def paths(models: dict[str, regard.Model], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for family, model in models.items():
        model.live_page(OPENING).write(folder / f"{family}.html")
    return {family: folder / f"{family}.html" for family in models}


@pytest.fixture
def open_live(open_page: OpenPage, paths: dict[str, Path]) -> OpenPage:
    """Opens the page of a family, and waits until it has run its first sentence."""

    def open_(family: str = "bert", **options: Any) -> BrowserPage:
        page = open_page(paths[family], **options)
        expect(page.locator(".live-status")).to_contain_text(" ms.")
        return page

    return open_


def _rounded(model: regard.Model) -> regard.Model:
    """The model with the weights that the page has."""
    return regard.Model(replace(model.loaded, network=packed(model.loaded).rounded.network))


def _type(page: BrowserPage, text: str, label: str = "Type a sentence") -> None:
    """Types a text, and waits for what comes of it."""
    page.get_by_label(label, exact=True).fill(text)
    _settle(page)


def _settle(page: BrowserPage) -> None:
    expect(page.locator(".live")).not_to_have_class(re.compile("working"))


def _check(page: BrowserPage, trace: Trace) -> None:
    """Tokens, all weights and the values against Python's."""
    (kind,) = trace.kinds
    told = page.evaluate("window.regard.source.tokens(window.regard.source.kinds[0], 'query')")
    for one, token in zip(told, trace.stack(None).encoding.tokens, strict=True):
        assert (one["text"], one["special"], one["word"]) == (token.text, token.special, token.word)
    for layer in trace.layers_of(kind):
        for head in range(trace.attention_of(layer, kind).inputs.num_heads):
            rows = page.evaluate(
                "([kind, layer, head, count]) => Array.from({ length: count }, (_, query) =>"
                " [...window.regard.weightsRow(layer, head, query)])",
                [kind, layer, head, len(trace.tokens)],
            )
            np.testing.assert_allclose(rows, trace.weights(layer, head), atol=CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_typed_is_what_python_says(
    family: str, open_live: OpenPage, models: dict[str, regard.Model], rounded: dict[str, regard.Model]
) -> None:
    page = open_live(family)
    _check(page, models[family].trace(OPENING))  # Python's own numbers, until somebody types
    assert page.evaluate("window.regard.facts.difference") < 1e-3
    for text in (OTHER, "fishing", "a <b>man</b> the\n\t river &amp; 鱼 in 1969", "the fish"):
        _type(page, text)
        _check(page, rounded[family].trace(text))
        loss = page.evaluate("window.regard.facts.difference")
        assert loss == pytest.approx(page.evaluate("window.regard.facts.live.weight"))
    # And in words: the views are of the new text.
    last = page.locator(".tokens.queries .token:not(.special)").last
    expect(last).to_have_text("fish")


def test_the_front_door_is_typed_into(open_live: OpenPage, rounded: dict[str, regard.Model]) -> None:
    page = open_live(start=True, viewport={"width": 1280, "height": 800})
    # The README's sentence has nine words more.
    assert first_screen(page).fits(words=55, numbers=10, controls=8)
    field, words = page.get_by_label("Type a sentence"), page.locator(".door > .door-sentence .door-word")
    _type(page, OTHER)
    assert words.all_inner_texts() == [*OTHER[:-1].split(), "."]
    # The field lies on the words, letter on letter.
    style = "e => { const s = getComputedStyle(e); return [s.font, s.letterSpacing, s.textAlign]; }"
    line = page.locator(".door-line").first
    assert field.evaluate(style) == line.evaluate(style)
    place = (
        "e => { const { x, y, width, height } = e.getBoundingClientRect(); return [x, y, width, height]; }"
    )
    assert field.evaluate(place) == pytest.approx(line.evaluate(place), abs=0.6)

    box = words.nth(4).bounding_box()
    assert box
    page.mouse.click(box["x"] + 20, box["y"] + 20)
    expect(page.locator(".door-said")).to_contain_text("money")
    page.get_by_role("button", name="What if not?").click()
    state = page.evaluate("regard.state()")
    trace, answer = rounded["bert"].trace(OTHER), page.locator(".answer-without")
    hidden = page.locator(".hidden-word").inner_text()
    moved = 1 - np.array(left_by(trace, unseen_word(trace, trace.encoding.find(hidden)[0]))["cosine"])
    expect(answer).to_contain_text(
        f"If no other word may look at {hidden}, in any of the 6 heads, money moves"
    )
    expect(answer).to_contain_text(re.compile(rf"money moves (most, )?by {moved[5]:.2f}"))
    # No two of the words are the same.
    vectors = [trace.embedding(each.span) for each in trace.encoding.words if each.text != "."]
    apart = np.mean([1 - float(torch.cosine_similarity(*two, dim=0)) for two in combinations(vectors, 2)])
    expect(answer).to_contain_text(f"Two different words here are {apart:.2f} apart.")
    page.get_by_label("without this head").check()
    moved = 1 - trace.ablation(state["layer"], state["head"]).cosine
    expect(answer).to_contain_text(re.compile(rf"money moves (most, )?by {moved[state['pin']['index']]:.2f}"))

    page.get_by_label("fell").check()
    expect(field).to_have_value("The horse raced past the barn fell.")
    _settle(page)
    expect(words.first).to_have_text("The")
    assert axe(page).violations == []


@pytest.mark.parametrize("family", FAMILIES)
def test_says_why_any_head_looks_there(
    family: str, open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    page = open_live(family)
    _type(page, OTHER)
    trace = rounded[family].trace(OTHER)
    (kind,) = trace.kinds
    layer = trace.layers_of(kind)[-1]
    wanted = pairs_of_head(trace, layer, 1, kind)
    ask = "([kind, layer]) => window.regard.source.whyOf(kind, layer, 1)"
    found = page.wait_for_function(ask, arg=[kind, layer]).json_value()
    assert [pair[:2] for pair in found["pairs"]] == [pair[:2] for pair in wanted["pairs"]]
    for one, other in zip(found["pairs"], wanted["pairs"], strict=True):
        assert [one[2], one[4]] == pytest.approx([other[2], other[4]], abs=0.011)
    # And in words, in the calculation.
    tokens = trace.encoding.tokens
    words = [pair for pair in wanted["pairs"] if not any(tokens[at].special for at in pair[:2])]
    query, key, _, ((part, source, value), *_), _ = words[-1]
    page.evaluate(
        f"() => {{ location.hash = '#view=neuron&layer={layer}&head=1&pin=query-{query}&key={key}'; }}"
    )
    said = wanted["parts"][part] + ("" if source is None else f", from {tokens[source].text}")
    expect(page.locator(".step-reasons li").first).to_contain_text(said)
    expect(page.locator(".step-reasons li").first).to_contain_text(f"{abs(value):.1f}"[:-1])


@pytest.mark.parametrize("family", FAMILIES)
def test_another_word_in_the_place_of_one_is_pythons(
    family: str, open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    page = open_live(family)
    _type(page, OTHER)
    trace = rounded[family].trace(OTHER)
    (kind,) = trace.kinds
    layer = trace.layers_of(kind)[-1]
    query, key = (trace.encoding.find(word)[0] for word in ("bank", "money"))
    wanted = instead_of(trace, layer, 1, query, key)
    assert wanted
    ask = """([kind, layer, from, to, words]) => {
      const found = window.regard.source.instead({ kind, layer, head: 1 }, from, to, words);
      return found?.length > 0 && found.every(({ share }) => share !== null) && found;
    }"""
    words = [each["text"] for each in wanted]
    found = page.wait_for_function(ask, arg=[kind, layer, query, key, words]).json_value()
    assert [each["text"] for each in found] == words
    shares = [each["share"] for each in wanted]
    np.testing.assert_allclose([each["share"] for each in found], shares, atol=CLOSE)
    # What is not asked for is not worked out.
    asked = page.evaluate(
        ask.replace("found?.length > 0 && found.every", "[].every"), [kind, layer, query, key, []]
    )
    assert {each["share"] for each in asked} == {None}


def test_the_story_of_what_is_typed_has_its_end(
    open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    page = open_live(fragment="#view=story&step=8")
    _type(page, OTHER)
    page.locator(".story-token", has_text="money").click()
    model = rounded["bert"]
    trace, asked = model.trace(OTHER), model.trace("What does the word money mean?")
    told = beside(trace, asked, word_at(trace, trace.encoding.find("money")[0]))
    expect(page.locator(".story-end")).to_contain_text("What does the word money mean?")
    expect(page.locator(".story-end").get_by_role("img")).to_have_accessible_name(
        re.compile(f"distance between the two {told['far'][-1]:.3f}")
    )

    page = open_live("llama", fragment="#view=story&step=8")
    _type(page, "the man on")
    expect(page.locator(".story-next li")).to_have_count(10)


def test_an_edit_is_pythons(open_live: OpenPage, rounded: dict[str, regard.Model]) -> None:
    page = open_live()
    page.evaluate("location.hash = '#layer=0&head=0'")
    page.get_by_role("button", name="Switch off head 0.0").click()
    _settle(page)
    ink = """e => {
      const pixels = e.getContext("2d").getImageData(0, 0, e.width, e.height).data;
      let [count, most] = [0, 0];
      for (let at = 0; at < pixels.length; at += 4)
        if (pixels[at + 3] > 40) {
          const colour = pixels.subarray(at, at + 3);
          most = Math.max(most, Math.max(...colour) - Math.min(...colour));
          count += 1;
        }
      return [count, most];
    }"""
    count, coloured = page.locator(".overview").evaluate(ink)
    assert count > 0
    assert coloured < 30  # its lines are grey
    model = rounded["bert"]
    zero = Zero("head", layer=0, head=0)
    _check(page, model.edited(zero).trace(OPENING))
    expect(page.get_by_role("button", name="Switch on head 0.0")).to_be_focused()
    expect(page.get_by_role("gridcell", name=re.compile("^Layer 0, head 0.*switched off"))).to_have_count(1)
    page.get_by_role("tab", name="Model").click()
    expect(page.get_by_role("gridcell", name=re.compile("^Layer 0, head 0.*switched off"))).to_have_count(1)
    expect(page.locator(".detail .switch")).to_have_text("Switch on head 0.0")
    page.get_by_role("tab", name="Heads").click()

    # A weight is dragged at the end of its bar, by the keyboard too.
    page.locator('.tokens.queries [data-token="2"]').click()
    handle = page.get_by_role("slider", name="Drag the weight of bank", exact=True)  # of the pinned row
    place = [int(part) for part in str(handle.get_attribute("data-place")).split(".")]
    handle.focus()
    handle.press("End")
    _settle(page)
    layer, head, query, key = place
    row = page.evaluate("([l, h, q]) => [...window.regard.weightsRow(l, h, q)]", place[:3])
    assert row[key] == pytest.approx(1, abs=1e-5)
    assert sum(row) == pytest.approx(1, abs=1e-5)

    def only(x: torch.Tensor) -> torch.Tensor:
        x.zero_()
        x[..., key] = 1
        return x

    edited = model.edited(zero, Write("weights", only, layer=layer, head=head, query=query))
    # What follows from it, in the other layer.
    found = page.evaluate("[...window.regard.weightsRow(1, 1, 3)]")
    np.testing.assert_allclose(found, edited.trace(OPENING).weights(1, 1)[3], atol=CLOSE)
    # The handle is where it was, though the list is another one now.
    assert page.evaluate("document.activeElement.dataset.place") == ".".join(map(str, place))

    page.get_by_role("button", name="all edits").click()
    _settle(page)
    _check(page, model.trace(OPENING))


def test_the_views_follow_a_weight_while_it_is_dragged(open_live: OpenPage) -> None:
    page = open_live(fragment="#layer=0&head=1&pin=query-2")
    handle = page.get_by_role("slider", name="Drag the weight of bank", exact=True)  # of the pinned row
    handle.hover(force=True)
    place = str(handle.get_attribute("data-place"))
    box, word = (
        handle.bounding_box(),
        page.locator(".with-drag .top-name bdi", has_text="bank").first.bounding_box(),
    )
    assert box is not None
    assert word is not None
    assert word["x"] + word["width"] <= box["x"]  # it has a track of its own
    left, width, y = box["x"] + 4, box["width"] - 8, box["y"] + box["height"] / 2
    page.mouse.move(left + width * float(handle.input_value()), y)
    page.mouse.down()
    key = int(place.split(".")[-1])
    for share in (0.9, 0.4):
        page.mouse.move(left + width * (share + 0.2), y)
        page.mouse.move(left + width * share, y)
        _settle(page)
        row = page.evaluate("[...window.regard.weightsRow(0, 1, 2)]")
        assert row[key] == pytest.approx(share, abs=0.02)
        assert page.evaluate("document.activeElement.dataset.place") == place
    page.mouse.up()
    page.mouse.move(left, y)
    assert page.evaluate("[...window.regard.weightsRow(0, 1, 2)]") == row


def test_what_is_pinned_goes_with_its_word_and_is_forgotten_with_it(
    open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    start = _start(rounded["bert"], OPENING)
    chosen = [start["layer"], (start["head"] + 1) % 3]
    page = open_live(fragment="#pin=query-5&layer={}&head={}".format(*chosen))
    texts = {"on a man on the river bank.": 6, "a fish on the river bank.": 5, "a fish on the money bank.": 5}
    for text, index in texts.items():
        _type(page, text)
        assert page.evaluate("window.regard.state().pin.index") == index
    _type(page, "a fish on the bank.")
    state = page.evaluate("window.regard.state()")
    assert [state["pin"], state["layer"], state["head"]] == [None, *chosen]


def _start(model: regard.Model, text: str) -> dict[str, Any]:
    """Where Python opens on a text."""
    record = page_record(model.trace(text), names=MOST_WEIGHTS)
    found = find_start(record, every_head(record))
    assert found
    return found


def _opened(page: BrowserPage) -> tuple[Any, ...]:
    state = page.evaluate("window.regard.state()")
    return state["layer"], state["head"], state["pin"]["index"]


def test_a_click_on_a_word_is_for_its_sentence_alone(
    open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    """A click, and what was typed or chosen next opened on that head, at that place, for ever."""
    page = open_live(start=True)

    def click() -> None:
        """The first longer word that the page is not on."""
        words = page.locator(".door > .door-sentence .door-word")
        at = words.evaluate_all("all => all.findIndex(e => !e.matches('.from') && e.innerText.length > 2)")
        box = words.nth(at).bounding_box()
        assert box
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 20)
        expect(page.get_by_role("button", name="Back to the start")).to_be_visible()

    def expect_start(text: str) -> None:
        _settle(page)
        start = _start(rounded["bert"], text)
        assert _opened(page) == (start["layer"], start["head"], start["pin"])
        assert page.evaluate("window.regard.state().key") is None

    for text in ("money fish, river fish.", "rivers, manly fishing banks"):
        click()
        page.evaluate("location.hash += '&key=2'")  # whose share is worked out
        page.get_by_label("Type a sentence").fill(text)
        expect_start(text)
    _type(page, f"a {READY[3]}")  # nearly the same words
    click()
    page.get_by_label("fell").check()
    expect_start(READY[3])
    # The word is gone, though most of the others are there.
    click()
    page.get_by_label("Type a sentence").fill("horse raced past the barn fell.")
    expect_start("horse raced past the barn fell.")


def test_a_head_that_was_chosen_stays_where_a_word_does_not(open_live: OpenPage) -> None:
    page = open_live(start=True)
    page.get_by_role("button", name="And the other heads?").click()
    for folded in page.locator(".answer-others summary").all():
        folded.click()
    page.locator(".door-card:not([aria-current])").last.click()
    chosen = page.evaluate("(({ layer, head }) => [layer, head])(window.regard.state())")
    for text in ("money fish, river fish.", READY[0]):
        _type(page, text)
        layer, head, pin = _opened(page)
        assert [layer, head] == chosen
        word = page.locator(".door > .door-sentence .door-word.from")
        expect(word).to_have_count(1)
    assert (word.inner_text(), pin) == ("it", page.evaluate("window.regard.facts.start.pin"))


def test_a_ready_sentence_opens_on_the_word_that_it_is_about(open_live: OpenPage) -> None:
    page = open_live(start=True)
    for text, about in zip(READY, ("it", "bank", "flies", "fell"), strict=True):
        _type(page, text)
        expect(page.locator(".door > .door-sentence .door-word.from")).to_have_text(about)


def test_a_link_keeps_the_sentence(
    open_live: OpenPage, rounded: dict[str, regard.Model], paths: dict[str, Path]
) -> None:
    page = open_live(start=True)
    _type(page, OTHER)
    page.get_by_role("button", name="What if not?").click()
    box = page.locator(".door > .door-sentence .door-word", has_text="money").bounding_box()
    assert box
    page.mouse.click(box["x"] + 20, box["y"] + 20)
    again = open_live(fragment=page.evaluate("location.hash"), start=True)
    for one in (page, again):
        expect(one.get_by_label("Type a sentence")).to_have_value(OTHER)
        assert one.evaluate("location.hash") == page.evaluate("location.hash")
        expect(one.locator(".door > .door-sentence .door-word.from")).to_have_text("money")
        _check(one, rounded["bert"].trace(OTHER))
    expect(again.locator(".answer-without")).to_contain_text("moves")
    # Another address in the same window, and one that names no sentence: that stays.
    again.evaluate("hash => { location.hash = hash; }", "text=the+fish&layer=0&head=1")
    _settle(again)
    expect(again.get_by_label("Type a sentence")).to_have_value("the fish")
    _check(again, rounded["bert"].trace("the fish"))
    again.evaluate("hash => { location.hash = hash; }", "layer=1&head=2")
    assert "text=the+fish" in again.evaluate("location.hash")
    assert again.evaluate("(({ layer, head }) => [layer, head])(window.regard.state())") == [1, 2]


def test_a_link_keeps_what_was_changed_in_the_model(
    open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    hash_ = "#view=door&text=the+fish&off=0.1&weights=1.2.1.2:0.75"
    page = open_live(fragment=hash_, start=True)
    zero = Zero("head", layer=0, head=1)
    _check(page, rounded["bert"].edited(zero, _dragged(1, 2, 1, 2, 0.75)).trace("the fish"))
    # They are on the door, and go from there.
    edits = page.locator(".door .live-edits")
    expect(edits).to_contain_text("head 0.1 off")
    expect(edits).to_contain_text("the → fish = 0.75 in head 1.2")
    assert "off=0.1&weights=1.2.1.2%3A0.75" in page.evaluate("location.hash")
    edits.get_by_role("button", name="all edits").click()
    _settle(page)
    expect(edits).to_be_empty()
    _check(page, rounded["bert"].trace("the fish"))
    assert "off" not in page.evaluate("location.hash")


def _dragged(layer: int, head: int, query: int, key: int, value: float) -> Write:
    def function(row: torch.Tensor) -> torch.Tensor:
        others = row.clone()
        others[..., key] = 0
        made = others * (1 - value) / others.sum(dim=-1, keepdim=True)
        made[..., key] = value
        return made

    return Write("weights", function, layer=layer, head=head, query=query)


HOSTILE = [
    "<img src=x onerror=alert(1)> bank",
    "</script><script>alert(1)</script> bank",
    "a%26pin=query-1#&layer=9 bank",
    "constructor __proto__ bank",
    "bank\u202e\u0000 a",
]


def _hostile(text: str) -> str:
    return f"#text={quote(text)}&off=9.9,0.x,__proto__&weights=0.0.0:2"


def test_hostile_text_in_a_link_is_text(open_live: OpenPage, rounded: dict[str, regard.Model]) -> None:
    page = open_live(fragment=_hostile(HOSTILE[0]), start=True)
    for text in HOSTILE:
        page.evaluate("hash => { location.hash = hash; }", _hostile(text))
        expect(page.get_by_label("Type a sentence")).to_have_value(text)
        _settle(page)
        assert page.locator("img").count() == 0
        assert page.locator(".live-edits li").count() == 0
        _check(page, rounded["bert"].trace(text))
        assert page.evaluate("new URLSearchParams(location.hash.slice(1)).get('text')") == text


@pytest.mark.parametrize(
    ("said", "told"),
    [
        # By the tokenizer, and by the model.
        ("text=", "is empty"),
        ("text=a+man&weights=0.0.99.1:0.5", "There is no token 99"),
    ],
)
def test_a_link_that_cannot_be_read_shows_no_other_sentence(
    said: str, told: str, open_page: OpenPage, paths: dict[str, Path]
) -> None:
    page = open_page(paths["bert"], f"#{said}", start=True)
    expect(page.locator(".live-status")).to_contain_text(told)
    expect(page.locator(".door-said")).to_be_hidden()
    _type(page, OTHER)
    expect(page.locator(".door-said")).to_be_visible()
    assert page.evaluate("new URLSearchParams(location.hash.slice(1)).get('text')") == OTHER


def test_until_a_links_sentence_is_there_no_other_is_drawn(paths: dict[str, Path], browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.add_init_script("window.Worker = class { postMessage() {} }")  # that never answers
    page.goto(f"{paths['bert'].as_uri()}#text={quote(OTHER)}&pin=query-5")
    expect(page.get_by_label("Type a sentence")).to_have_value(OTHER)
    expect(page.locator(".live-status")).to_contain_text("Reading the model")
    expect(page.locator(".place")).to_be_hidden()
    assert page.evaluate("location.hash").endswith("&pin=query-5")  # as it came
    context.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_another_text_opens_where_python_would(
    family: str, open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    page = open_live(family, start=True)

    def opens_on(text: str) -> tuple[Any, Any]:
        _type(page, text)
        record = page_record(rounded[family].trace(text), names=MOST_WEIGHTS)
        state = page.evaluate("window.regard.state()")
        found = {name: state[name] for name in ("kind", "layer", "head", "units")}
        start = {"units": "pieces"} | (find_start(record, every_head(record)) or {})
        wanted = {name: start[name] for name in found}
        return found | {"pin": state["pin"]}, wanted | {"pin": {"side": "query", "index": start["pin"]}}

    # The second is in pieces of words.
    for text in ("money fish, river fish.", "rivers, manly fishing banks", READY[1], "a man man fish"):
        found, wanted = opens_on(text)
        assert found == wanted
    # What a reader has chosen stays.
    head = (found["head"] + 1) % 3
    page.evaluate("hash => { location.hash = hash; }", f"#layer=1&head={head}")
    found, _ = opens_on("a bank on a river on a man")
    assert (found["layer"], found["head"], found["pin"]) == (1, head, None)


def test_says_which_words_moved(open_live: OpenPage, rounded: dict[str, regard.Model]) -> None:
    page = open_live()
    expect(page.locator(".live-found").first).to_contain_text("Type over the sentence")
    _type(page, OTHER)
    model = rounded["bert"]
    one, other = model.trace(OPENING), model.trace(OTHER)
    # What both have in this order: man, on, bank, and the full stop.
    wanted = {
        word: float(torch.cosine_similarity(one.embedding(word), other.embedding(word), dim=0))
        for word in ("man", "on", "bank", ".")
    }
    shown = page.locator(".live-found").first.locator("li").all_inner_texts()
    found = {word: float(number) for word, number in (each.split() for each in shown)}
    assert found == pytest.approx(wanted, abs=6e-4)
    assert list(found.values()) == sorted(found.values())
    # Of an edit it is said what it moves in the sentence as it stands.
    page.get_by_role("button", name="Switch off head").click()
    said = r"^So \S+ moves most, by 0\.\d\d\. Two different words here are \d\.\d\d apart\."
    expect(page.locator(".live-found").first).to_contain_text(re.compile(said))
    marked = page.locator(".as-sentence li")
    expect(marked).to_have_count(len(other.words))
    lost = [
        float(each) for each in marked.evaluate_all("all => all.map(e => e.style.getPropertyValue('--lost'))")
    ]
    assert max(lost) == 1
    page.get_by_role("button", name="Switch on head").click()
    expect(page.locator(".live-found").first).to_contain_text("Type over the sentence")
    expect(page.locator(".live-found").first).to_contain_text("Type over the sentence")
    _type(page, "fishing fishing fishing")
    expect(page.locator(".live-found").first).to_be_hidden()  # too few words are in both


def test_says_how_alike_two_sentences_are(open_live: OpenPage, rounded: dict[str, regard.Model]) -> None:
    page = open_live()
    page.get_by_role("button", name="Compare two sentences").click()
    _type(page, OTHER, "Another sentence, to compare with")
    model = rounded["bert"]
    one, other = (model.trace(text).embeddings().mean(dim=0) for text in (OPENING, OTHER))
    wanted = float(torch.cosine_similarity(one, other, dim=0))
    expect(page.locator(".live-alike")).to_have_text(f"{wanted:.2f} alike (cosine)")
    # And a word's way in both: the one in both that stays most alike, until another is chosen.
    drawn, here, there = page.locator(".live-beside"), model.trace(OPENING), model.trace(OTHER)
    for word, partner in (("bank", "bank"), ("river", None)):
        page.get_by_label("Word", exact=True).select_option(label=word)
        _settle(page)
        told = beside(here, there, word_at(here, here.encoding.find(word)[0]))
        assert partner in (None, told["words"][1])
        name = drawn.get_by_role("img").get_attribute("aria-label") or ""
        [far] = re.findall(r"distance between the two ([\d.]+)\.", name)
        assert float(far) == pytest.approx(told["far"][-1], abs=1e-3)
        expect(drawn.locator("circle")).to_have_count(2 * len(told["steps"]))
    # Below the drawing, the views keep their height, and the page scrolls.
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.locator(".shown").evaluate("shown => shown.clientHeight") >= 600
    _type(page, "", "Another sentence, to compare with")
    expect(page.locator(".live-alike")).to_have_text("")
    expect(drawn.get_by_role("img")).to_have_count(0)


@pytest.mark.parametrize("family", FAMILIES)
def test_says_what_the_model_expects(
    family: str, open_live: OpenPage, rounded: dict[str, regard.Model]
) -> None:
    page, model = open_live(family), rounded[family]
    text = "the man on the [MASK] bank" if family == "bert" else "the man on"
    _type(page, text)
    trace = model.trace(text)
    at = trace.tokens.index("[MASK]") if family == "bert" else len(trace.tokens) - 1
    with torch.no_grad():
        logits = model.network(torch.tensor([trace.token_ids])).logits
    assert logits is not None
    best = logits[0, at].softmax(0).max(0)
    first = page.locator(".live-expected button").first
    share = 100 * float(best.values)
    expect(first).to_contain_text(f"{share:.1f} %" if share < 10 else f"{share:.0f} %")
    # Of what is no text, a part of a character, nothing can be written.
    likely = [model.tokenizer.decode([int(id)]) for id in logits[0, at].topk(10).indices]
    written = next(each for each in likely if "\ufffd" not in each)
    page.locator(".live-expected button:enabled").first.click()
    _settle(page)
    field = page.get_by_label("Type a sentence")
    if family == "bert":
        expect(field).not_to_have_value(re.compile("MASK"))
        expect(page.locator(".live-expected")).to_have_text("")
    else:
        expect(field).to_have_value(text + written)


MOST_CHARACTERS = 200 * MOST_TOKENS  # a longer text is not even read

REFUSED = {
    "empty": ("", "is empty"),
    "blank": (" \n\t ", "is empty"),
    "too long": ("man " * MOST_TOKENS, f"{MOST_TOKENS + 2} tokens .* at most {MOST_TOKENS}"),
    "a novel": (
        "man " * (MOST_CHARACTERS // 4 + 1),
        f"{MOST_CHARACTERS + 4} characters.* at most {MOST_TOKENS} tokens",
    ),
    "nothing that is seen": ("\u200b", "leaves no token|is empty"),
}


def test_what_cannot_be_read_is_said_and_the_picture_stays_dimmed(open_live: OpenPage) -> None:
    page = open_live()
    for text, said in REFUSED.values():
        page.get_by_label("Type a sentence").fill(text)
        expect(page.locator(".live-status")).to_contain_text(re.compile(said))
        expect(page.locator("#regard-view")).to_be_visible()
        dimmed = page.locator(".place").evaluate("e => getComputedStyle(e).opacity")
        assert float(dimmed) < 0.5
        expect(page.locator(".live-found").first).to_be_hidden()
        expect(page.locator("h1")).to_have_text("No sentence that can be read")
        expect(page.locator(".exact")).to_be_hidden()
        _type(page, OTHER)
        expect(page.locator("h1")).to_have_text(OTHER)
        expect(page.locator("#regard-view")).to_be_visible()
        expect(page.locator(".tokens.queries .token").nth(4)).to_contain_text("a")


def test_an_unknown_word_is_said_and_hostile_text_is_text(open_live: OpenPage) -> None:
    page = open_live()
    _type(page, "the man 鱼 on the bank")
    expect(page.locator(".live-status")).to_contain_text("does not know 鱼: it reads [UNK] there")
    for text in ("<img src=x onerror=alert(1)>", "</script><b>a", "a\u0000b\u202eriver", "{{script}} [CLS]"):
        _type(page, text)
        expect(page.locator("#regard-view")).to_be_visible()
    assert page.locator("img").count() == 0


def test_the_newest_wins(open_live: OpenPage, rounded: dict[str, regard.Model]) -> None:
    page = open_live()
    texts = [f"{'man ' * count}bank" for count in range(1, 12)]
    page.get_by_label("Type a sentence").focus()
    page.evaluate(
        """(texts) => {
          const field = document.activeElement;
          for (const text of texts) {
            field.value = text;
            field.dispatchEvent(new Event("input"));
          }
        }""",
        texts,
    )
    _settle(page)
    _check(page, rounded["bert"].trace(texts[-1]))
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"


WITHOUT = {
    "workers": ("delete window.Worker", "allows no worker"),
    "a worker that starts": (
        "window.Worker = class extends Worker { constructor() { super('data:,}') } }",
        "no worker",
    ),
    "WebAssembly": ("delete window.WebAssembly; delete window.Worker", "without WebAssembly"),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_browser_without_is_told_so_and_served(
    name: str, open_live: OpenPage, paths: dict[str, Path], rounded: dict[str, regard.Model], browser: Any
) -> None:
    script, said = WITHOUT[name]
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.add_init_script(script)
    page.goto(paths["bert"].as_uri())
    expect(page.locator(".live-note")).to_contain_text(said)
    _type(page, OTHER)
    _check(page, rounded["bert"].trace(OTHER))
    context.close()


def _cut(html: bytes, share: float) -> bytes:
    """The file without its end: `share` of what follows the script is left."""
    start = html.rindex(b'id="regard-live-worker"')
    return html[: start + int(share * (len(html) - start))]


@pytest.mark.parametrize("share", [0.02, 0.999])
def test_a_file_cut_short_says_so(
    share: float, open_page: OpenPage, paths: dict[str, Path], tmp_path: Path
) -> None:
    cut = tmp_path / "cut.html"
    cut.write_bytes(_cut(paths["bert"].read_bytes(), share))
    page = open_page(cut)
    expect(page.locator(".live-status")).to_contain_text("cut short")
    expect(page.get_by_label("Type a sentence")).to_be_disabled()
    expect(page.get_by_role("button", name="Compare two sentences")).to_be_hidden()
    expect(page.locator("#regard-view")).to_be_visible()  # what Python worked out is whole


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_file_that_ends_before_its_script_says_so(
    share: float, paths: dict[str, Path], tmp_path: Path, browser: Any
) -> None:
    html = paths["bert"].read_bytes()
    cut = tmp_path / "cut.html"
    cut.write_bytes(html[: int(share * html.rindex(b'id="regard-live-worker"'))])
    page = browser.new_page()
    page.goto(cut.as_uri())
    page.evaluate("document.getAnimations().forEach((each) => each.finish())")  # it comes after three seconds
    expect(page.get_by_text("the file is not whole")).to_have_css("opacity", "1")
    page.close()


def test_a_damaged_model_says_so(open_page: OpenPage, paths: dict[str, Path], tmp_path: Path) -> None:
    html = paths["bert"].read_text(encoding="utf-8")
    at = html.index('id="regard-live-layers.1">') + 400
    damaged = tmp_path / "damaged.html"
    damaged.write_text(html[:at] + ("B" if html[at] == "A" else "A") + html[at + 1 :], encoding="utf-8")
    page = open_page(damaged)
    expect(page.locator(".live-status")).to_contain_text("damaged: its part layers.1")


def test_what_is_chosen_stays(open_live: OpenPage) -> None:
    page = open_live(fragment="#view=model&layer=1&head=2")
    _type(page, OTHER)
    state = page.evaluate("window.regard.state()")
    assert (state["view"], state["layer"], state["head"]) == ("model", 1, 2)
    page.get_by_role("tab", name="Heads").click()
    expect(page.get_by_role("button", name="Switch off head 1.2")).to_be_visible()
    # Nothing of the sentences before still listens: one press of Escape lets go once.
    page.locator('.tokens.queries [data-token="2"]').click()
    assert page.evaluate("window.regard.state().pin.index") == 2
    page.keyboard.press("Escape")
    assert page.evaluate("window.regard.state().pin") is None


DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def test_axe_finds_nothing(open_live: OpenPage) -> None:
    page = open_live(fragment="#theme=light&pin=query-1", viewport=DESK)
    page.get_by_role("button", name="Switch off head").click()
    page.get_by_role("button", name="Compare two sentences").click()
    _type(page, OTHER, "Another sentence, to compare with")
    for theme in ("light", "dark"):
        _type(page, "a man on the [MASK] river bank 鱼")
        page.evaluate("hash => { location.hash = hash; }", f"theme={theme}&layer=0&head=0&pin=query-1")
        expect(page.locator(".regard")).to_have_attribute("data-theme", theme)
        page.get_by_role("slider", name="Drag the weight of bank", exact=True).press("ArrowRight")
        _settle(page)
        for _ in range(2):
            found = axe(page)
            assert found.passes > 10
            assert [(each["id"], each["nodes"][0]["target"]) for each in found.violations] == []
            for size in (PHONE, DESK):
                page.set_viewport_size(size)
                assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            page.get_by_label("Type a sentence").fill("")
            expect(page.locator(".live-status")).to_contain_text("is empty")


def test_the_pages_before_are_forgotten(open_live: OpenPage) -> None:
    page = open_live()
    session = page.context.new_cdp_session(page)

    def nodes() -> int:
        session.send("HeapProfiler.collectGarbage")
        return int(session.send("Memory.getDOMCounters")["nodes"])

    def type_some() -> None:
        for word in ("bank", "river"):
            _type(page, f"a man on the {word}")

    type_some()
    before = nodes()
    type_some()
    type_some()
    # Chromium may hold a page that has just left through a few collections more.
    for _ in range(30):
        if nodes() < 1.1 * before:
            return
        page.wait_for_timeout(100)
    assert nodes() < 1.1 * before


def test_paper_has_the_sentence_and_no_field(open_live: OpenPage) -> None:
    page = open_live()
    _type(page, OTHER)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".live")).to_be_hidden()
    assert page.locator("h1").evaluate("e => e.clientHeight") > 10
    expect(page.locator("h1")).to_have_text(OTHER)
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".live")).to_be_visible()


def test_a_pair_has_two_fields(
    open_page: OpenPage, models: dict[str, regard.Model], rounded: dict[str, regard.Model], tmp_path: Path
) -> None:
    models["bert"].live_page(OPENING, "the river").write(tmp_path / "pair.html")
    page = open_page(tmp_path / "pair.html")
    expect(page.locator(".live-status")).to_contain_text(" ms.")
    _type(page, "a money bank", "Second text")
    _check(page, rounded["bert"].trace(OPENING, "a money bank"))


def test_the_default_model(run: Run, open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "live.html"
    told = json.loads(run("look", "--live", "--no-open", "--json", "-o", str(path)).out)
    assert told["path"] == str(path)
    assert told["bytes"] == path.stat().st_size < 40e6
    page = open_page(path)
    expect(page.locator(".live-status")).to_contain_text(" ms.", timeout=30_000)
    text = "Write a poem about a man: he isn't fishing (on a river bank)."
    _type(page, text)
    rows = page.evaluate(
        "Array.from({ length: 21 }, (_, query) => [...window.regard.weightsRow(5, 11, query)])"
    )
    facts = page.evaluate("[window.regard.facts.names, window.regard.source.names('encoder')]")
    model = regard.load(DEFAULT_MODEL)
    names = names_of(_rounded(model).trace(text), MOST_WEIGHTS)
    assert facts[0] == {name: names[name] for name in ("said", "patterns")}
    assert [[[each["name"] for each in head] for head in layer] for layer in facts[1]] == [
        [[each["name"] for each in head] for head in layer] for layer in names["kinds"]["encoder"]
    ]
    apart = np.abs(np.array(rows) - model.trace(text).weights(5, 11).numpy()).max()
    assert 0 < apart < page.evaluate("window.regard.facts.difference") == told["largest_difference"]
