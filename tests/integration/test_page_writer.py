"""The front door of a decoder in a live page: what comes next, and from what it is read, as in Python."""

import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

import regard
from integration.axe import axe
from integration.live_models import live_model
from integration.served import Served
from regard.core.errors import InputError
from regard.tracing.edits import unseen
from regard.tracing.pages._live_page import live_model as packed
from unit.models.folders import write_chat

OPENING = "a man on the river bank in"
OTHER = "the man on a money bank, fishing on"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    return live_model(tmp_path_factory.mktemp("writer") / "llama", "llama")


@pytest.fixture(scope="module")
def rounded(model: regard.Model) -> regard.Model:
    """The model with the weights that the page has."""
    return regard.Model(packed(model.loaded).rounded)


@pytest.fixture(scope="module")
def path(model: regard.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "llama.html"
    model.live_page(OPENING).write(path)
    return path


@pytest.fixture
def page(path: Path, open_page: Callable[..., BrowserPage]) -> BrowserPage:
    found = open_page(path, start=True, viewport={"width": 1280, "height": 800})
    _settle(found)
    return found


def _settle(page: BrowserPage) -> None:
    expect(page.locator(".writer-bars > li")).to_have_count(5)
    _wait(page)


def _type(page: BrowserPage, text: str) -> None:
    page.get_by_label("Type a sentence").fill(text)
    _settle(page)


def _logits(model: regard.Model, text: str) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([model.tokenizer.encode(text).token_ids])).logits
    assert logits is not None
    return logits[0, -1].double()


def _styles(page: BrowserPage, name: str, of: str = ".writer > .writer-bars .writer-bar") -> list[float]:
    found: list[float] = page.locator(of).evaluate_all(
        "(all, name) => all.map(each => Number(each.style.getPropertyValue(name)))", name
    )
    return found


def test_what_comes_next_is_pythons(page: BrowserPage, rounded: regard.Model) -> None:
    for text in (OPENING, OTHER, "In 1969, a"):
        _type(page, text)
        _expect_next(page, rounded, text)


def _expect_next(page: BrowserPage, rounded: regard.Model, text: str) -> None:
    logits = _logits(rounded, text)
    likeliest = logits.topk(5).indices
    np.testing.assert_allclose(_styles(page, "--share"), logits.softmax(0)[likeliest], atol=1e-4)
    np.testing.assert_allclose(_styles(page, "--tempered"), (logits / 0.7).softmax(0)[likeliest], atol=1e-4)

    # Of each word but the first token and the last, what all heads take from it.
    trace = rounded.trace(text)
    taken = sum(trace.norm_weighted(layer)[:, -1].sum(dim=0) for layer in trace.layers_of("decoder"))
    assert isinstance(taken, torch.Tensor)
    taken[[0, -1]] = 0
    words = [
        [at for at, token in enumerate(trace.stack(None).encoding.tokens) if token.word == word]
        for word in range(len(trace.stack(None).encoding.words))
    ]
    total = sum(float(taken[of].sum()) for of in words)  # white space is no word
    sums = {str(of[0]): float(taken[of].sum()) / total for of in words if of}
    drawn = page.locator(".door > .door-sentence g").evaluate_all(
        "all => all.map(each => [each.dataset.to, Number(each.style.getPropertyValue('--share'))])"
    )
    assert dict(drawn) == pytest.approx({to: share for to, share in sums.items() if share >= 0.01}, abs=2e-3)
    rests = torch.stack([trace.weights(layer)[:, -1, 0] for layer in trace.layers_of("decoder")]).mean()
    said = f"{round(100 * float(rests))}\u00a0% of all attention rests on the first word, as in most models"
    if rests < 1 / len(trace.tokens):  # less than an even share: nothing rests there
        said = "The first word, on which most models rest, is left out here."
    expect(page.locator(".door-note").first).to_contain_text(said)
    expect(page.locator(".door-said")).to_contain_text(re.compile(r"comes next, with .*: it is read"))


# One of each tokenizer's kind; what is inside of qwen2 and gemma3_text is held in tests/unit/tracing/pages.
@pytest.mark.parametrize("family", ["mistral", "qwen3", "gemma2"])
def test_other_families_write_as_python_does(
    family: str, open_page: Callable[..., BrowserPage], tmp_path: Path
) -> None:
    model = live_model(tmp_path / "model", family)
    model.live_page(OPENING).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True)
    _settle(page)
    rounded = regard.Model(packed(model.loaded).rounded)
    # Python's own numbers at first; what follows is the page's, word by word and all views.
    for text in (OTHER, "  don'T e\u0301té in 1969, a\nriver 鱼"):
        _type(page, text)
        logits = _logits(rounded, text)
        likeliest = logits.topk(5)
        np.testing.assert_allclose(
            _styles(page, "--share"), logits.softmax(0)[likeliest.indices], atol=1e-4, err_msg=text
        )
        expect(page.locator(".live-status")).to_contain_text(" ms.")
        trace = rounded.trace(text)
        page.wait_for_function(
            "count => regard.source.tokens('decoder', 'query').length === count", arg=len(trace.tokens)
        )
        for layer in trace.layers_of("decoder"):
            rows = page.evaluate(
                "([layer, count]) => Array.from({ length: count }, (_, query) =>"
                " [...regard.weightsRow(layer, 2, query)])",
                [layer, len(trace.tokens)],
            )
            np.testing.assert_allclose(rows, trace.weights(layer, 2), atol=1e-4)
    # And step by step.
    found = page.evaluate("regard.source.steps('decoder', 1, 2, 3)")
    np.testing.assert_allclose(found["weights"], trace.weights(1, 2, query=3)[0], atol=1e-4)
    assert (found["capped"] is not None) == (family == "gemma2")
    if family == "mistral":  # a special token in the text is no word, though it has letters
        _type(page, "a man <s> on the bank <s>")
        page.get_by_role("button", name="Why?").click()
        names = page.locator(".answer-why .writer-bar bdi")
        expect(names).not_to_have_count(0)
        assert set(names.all_inner_texts()) == {"a", "man", "on", "the", "bank"}
        expect(page.locator(".answer-why")).to_contain_text("the last word, “␣<s>”")


def test_a_token_that_is_no_word_is_explained(page: BrowserPage) -> None:
    names, note = page.locator(".writer > .writer-bars bdi"), page.locator(".door-note").first
    for text in ("a man", "fishing", "7"):
        _type(page, text)
        part = next((each for each in names.all_inner_texts() if each.startswith("<0x")), None)
        if part:
            expect(note).to_contain_text(f"{part.strip()} is a part of a letter that has no token of its own")
        else:
            expect(note).not_to_contain_text("part of a letter")
    # A letter goes on with a word; in a script without blanks that is not said.
    _type(page, "a b")
    assert any(each.startswith("…") for each in names.all_inner_texts())
    _type(page, "漁夫")
    assert not any(each.startswith("…") and each[1] > "\u2e00" for each in names.all_inner_texts())


def test_an_edit_says_what_was_expected_before_it(page: BrowserPage, model: regard.Model) -> None:
    _type(page, OPENING)
    expect(page.locator(".live-status")).to_contain_text(" ms.")
    page.evaluate("location.hash = '#layer=0&head=1'")
    chips = page.locator(".live-expected .live-chip")
    expect(chips).to_have_count(10)
    before = chips.first.inner_text()
    assert "→" not in before
    page.get_by_role("button", name="Switch off head 0.1").click()
    _wait(page)
    rounded = regard.Model(packed(model.loaded).rounded)
    was = _logits(rounded, OPENING).softmax(0).topk(10)
    with torch.no_grad():
        output = rounded.edited(regard.Zero("head", layer=0, head=1))(
            torch.tensor([rounded.trace(OPENING).token_ids])
        )
    assert output.logits is not None
    now = output.logits[0, -1].double().softmax(0).topk(10)
    known = dict(zip(was.indices.tolist(), was.values.tolist(), strict=True))
    for place, (id, share) in enumerate(zip(now.indices.tolist(), now.values.tolist(), strict=True)):
        pair = [f"{100 * each:.{int(each < 0.1)}f} %" for each in (known.get(id, share), share)]
        expect(chips.nth(place)).to_contain_text(" → ".join(dict.fromkeys(pair)))
    assert any("→" in each for each in chips.all_inner_texts())


def _wait(page: BrowserPage) -> None:
    expect(page.locator(".live")).not_to_have_class(re.compile("working"))


def test_a_word_is_taken_by_a_click_and_by_enter(page: BrowserPage, rounded: regard.Model) -> None:
    field, text = page.get_by_label("Type a sentence"), OPENING
    for turn in range(4):
        bars = page.locator(".writer > .writer-bars button")
        place = 0 if turn % 2 else next(at for at in range(5) if bars.nth(at).is_enabled())
        token = int(_logits(rounded, text).topk(5).indices[place])
        was = text
        if turn % 2 and not bars.first.is_enabled():
            field.press("Enter")
            expect(field).to_have_value(was)  # a part of a character cannot be typed
            continue
        if turn % 2:
            field.press("Enter")
        else:
            bars.nth(place).click()
        text = was + rounded.tokenizer.decode([token])
        expect(field).to_have_value(text)
        _settle(page)


def _greedy(model: regard.Model, text: str) -> str:
    """What comes next: a token, or as many as a character has; "" if there is none."""
    ids: list[int] = []
    while len(ids) < 8:
        with torch.no_grad():
            logits = model(torch.tensor([[*model.tokenizer.encode(text).token_ids, *ids]])).logits
        assert logits is not None
        ids.append(int(logits[0, -1].argmax()))
        if "\ufffd" not in (found := model.tokenizer.decode(ids)):
            return found
    return ""


def test_it_goes_on_as_python_does(page: BrowserPage, rounded: regard.Model) -> None:
    # Of random numbers few say more than parts of characters.
    texts = (f"{letter}{other}" for letter in "abcdefghijklmnopqrstuvwxyz" for other in " .in")
    opening = next(
        text for text in texts if _greedy(rounded, text) and _greedy(rounded, text + _greedy(rounded, text))
    )
    field, slider = page.get_by_label("Type a sentence"), page.get_by_role("slider", name="Temperature")
    note = page.locator(".writer > .door-note")
    _type(page, opening)
    slider.fill("0")
    expect(note).to_contain_text("it always writes the likeliest word")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)  # it has come to an end
    _settle(page)
    written, text = field.input_value(), opening
    while len(text) < len(written):
        text += _greedy(rounded, text)
    assert text == written
    assert len(written) > len(opening) + 1
    expect(note).to_contain_text(
        "What comes next is no character" if not _greedy(rounded, text) else "reads at most"
    )
    expect(note).to_contain_text("each was the likeliest")
    slider.fill("15")
    expect(note).to_contain_text("At temperature 1.5 unlikely words get their chance")


def test_the_questions_are_of_the_next_word(page: BrowserPage, rounded: regard.Model) -> None:
    for question in ("Why?", "What if not?", "And the other heads?"):
        page.get_by_role("button", name=question).click()
    expect(page.locator(".answer-why .writer-bar")).not_to_have_count(0)
    expect(page.locator(".answer-others .door-card")).not_to_have_count(0)
    page.locator(".answer-without select").select_option(label="river")
    trace = rounded.trace(OPENING)
    tokens = [at for at, token in enumerate(trace.stack(None).encoding.tokens) if token.word == 4]
    assert trace.stack(None).encoding.words[4].text == "river"
    with torch.no_grad():
        output = rounded.edited(unseen(tokens))(torch.tensor([trace.token_ids])).logits
    assert output is not None
    before, after = _logits(rounded, OPENING).topk(5).indices, output[0, -1].double().softmax(0)
    known = after.topk(10).indices  # of others no more is known than that they have less
    wanted = [float(after[token]) * bool(token in known) for token in before]
    _poll(lambda: _styles(page, "--without", ".writer-beside .writer-bar")[:5], wanted)
    shares = page.locator(".writer-beside .writer-share").all_inner_texts()
    assert [text for text in shares if not re.fullmatch(r"(≤ )?[\d.]+ % → (≤ )?[\d.]+ %", text)] == []
    desk = page.viewport_size
    assert desk
    page.set_viewport_size({"width": 390, "height": 844})
    room = page.locator(".writer-beside .writer-room").first.bounding_box()
    assert room
    assert room["width"] > 40
    page.set_viewport_size(desk)

    # A word of the text is followed in one head, and back.
    page.get_by_role("button", name="What if not?").click()
    page.evaluate("scrollTo(0, 0)")
    word = page.locator(".door > .door-sentence .door-word", has_text="bank").bounding_box()
    assert word
    page.mouse.click(word["x"] + 20, word["y"] + 20)
    expect(page.locator(".door-said")).to_contain_text(re.compile("In one of 12 heads, bank"))
    page.get_by_role("button", name="Back to writing").click()
    expect(page.locator(".door-said")).to_contain_text("comes next")
    assert axe(page).violations == []


def _poll(found: Callable[[], list[float]], wanted: list[float]) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if found() and np.allclose(found(), wanted, atol=1e-3):
            return
        time.sleep(0.1)
    assert found() == pytest.approx(wanted, abs=1e-3)


@pytest.fixture
def served(model: regard.Model, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a page whose weights are beside it, and what is asked of its server."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, *_: Any) -> None:
            asked.append(self.path)

        def log_message(self, *_: Any) -> None:
            pass

    model.live_page(OPENING, beside="model.bin").write(tmp_path / "page.html")
    server = ThreadingHTTPServer(("localhost", 0), partial(Handler, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}/page.html", asked
    server.shutdown()
    server.server_close()


def test_weights_beside_the_page_come_when_they_are_asked_for_and_stay(
    served: tuple[str, list[str]], browser: Browser, rounded: regard.Model, tmp_path: Path
) -> None:
    address, asked = served
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    expect(page.locator(".door-said")).to_contain_text("comes next")  # Python's word
    assert not any("model.bin" in each for each in asked)
    page.get_by_role("button", name="Load the model").click()
    _settle(page)
    np.testing.assert_allclose(
        _styles(page, "--share"), _logits(rounded, OPENING).softmax(0).topk(5).values, atol=1e-4
    )
    assert len([each for each in asked if "model.bin" in each]) == 1
    again = context.new_page()
    again.goto(address)
    _settle(again)  # unasked, from the browser's cache
    assert len([each for each in asked if "model.bin" in each]) == 1
    context.close()

    # Cut short, and from a folder: it says so, and can be tried again.
    (tmp_path / "model.bin").write_bytes((tmp_path / "model.bin").read_bytes()[:-1])
    context = browser.new_context()
    page = context.new_page()
    for where, said in (
        (address, "cut short, at"),
        ((tmp_path / "page.html").as_uri(), "from a server alone"),
    ):
        page.goto(where)
        page.get_by_role("button", name="Load the model").click()
        expect(page.locator(".live-load")).to_contain_text(said)
        expect(page.get_by_role("button", name="Load the model")).to_be_visible()
    context.close()


def test_a_file_beside_has_a_plain_name(model: regard.Model) -> None:
    for name in ("../model.bin", "a/b", "", ".hidden", "a b"):
        with pytest.raises(InputError, match="beside must be a file name"):
            model.live_page(OPENING, beside=name)


CHAT = "{% for each in messages %}<{{ each.role }}>{{ each.content }}|{% endfor %}<assistant>"
# A worker that is slower than the pause after which all of a text is read; or quicker, where `late` says so.
LATE = """window.late = 600;
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
    setTimeout(() => post.call(this, message, ...rest), message.open ? 0 : window.late);
};"""


def test_a_slow_model_stops_at_once_and_is_asked_again_after_an_answer(
    browser: Browser, tmp_path: Path
) -> None:
    """The timer that reads all of the text took the place of the question for its next words."""
    live_model(tmp_path / "model", "llama")
    settings = {"chat_template": CHAT}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = regard.load(str(tmp_path / "model"))
    model.live_page(OPENING).write(tmp_path / "page.html")
    context = browser.new_context()
    context.add_init_script(LATE)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    _settle(page)
    field = page.get_by_label("Type a sentence")
    page.get_by_role("slider", name="Temperature").fill("0")
    # A word that is on its way when somebody stops is not written any more.
    rounded = regard.Model(packed(model.loaded).rounded)
    text = next(letter for letter in "abcdefghijklmnopqrstuvwxyz" if _greedy(rounded, letter))
    _type(page, text)
    page.evaluate("window.late = 200")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Stop").click()
    _settle(page)
    expect(field).to_have_value(text)
    page.evaluate("window.late = 600")
    # So long that the model has few tokens left to read.
    _type(page, f"{OTHER} a river")
    page.get_by_role("button", name="Ask it as a chat").click()
    # The model is at a loss, or at the end of what it reads: the next question follows.
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible(timeout=60_000)
    assert field.input_value().endswith("|<user>")
    context.close()


def test_a_served_page_chats_too(browser: Browser, tmp_path: Path) -> None:
    model, question = regard.load(write_chat(tmp_path / "chat")), "Is a river wet?"
    messages = [{"role": "user", "content": question}]
    server, page = Served(tmp_path / "chat"), browser.new_page()
    try:
        page.goto(f"http://localhost:{server.port}/")
        _settle(page)
        field = page.get_by_label("Type a sentence")
        field.fill(question)
        _settle(page)
        page.get_by_role("button", name="Ask it as a chat").click()
        begins = str(model.tokenizer.chat(messages))
        page.wait_for_function(
            "n => document.querySelector('textarea').value.length > n + 8", arg=len(begins)
        )
        page.get_by_role("button", name="Stop").click()
        _settle(page)
        written = field.input_value()
        # Where nobody chose a temperature, an answer takes the likeliest.
        assert (
            written.removeprefix(begins)
            == model.chat(messages, max_length=99).text[: len(written) - len(begins)]
        )
        page.close()
    finally:
        server.close()


def test_the_default_decoder_writes_and_chats(open_page: Callable[..., BrowserPage], tmp_path: Path) -> None:
    model = regard.load("smollm2")
    model.live_page("The capital of France is").write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True)
    _settle(page)
    for text in ("The capital of France is", "In 1969, the first man", "Рыбак сидит на берегу"):
        _type(page, text)
        best = _logits(model, text).softmax(0).topk(5)
        np.testing.assert_allclose(_styles(page, "--share"), best.values, atol=1e-4)
    expect(page.locator(".exact summary")).to_contain_text("4-bit weights")
    expect(page.locator(".door-note").first).to_contain_text(
        "of all attention rests on the first word, as in"
    )

    # What only repeats itself ends.
    page.get_by_role("slider", name="Temperature").fill("0")
    _type(page, " ".join(["one two three four five six"] * 6))
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".writer > .door-note")).to_contain_text("it only repeats itself")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)

    # A chat is one text, laid out as its template does, up to the end that the model gives it.
    question = "What is the capital of France?"
    _type(page, question)
    page.get_by_role("button", name="Ask it as a chat").click()
    chat = model.tokenizer.chat([{"role": "user", "content": question}])
    answer = model.generate(chat, max_length=60).text
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible(timeout=60_000)
    expect(page.get_by_label("Type a sentence")).to_be_focused()
    text = page.get_by_label("Type a sentence").input_value()
    assert text.startswith(f"{chat}{answer}<|im_end|>")
    assert text.endswith("user\n")
    page.get_by_label("Type a sentence").press_sequentially("Thanks")
    _settle(page)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Type a sentence")).to_have_value(
        re.compile("assistant\\n.*assistant\\n.+", re.DOTALL)
    )
