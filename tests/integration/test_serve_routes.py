"""A server's page in a browser, and its completions by OpenAI's client, on one process of tiny models."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Route, expect
from playwright.sync_api import Page as BrowserPage
from pydantic import SecretStr

import regard
from integration.axe import axe
from integration.forked import wait_for
from integration.live_models import live_model
from integration.served import Served, command, posted
from regard.concordance import Concordance, Reading, build_index
from regard.decoding import Rules
from regard.tracing import Trace
from regard.tracing.comparison import words_alike
from tolerances import FP32_OF_LARGEST, PAGE, assert_close_to_largest
from unit.concordance.conftest import write_rows
from unit.models.folders import write_chat

KEY = "a key of the tests"
PROMPT = "the man in"
TEXT = "the man on a money bank."


class Server(NamedTuple):
    url: str
    models: dict[str, regard.Model]
    index: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    models = {family: live_model(folder / family, family) for family in ("bert", "gpt2")}
    models["chat"] = regard.load(write_chat(folder / "chat"))
    index = folder / "corpus"
    build_index([write_rows(folder / "rows.jsonl")], index, Reading(date="date", meta=("genre",)))
    (folder / "keys").write_text(f"{KEY}\n", "utf-8")
    words = ["--drain-delay", "0", "--api-key-file", folder / "keys", "--index", index]
    for family in models:
        words += ["-m", f"{family}={folder / family}"]
    with command(*words) as (_, url):
        yield Server(url, models, index)


@pytest.fixture
def open_served(browser: Browser, server: Server) -> Iterator[BrowserPage]:
    """A page of the server, in a window of its own; what goes wrong in it fails the test."""
    troubles: list[str] = []
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.on("request", lambda request: request.url.startswith(server.url) or troubles.append(request.url))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    # Chromium tells of each answer that is an error, which the page handles.
    page.on("console", lambda said: "Failed to load" in said.text or troubles.append(said.text))
    yield page
    context.close()
    assert troubles == []


def test_the_openai_client_reads_what_is_written(server: Server) -> None:
    import openai  # here: it takes a second, in every process that collects the tests

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        wanted = server.models["gpt2"].generate(PROMPT, max_length=12)
        how: dict[str, Any] = {"model": "gpt2", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
        answer = client.completions.create(**how, logprobs=1)
        assert answer.choices[0].text == wanted.text
        assert answer.choices[0].logprobs.token_logprobs == pytest.approx(
            list(wanted.log_probabilities), abs=1e-5
        )
        assert answer.usage.completion_tokens == 12
        stream = client.completions.create(**how, stream=True, stream_options={"include_usage": True})
        *chunks, last = list(stream)
        assert "".join(chunk.choices[0].text for chunk in chunks) == wanted.text
        assert chunks[-1].choices[0].finish_reason == "length"
        assert (last.choices, last.usage) == ([], answer.usage)
        with pytest.raises(openai.BadRequestError, match="must have a decoder") as caught:
            client.completions.create(model="bert", prompt="a", stream=True)
        assert caught.value.param == "model"


LANGCHAIN: Any = {"api_key": SecretStr(KEY), "max_tokens": 12, "temperature": 0}


def test_langchain_reads_it_too(server: Server) -> None:
    from langchain_openai import OpenAI

    wanted = server.models["gpt2"].generate(PROMPT, max_length=12).text
    with httpx.Client() as connection:
        writer = OpenAI(base_url=f"{server.url}/v1", model="gpt2", http_client=connection, **LANGCHAIN)
        assert writer.invoke(PROMPT) == wanted
        assert "".join(writer.stream(PROMPT)) == wanted


def test_both_get_vectors(server: Server) -> None:
    import openai
    from langchain_openai import OpenAIEmbeddings

    texts = [TEXT, "the man", "a river bank"]
    expected = np.asarray(server.models["bert"].embed(texts))
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        assert [each.id for each in client.models.list()] == list(server.models)
        assert client.models.retrieve("bert").id == "bert"
        for how in ({}, {"encoding_format": "float"}):
            answer = client.embeddings.create(model="bert", input=texts, **how)  # type: ignore[arg-type]
            vectors = [each.embedding for each in answer.data]
            assert_close_to_largest(vectors, expected, FP32_OF_LARGEST)
        with pytest.raises(openai.BadRequestError, match="must not be empty") as caught:
            client.embeddings.create(model="bert", input=["a", ""])
        assert caught.value.param == "input"
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="other", input="a")
    with httpx.Client() as connection:
        embeddings = OpenAIEmbeddings(
            base_url=f"{server.url}/v1",
            api_key=SecretStr(KEY),
            model="bert",
            check_embedding_ctx_length=False,
            http_client=connection,
        )
        assert_close_to_largest(embeddings.embed_documents(texts), expected, FP32_OF_LARGEST)
        assert_close_to_largest(embeddings.embed_query(texts[0]), expected[0], FP32_OF_LARGEST)


MESSAGES: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


def test_the_openai_client_chats(server: Server) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        wanted = server.models["chat"].chat(MESSAGES, max_length=12)
        how: dict[str, Any] = {"model": "chat", "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
        answer = client.chat.completions.create(**how, logprobs=True, top_logprobs=2)
        (choice,) = answer.choices
        assert (choice.message.role, choice.message.content) == ("assistant", wanted.text)
        assert [each.logprob for each in choice.logprobs.content] == pytest.approx(
            list(wanted.log_probabilities), abs=1e-5
        )
        assert answer.usage.prompt_tokens == len(wanted.prompt_ids)
        stream = client.chat.completions.create(**how, stream=True, stream_options={"include_usage": True})
        *chunks, last = list(stream)
        assert "".join(chunk.choices[0].delta.content for chunk in chunks) == wanted.text
        assert (last.choices, last.usage) == ([], answer.usage)
        raw = client.chat.completions.with_raw_response.create(**how)
        page = raw.headers["X-Regard-Page"]
        assert page == raw.parse().regard["page"]  # type: ignore[attr-defined]
        assert httpx.get(server.url + page).status_code == 200  # without the key: the address is one
        # The message that came is one that can be sent.
        turns = [*MESSAGES, choice.message.model_dump(), MESSAGES[1]]
        again = client.chat.completions.create(**how | {"messages": turns})
        assert (
            again.choices[0].message.content
            == server.models["chat"].chat([*wanted.messages, MESSAGES[1]], max_length=12).text
        )
        with pytest.raises(openai.BadRequestError, match="must have a chat template") as caught:
            client.chat.completions.create(**how | {"model": "gpt2"}, stream=True)
        assert caught.value.param == "model"


def test_langchain_chats_too(server: Server) -> None:
    from langchain_openai import ChatOpenAI

    wanted = server.models["chat"].chat(MESSAGES, max_length=12)
    with httpx.Client() as connection:
        writer = ChatOpenAI(base_url=f"{server.url}/v1", model="chat", http_client=connection, **LANGCHAIN)
        found = writer.invoke([("system", "Be brief."), ("human", "Why?")])
        assert found.content == wanted.text
        assert found.usage_metadata["output_tokens"] == len(wanted.token_ids)
        assert "".join(str(each.content) for each in writer.stream(MESSAGES)) == wanted.text


def test_an_answers_page_is_drawn(open_served: BrowserPage, server: Server) -> None:
    asked = {"model": "chat", "messages": MESSAGES, "max_tokens": 5, "temperature": 0}
    key = {"Authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=asked, headers=key)
    open_served.goto(server.url + answer.json()["regard"]["page"])
    expect(open_served.locator(".word:visible").first).to_be_visible()
    wanted = server.models["chat"].chat(MESSAGES, max_length=5)
    ids = [*wanted.prompt_ids, *wanted.token_ids]
    _check(open_served, server.models["chat"].trace(token_ids=ids), heads=6, within=PAGE)


def _settle(page: BrowserPage) -> None:
    expect(page.locator(".live")).not_to_have_class(re.compile("working"))


def _violations(page: BrowserPage) -> list[tuple[str, Any]]:
    found = axe(page).violations
    return [(each["id"], each["nodes"][0]["target"]) for each in found]


def _check(page: BrowserPage, trace: Trace, heads: int = 3, within: float = 2e-6) -> None:
    """Tokens and all weights against Python's."""
    told = page.evaluate("window.regard.source.tokens(window.regard.source.kinds[0], 'query')")
    assert [token["text"] for token in told] == trace.tokens
    for layer in range(2):
        for head in range(heads):
            rows = page.evaluate(
                "([layer, head, count]) => Array.from({ length: count }, (_, query) =>"
                " [...window.regard.weightsRow(layer, head, query)])",
                [layer, head, len(trace.tokens)],
            )
            np.testing.assert_allclose(rows, trace.weights(layer, head), atol=within)


def test_the_page_compares_two_sentences(server: Server, open_served: BrowserPage) -> None:
    page, model = open_served, server.models["bert"]
    texts = [TEXT, "the man on a river bank."]
    said = urlencode(dict(zip(("text", "against"), texts, strict=True)) | {"asks": "moves"})
    page.goto(f"{server.url}/?model=bert#view=door&{said}")
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.locator(".door > .door-sentence")).to_have_text(texts)
    expect(page.locator(".door-said")).to_contain_text("the arc")
    one, other = traces = model.trace(texts)
    state = page.evaluate("window.regard.state()")
    for trace, arcs in zip(traces, page.locator(".door > .door-sentence").all(), strict=True):
        row = trace.weights(state["layer"], state["head"], query=state["pin"]["index"])[0]
        found = arcs.locator("g").evaluate_all(
            "all => all.map(e => [Number(e.dataset.to), Number(e.style.getPropertyValue('--share'))])"
        )
        assert len(found) > 2
        assert all(share == pytest.approx(float(row[to]), abs=1e-3) for to, share in found)
    names = {word.text: word.span for word in one.encoding.words if word.text not in ("money", ".")}
    places = {name: next(each.span for each in other.encoding.words if each.text == name) for name in names}
    moves = {
        name: 1 - float(torch.cosine_similarity(one.embedding(span), other.embedding(places[name]), dim=0))
        for name, span in names.items()
    }
    most = max(moves, key=lambda name: moves[name])
    answer = page.locator(".answer-moves")
    expect(answer).to_contain_text(
        f"bank moves by {moves['bank']:.2f}, and {most} most, by {moves[most]:.2f}"
    )
    apart = 1 - words_alike(traces)
    expect(answer).to_contain_text(f"Two different words here are {apart:.2f} apart.")


def test_the_page_runs_the_servers_model(server: Server, open_served: BrowserPage) -> None:
    page, model = open_served, server.models["bert"]
    page.goto(f"{server.url}/#view=heads&layer=0&head=0")
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.locator(".live-status")).to_contain_text(" ms.")
    expect(page.get_by_label("API key")).to_be_hidden()
    page.get_by_label("Type a sentence").fill(TEXT)
    _settle(page)
    _check(page, model.trace(TEXT))
    assert page.evaluate("window.regard.facts.difference") < 1e-6
    assert page.evaluate("window.regard.facts.model") == "bert"

    page.get_by_role("button", name="Switch off head 0.0").click()
    _settle(page)
    off = model.edited(regard.Zero("head", layer=0, head=0))
    _check(page, off.trace(TEXT))
    one, other = (each.trace(TEXT) for each in (model, off))
    kept = {
        word: float(torch.cosine_similarity(one.embedding(word), other.embedding(word), dim=0))
        for word in ("the", "man", "on", "money", "bank", "a")
    }
    most = min(kept, key=lambda word: kept[word])
    expect(page.locator(".live-words").first).to_contain_text(f"{most} {kept[most]:.3f}")

    # A weight is dragged; what follows from it is computed anew.
    page.locator('.tokens.queries [data-token="2"]').click()
    handle = page.get_by_role("slider", name="Drag the weight of bank", exact=True)  # of the pinned row
    place = [int(part) for part in str(handle.get_attribute("data-place")).split(".")]
    handle.focus()
    handle.press("End")
    _settle(page)
    row = page.evaluate("([l, h, q]) => [...window.regard.weightsRow(l, h, q)]", place[:3])
    assert row[place[3]] == pytest.approx(1, abs=1e-5)
    page.get_by_label("Type a sentence").fill("")
    expect(page.locator(".live-status")).to_contain_text("text is empty")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    assert _violations(page) == []

    # What was typed is there again, for the other model.
    page.get_by_label("Type a sentence").fill("the man")
    _settle(page)
    page.get_by_label("Model").select_option("gpt2")
    page.wait_for_url("**/?model=gpt2*")
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_label("Type a sentence")).to_have_value("the man")
    _settle(page)
    _check(page, server.models["gpt2"].trace("the man"))


def test_a_served_decoder_writes(server: Server, open_served: BrowserPage) -> None:
    page, model = open_served, server.models["gpt2"]
    page.goto(f"{server.url}/?model=gpt2#text=the+man")
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.locator(".writer > .writer-bars > li")).to_have_count(5)
    _settle(page)
    with torch.no_grad():
        logits = model(torch.tensor([model.tokenizer.encode("the man").token_ids])).logits
    assert logits is not None
    written = model.tokenizer.decode(
        [*model.tokenizer.encode("the man").token_ids, int(logits[0, -1].argmax())]
    )
    page.get_by_role("slider", name="Temperature").fill("0")
    page.get_by_label("Type a sentence").press("Enter")
    expect(page.get_by_label("Type a sentence")).to_have_value(written)
    _settle(page)
    _check(page, model.trace(written))
    assert _violations(page) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_link_to_a_served_sentence_opens_it_and_no_bar_lies_over_it(
    server: Server, open_served: BrowserPage, width: int
) -> None:
    page, model = open_served, server.models["bert"]
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{server.url}/#text={TEXT.replace(' ', '+')}&off=0.1")
    expect(page.get_by_label("API key")).to_be_visible()
    expect(page.get_by_label("Type a sentence")).to_have_value(TEXT)
    expect(page.locator(".place")).to_be_hidden()  # the server's own sentence
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.locator(".door .live-edits")).to_contain_text("head 0.1 off")
    _check(page, model.edited(regard.Zero("head", layer=0, head=1)).trace(TEXT))
    for name in ("Why?", "What if not?", "And the other heads?"):
        page.get_by_role("button", name=name).click()
    expect(page.locator(".header").get_by_role("link", name="Concordance")).to_be_visible()
    expect(page.locator(".header").get_by_label("Model")).to_be_visible()
    fixed = "all => all.filter(e => getComputedStyle(e).position === 'fixed' && e.clientHeight).length"
    assert page.locator("#regard *").evaluate_all(fixed) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert _violations(page) == []


def test_the_concordance_by_hand(server: Server, open_served: BrowserPage) -> None:
    page = open_served
    page.goto(f"{server.url}/usages")
    concordance = Concordance(server.index, server.models["bert"])
    expect(page.get_by_role("heading")).to_have_text(
        f"Concordance of {server.index.name}: {concordance.size}"
    )
    asked, lines = page.get_by_label("A word, or a sentence"), page.locator(".usages-line")
    asked.fill("a man on the *bank* of a river")
    page.get_by_text("In some texts only").click()
    page.get_by_label("where").fill("genre=news")
    # The example has asked for the key already. What is typed stays when the search asks for it too.
    key = page.get_by_label("API key")
    expect(key).to_be_visible()

    def late(route: Route) -> None:
        key.fill(KEY)
        route.continue_()

    page.route("**/v1/usages/search", late, times=1)
    with page.expect_response("**/v1/usages/search"):
        page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("status")).to_contain_text("uses, the likest in meaning first")
    found = concordance.find(sentence="a man on the *bank* of a river", where=["genre=news"])
    assert lines.all_text_contents() == [line.place.body for line in found]
    assert _violations(page) == []
    last = found.lines[-1]
    page.get_by_role("button", name="like this").last.click()
    expect(lines.first).to_have_text(last.place.body)
    page.reload()  # the address keeps what is asked
    expect(page.get_by_label("where")).to_have_value("genre=news")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(lines.first).to_be_visible()
    page.get_by_label("where").fill("")
    # A lone word is a word.
    asked.fill("bank")
    asked.press("Enter")
    words = [line.place.body for line in concordance.find("bank", k=40)]
    expect(lines).to_have_text(words)
    # Of a sentence one chooses the word, and it is marked; or all of it stands for itself.
    asked.fill("on the bank")
    asked.press("Enter")
    page.locator(".usages-choice").get_by_role("button", name="bank").click()
    expect(asked).to_have_value("on the *bank*")
    expect(page.get_by_role("status")).to_contain_text("the likest in meaning first")
    asked.fill("on the bank")
    asked.press("Enter")
    page.get_by_role("button", name="these words, as they stand").click()
    expect(lines).to_have_text([line.place.body for line in concordance.find("on the bank", k=40)])
    # Sorted, and then more of them than the first 40; beside each what is known of it.
    asked.fill("*")
    asked.press("Enter")
    expect(lines).to_have_count(40)
    page.get_by_role("button", name="by the words after").click()
    found = concordance.find("*", sort=["R1", "R2", "R3"], k=200)
    expect(lines).to_have_text([line.place.body for line in found.first(40)])
    page.get_by_role("button", name="More lines").click()
    expect(lines).to_have_text([line.place.body for line in found])
    known = page.locator(".usages-lines .note").first
    expect(known).to_contain_text(f" · genre {json.loads(found[0].place.meta)['genre']}")
    expect(page.get_by_text("Fields: genre, ")).to_be_visible()
    expect(page.get_by_label("where")).to_have_attribute("placeholder", "genre=…")
    assert _violations(page) == []


def test_the_concordance_opens_on_an_example(server: Server, open_served: BrowserPage) -> None:
    """The first that the corpus answers well; how much is left open is said once, with its numbers."""
    page = open_served
    asked: list[str] = []

    def line(answer: str, probability: float) -> dict[str, Any]:
        place = {"use": 1, "left": "the", "node": "letter", "right": "came", "source": "a", "place": "line 1"}
        return place | {"similarity": 0.5, "probability": probability, "answer": answer}

    def answer(route: Route) -> None:
        sentence = route.request.post_data_json["sentence"]
        asked.append(sentence)
        sure = [("same", 0.9), ("same", 0.8), ("same", 0.7)] if "letter" in sentence else [("same", 0.9)]
        lines = [line(*each) for each in [*sure, ("unsure", 0.6), ("unsure", 0.42), ("other", 0.1)]]
        told = {
            "object": "list",
            "index": "i",
            "total": 9,
            "about": "the likest in meaning first",
            "lines": lines,
        }
        route.fulfill(json=told)

    page.route("**/v1/usages/search", answer)
    page.goto(f"{server.url}/usages")
    status = page.get_by_role("status")
    expect(status).to_contain_text("For example, “She wrote a long *letter* to her mother.” 6 of 9 uses")
    expect(status).to_contain_text("Of 2, at 42 to 60 %, that is left open.")
    notes = page.locator(".usages-lines .note").all_inner_texts()
    assert [each.split(" · ")[0] for each in notes] == [
        *("same, 90 %", "same, 80 %", "same, 70 %", "60 %", "42 %", "other, 10 %")
    ]
    assert asked == ["The *play* was shown in a small theatre.", "She wrote a long *letter* to her mother."]
    assert page.url == f"{server.url}/usages"
    assert _violations(page) == []


def test_a_client_that_leaves_ends_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_model(tmp_path / "gpt2", "gpt2")
    taken: list[int] = []
    real = Rules.apply

    def slowly(self: Rules, *arguments: Any) -> Any:
        taken.append(len(taken))
        time.sleep(0.05)
        return real(self, *arguments)

    monkeypatch.setattr(Rules, "apply", slowly)
    served = Served(tmp_path / "gpt2")
    try:
        body = json.dumps({"prompt": "a", "max_tokens": 40, "stream": True, "temperature": 0}).encode()
        with served.connect(posted(body).replace(b"/v1/embeddings", b"/v1/completions")) as connection:
            assert b"data: " in connection.recv(4096) + connection.recv(4096)
        wait_for(lambda: served.engine.queue.tokens == 0)
        after = len(taken)
        assert after < 30
        time.sleep(0.2)
        assert len(taken) <= after + 1
    finally:
        served.close()
