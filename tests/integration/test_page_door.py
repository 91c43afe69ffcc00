"""The front door: a sentence, a remark that is true of it, and three questions that unfold."""

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import ViewportSize, expect

import regard
from integration import head_page
from integration.axe import axe
from integration.first_screen import first_screen
from regard.tracing.edits import Zero, unseen_word
from regard.tracing.pages._instead import left_by
from regard.views import PageToken, render_page
from unit.views.conftest import encoder_record

OpenPage = Callable[..., BrowserPage]

BANK = "Write a poem about a man fishing on a river bank."
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, regard.Trace]:
    path = tmp_path_factory.mktemp("door") / "bank.html"
    trace = regard.load().trace(BANK)
    trace.write_page(path)
    return path, trace


def _view(page: BrowserPage) -> Any:
    return head_page.state(page)["view"]


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_first_screen_is_short(open_page: OpenPage, bank: tuple[Path, Any], size: ViewportSize) -> None:
    page = open_page(bank[0], start=True, viewport=size)
    assert first_screen(page).fits(words=60, numbers=10, controls=8)
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    assert page.get_by_role("heading", level=1).count() == 1
    large = page.locator(".door-word").first.evaluate("e => getComputedStyle(e).fontSize")
    assert large == {1280: "34px", 390: "25px"}[size["width"]]
    # The arcs have their room, and everything is on the screen.
    top, bottom = (page.locator(each).last.bounding_box() for each in (".door-arcs g path", ".door-question"))
    assert top
    assert bottom
    assert top["y"] > 40
    assert bottom["y"] + bottom["height"] < size["height"]
    # The counter counts: "All views" is what it was.
    page.get_by_role("button", name="All views").click()
    assert axe(page, colours=size is DESK).violations == []  # a phone has the colours of a desk
    found = first_screen(page)
    assert found.words > 60
    assert found.numbers > 10
    assert found.controls > 8


def test_the_page_of_the_readme_is_small(bank: tuple[Path, Any]) -> None:
    assert bank[0].stat().st_size < 515_000


def test_the_remark_is_true(open_page: OpenPage, bank: tuple[Path, regard.Trace]) -> None:
    page = open_page(bank[0], start=True)
    said, state = page.locator(".door-said"), head_page.state(page)
    weights = bank[1].weights(state["layer"], state["head"]).numpy()
    words = bank[1].tokens

    def share(query: int, key: int) -> str:
        return f"{100 * weights[query, key]:.0f}\u00a0%"

    def most(query: int) -> int:
        keys = [i for i, each in enumerate(words) if str(each).isalpha() and i != query]
        return max(keys, key=lambda i: weights[query, i])

    def remark(query: int) -> str:
        key = most(query)
        of = f"gives {share(query, key)} of its attention to {words[key]}"
        return f"In one of 72 heads, {words[query]} {of}."

    start = state["pin"]["index"]
    expect(said).to_have_text(remark(start), ignore_case=True)
    # Of river no share is six times what chance would give: that is said with what chance would give.
    page.locator(".door > .door-sentence .door-word", has_text="river").click()
    spread = f"at most {share(10, most(10))}, to bank; an even share is 7\u00a0%."
    expect(said).to_have_text(f"In one of 72 heads, river spreads its attention: {spread}")
    page.get_by_role("listbox", name="The sentence").press("ArrowRight")
    expect(said).to_have_text(remark(11), ignore_case=True)
    expect(page.get_by_role("option", selected=True)).to_have_text("bank")
    shares = page.locator(".door > .door-sentence g").evaluate_all("all => all.map(e => e.dataset.to)")
    # Of its own share a word has a loop, if it is not too thin.
    least = [0.1 if i == 11 else 0.01 for i in range(14)]
    assert sorted(map(int, shares)) == [i for i in range(14) if weights[11, i] >= least[i]]
    # A word that keeps most for itself.
    page.locator(".door > .door-sentence .door-word", has_text="poem").click()
    expect(said).to_have_text(f"In one of 72 heads, poem keeps {share(3, 3)} of its attention for itself.")
    # Special tokens have no place in the sentence: their arcs end beside it.
    marks = page.locator(".door > .door-sentence .to-mark path:first-child")
    ends = marks.evaluate_all("all => all.map(e => e.getPointAtLength(e.getTotalLength()).x)")
    assert 1 <= len(ends) <= 2
    # Nine pixels beside the first word, which is padded by three.
    assert min(ends) == pytest.approx(-12, abs=0.1)


def test_escape_and_a_button_lead_back_to_the_opening(
    open_page: OpenPage, bank: tuple[Path, regard.Trace]
) -> None:
    page = open_page(bank[0], start=True)
    start, back = head_page.state(page), page.get_by_role("button", name="Back to the start")
    opened = page.locator(".door-said").inner_text()
    for leave in (lambda: page.keyboard.press("Escape"), back.click):
        expect(back).to_have_count(0)
        page.locator(".door > .door-sentence .door-word", has_text="river").click()
        page.evaluate("hash => { location.hash = hash; }", "view=door&layer=1&head=2&pin=query-10&key=3")
        expect(back).to_be_visible()
        leave()
        expect(page.locator(".door-said")).to_have_text(opened)
        state = head_page.state(page)
        assert [state[name] for name in ("layer", "head", "pin", "key")] == [
            *(start[name] for name in ("layer", "head", "pin")),
            None,
        ]


def test_help_on_the_door_is_about_the_door(open_page: OpenPage, bank: tuple[Path, Any]) -> None:
    page = open_page(bank[0], start=True)
    page.get_by_role("button", name="Help").click()
    said = page.get_by_role("dialog")
    for part in ("6 layers in a row", "12 heads, which look side by side", "divides its 100 %"):
        expect(said).to_contain_text(part)
    expect(said).to_contain_text("It is no explanation")
    for other in ("Each query", "left", "Copy link"):
        expect(said).not_to_contain_text(other)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="All views").click()
    page.get_by_role("button", name="Help").click()
    expect(said).to_contain_text("Each query divides a weight of 1 among the keys.")


def test_where_most_words_look_at_the_same_one_it_says_so(
    open_page: OpenPage, bank: tuple[Path, Any]
) -> None:
    page = open_page(bank[0], "#view=door&layer=5&head=6&pin=query-3", start=True)
    note = page.locator(".door-said + .door-note")
    expect(note).to_have_text(re.compile(r"^7 of 11 words look most at fishing here\."))
    page.evaluate("location.hash = '#view=door&layer=5&head=11&pin=query-1'")
    expect(note).to_have_text(re.compile(r"^Click any word to follow it\."))


def test_a_long_text_has_no_lines_and_leaves_room_for_the_rest(open_page: OpenPage, tmp_path: Path) -> None:
    tokens = [PageToken(text=f"word{i}", sequence=0, word=i) for i in range(400)]
    text = " ".join(each.text for each in tokens)
    q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 400, 4), dtype=np.float32)
    record = encoder_record(text=text, pair=None, model="m", tokens=tuple(tokens), q=q, k=2 * k, scale=1.0)
    render_page(record).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True, viewport=DESK)
    expect(page.locator(".door-note").first).to_contain_text(
        "Scroll in the text for the rest of its 400 words."
    )
    assert page.locator(".door > .door-sentence .door-arcs g").count() > 1
    assert page.locator(".door > .door-sentence .door-arcs g:visible").count() == 0
    # The darkest word is that which gets most.
    state = head_page.state(page)
    followed = state["pin"]["index"]
    place = [state["layer"], state["head"], followed]
    row = page.evaluate("([l, h, q]) => [...regard.weightsRow(l, h, q)]", place)
    alpha_of = "(e) => Number(/ \\/ ([\\d.]+)\\)/.exec(getComputedStyle(e).backgroundColor)?.[1] ?? 0)"
    alpha = page.locator(".door > .door-sentence .door-word").evaluate_all(f"all => all.map({alpha_of})")
    others = [i for i in range(400) if i != followed]
    assert max(others, key=lambda i: alpha[i]) == max(others, key=lambda i: row[i])
    # And of the word that is pointed at, the arc.
    page.locator(".door-word", has_text="word7").first.hover()
    assert page.locator(".door > .door-sentence .door-arcs g:visible").count() <= 1

    page.set_viewport_size(PHONE)
    expect(page.get_by_role("button", name="What if not?")).to_be_in_viewport()
    page.locator(".door-word", has_text="word399").click()  # scrolls there
    expect(page.locator(".door-said")).to_contain_text("word399")
    ends = page.locator(".door-arcs path").evaluate_all("all => all.map(e => e.getPointAtLength(0).y)")
    top = page.locator(".door-sentence").evaluate("e => e.scrollTop + e.clientHeight")
    assert all(top - 60 < end < top for end in ends)


def test_a_word_under_the_pointer_tells_its_share(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#view=door&pin=query-1&layer=1&head=2")
    page.locator(".door-word", has_text="flies").first.hover()
    weights = head_page.weights(head_page.record(), 1, 2)
    expect(page.locator(".door-tag")).to_have_text(f"{100 * weights[1, 2:4].sum():.0f}\u00a0%")
    expect(page.locator(".door-arcs g.on")).to_have_count(1)


def test_three_questions_unfold_in_place(open_page: OpenPage, bank: tuple[Path, regard.Trace]) -> None:
    page, trace = open_page(bank[0], start=True), bank[1]
    start = head_page.state(page)
    for name in ("Why?", "What if not?", "And the other heads?"):
        button = page.get_by_role("button", name=name)
        expect(button).to_have_attribute("aria-expanded", "false")
        button.press("Enter")
        expect(button).to_have_attribute("aria-expanded", "true")
    query, layer, head = start["pin"]["index"], start["layer"], start["head"]
    weights = trace.weights(layer, head, query=query)[0]
    page.get_by_role("button", name="Work it out").click()
    worked = page.locator(".answer-why .story-worked strong")
    share = 100 * float(weights[1:-1].max())
    assert abs(float(worked.inner_text().split()[0]) - share) < 0.06

    # What wrote the word that it looks at: the parts of trace.why, as shares of what raises its score.
    values = [*(each.value for each in trace.why(layer, head, query, 3).key_parts)]
    raised = sum(value for value in values if value > 0)
    shares = sorted(share for each in values if (share := each / raised) >= 0.1)
    np.testing.assert_allclose(shares, [1 / 10, 1 / 3], atol=0.03)
    said = "poem stands out here: a third because of the word itself; "
    said += "a tenth because of the feed-forward network of layer 0."
    expect(page.locator(".answer-why p").last).to_have_text(said)

    # What moves, beside how far two different words are apart; it begins with the word that gets most.
    pairs = [
        (a, b) for a, b in combinations(trace.encoding.words, 2) if a.text.isalpha() and b.text.isalpha()
    ]
    apart = np.mean(
        [
            1 - float(torch.cosine_similarity(trace.embedding(a.span), trace.embedding(b.span), dim=0))
            for a, b in pairs
            if a.text != b.text
        ]
    )
    read = [i for i, each in enumerate(trace.tokens) if str(each).isalpha() and i != 3]
    answer = page.locator(".answer-without")

    def expect_moves(without: str, moved: torch.Tensor) -> None:
        most = max(read, key=lambda i: moved[i])
        said = f"Write moves by {moved[query]:.2f}, and {trace.tokens[most]} most, by {moved[most]:.2f}."
        expect(answer).to_contain_text(f"{without}, {said} Two different words here are {apart:.2f} apart.")
        expect(answer).to_contain_text(f"a full one is {moved[most]:.2f}.")

    without = "If no other word may look at poem, in any of the 72 heads"
    expect_moves(without, 1 - torch.tensor(left_by(trace, unseen_word(trace, 3))["cosine"]))
    expect(page.locator(".hidden-word")).to_have_text("poem")
    depths = answer.locator(".door-word").evaluate_all(
        "all => all.map(e => e.style.getPropertyValue('--lost'))"
    )
    assert max(float(depth or 0) for depth in depths) == 1
    page.get_by_label("without this head").check()
    expect_moves("Without this head", 1 - trace.ablation(layer, head).cosine)
    for claim in ("meaning", "bring", "keeps"):
        expect(answer).not_to_contain_text(claim)

    # The heads that look at a word by far come first, the largest share before others; the rest is one line.
    cards = page.locator(".door-cards").first.locator(".door-card")
    every = [trace.weights(layer, each, query=query)[0] for each in range(12)]
    even = 1 / len(trace.tokens)

    def is_claimed(share: float) -> bool:
        return share / (1 - share) >= 6 * even / (1 - even)

    looking = [each for each in range(12) if any(is_claimed(float(every[each][i])) for i in [*read, 3])]
    shares = {each: max(float(every[each][i]) for i in [*read, 3] if i != query) for each in looking}
    of_words = sorted((each for each in looking if is_claimed(shares[each])), key=lambda each: -shares[each])
    found = [int(re.search(r"Head (\d+)", text)[1]) for text in cards.all_inner_texts()]
    assert found[: len(of_words)] == of_words
    assert sorted(found) == looking
    for at, each in enumerate(of_words):  # and this word is named, though [CLS] or itself may get more
        expect(cards.nth(at)).to_contain_text(f" {100 * shares[each]:.0f}\N{NO-BREAK SPACE}%")
    expect(page.locator(".answer-others p").first).to_contain_text(
        f"{len(looking)} give a word far more than an even share."
    )
    folded = page.locator(".answer-others details")
    rests = rf"{12 - len(looking)} other heads: at rest on \[CLS\] and .*, or spread over many words"
    expect(folded.locator("summary")).to_have_text(re.compile(rests))
    expect(folded.get_by_role("button").first).to_be_hidden()
    folded.locator("summary").click()
    expect(folded.locator(".door-card")).to_have_count(12 - len(looking))
    third = page.get_by_role("button", name="Head 3")
    third.press("Enter")
    assert head_page.state(page)["head"] == 3
    expect(third).to_be_focused()  # though it was drawn anew
    # What becomes of the words is known of the first head alone.
    expect(page.locator(".answer-without")).to_contain_text("regard look --live")
    assert axe(page).violations == []
    page.get_by_role("button", name="Why?").click()
    expect(page.locator(".answer-why")).to_be_hidden()


def test_what_if_not_of_a_decoder_is_about_the_next_word(open_page: OpenPage, tmp_path: Path) -> None:
    model, text = regard.load("smollm2"), "When Mary and John went to the store, John gave a drink to"
    model.trace(text).write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True)
    page.get_by_role("button", name="What if not?").click()
    state, answer = head_page.state(page), page.locator(".answer-without")

    def of(edited: regard.Model) -> str:
        with torch.no_grad():
            logits = edited(torch.tensor([model.tokenizer.encode(text).token_ids])).logits[0, -1].double()
        return f"{100 * float(logits.softmax(0)[model.tokenizer.id_of('ĠMary')]):.0f}"

    unseen = model.edited(unseen_word(model.trace(text), 3))
    said = f"the model still goes on with Mary, {of(model)}\N{NO-BREAK SPACE}% → "
    expect(answer).to_contain_text(f"in any of the 270 heads, {said}{of(unseen)}\N{NO-BREAK SPACE}%.")
    expect(answer).to_contain_text("In the text itself, John moves most, by 0.")
    page.get_by_label("without this head").check()
    without = model.edited(Zero("head", layer=state["layer"], head=state["head"]))
    expect(answer).to_contain_text(f"Without this head, {said}{of(without)}\N{NO-BREAK SPACE}%.")
    page.evaluate("location.hash = '#view=door&layer=24&head=0&pin=query-10'")
    expect(page.locator(".door-said")).to_contain_text("rests on the first word (When)")


def test_the_story_ends_with_the_word_that_is_followed(open_page: OpenPage, bank: tuple[Path, Any]) -> None:
    page = open_page(bank[0], "#view=story&step=8&pin=query-3", viewport=DESK)
    end = page.locator(".story-end")
    expect(end).to_contain_text(
        "poem begins as one row of the table. Here, and in “What does the word poem mean?”"
    )
    page.locator(".story-token", has_text="bank").click()
    expect(end).to_contain_text(
        "bank begins as one row of the table. Here, and in “She keeps her savings in a bank.”"
    )
    drawing, room = end.get_by_role("img").bounding_box(), page.locator(".story-stage").bounding_box()
    assert drawing
    assert room
    assert drawing["y"] + drawing["height"] < room["y"] + room["height"]  # nothing has to be scrolled for it


def test_addresses_lead_where_they_did(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True)
    assert _view(page) == "door"
    assert page.url == path.as_uri()
    expect(page.locator(".choose")).to_be_hidden()
    page.locator(".door-word").first.click()
    assert head_page.address(page).startswith("view=door&layer=")
    page.get_by_role("button", name="All views").click()
    assert not head_page.address(page).startswith("view=")  # as links to Heads always were
    expect(page.get_by_role("tab", selected=True)).to_have_text("Heads")
    page.go_back()
    expect(page.locator(".door")).to_be_visible()
    page.get_by_role("button", name="All views").click()
    page.get_by_role("link", name="regard").click()
    expect(page.locator(".door")).to_be_visible()
    for fragment, view in {
        "layer=1": "heads",
        "bare": "door",
        "view=model": "model",
        "theme=dark": "door",
    }.items():
        page.evaluate("address => { location.hash = address; }", fragment)
        expect(page.locator(".shown")).to_have_attribute(
            "aria-label", "One sentence" if view == "door" else view.capitalize()
        )
        assert _view(page) == view


def test_pages_of_several_texts_or_one_head_have_none(
    open_page: OpenPage, compared_pages: dict[str, Path], tmp_path: Path
) -> None:
    assert _view(open_page(compared_pages["difference"], start=True)) == "door"  # of both
    assert _view(open_page(compared_pages["movement"], start=True)) == "movement"
    render_page(head_page.record(), only=[("encoder", 1, 4)]).write(tmp_path / "only.html")
    assert _view(open_page(tmp_path / "only.html", start=True)) == "heads"
    regard.view(np.full((1, 1, 2, 2), 0.5), ["a", "b"]).write(tmp_path / "given.html")
    assert _view(open_page(tmp_path / "given.html", start=True)) == "heads"


def test_two_texts_stand_one_below_the_other(open_page: OpenPage, tmp_path: Path) -> None:
    render_page(head_page.record(pair=True)).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True)
    assert page.locator(".door > .door-sentence .door-line").all_inner_texts() == [
        "time flies",
        "fruit bananas",
    ]
