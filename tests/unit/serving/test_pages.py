"""The page, what it asks, and what is refused."""

import re
import sys
from base64 import b64decode
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import regard
from regard.serving import Settings, app_of
from regard.tracing.pages._instead import other_words
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest
from unit.models.folders import write, write_tokenizer
from unit.serving.conftest import Ask

TEXT = "a man on the river bank."


def weight(layer: int, head: int, query: int, key: int, value: float) -> dict[str, float]:
    return {"layer": layer, "head": head, "query": query, "key": key, "value": value}


def floats(text: str, *shape: int) -> np.ndarray:
    return np.frombuffer(b64decode(text), "<f4").reshape(shape)


def test_the_page_asks_its_server_alone(client: TestClient) -> None:
    answer = client.get("/", params={"model": "gpt2"})
    assert answer.status_code == 200
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', answer.text)[0]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert client.get("/").text != answer.text
    assert client.get("/", params={"model": "/etc/passwd"}).status_code == 404
    assert "connect-src 'self'" in client.get("/usages").text


def test_a_link_to_a_sentence_is_drawn_with_it(client: TestClient) -> None:
    asked = {"model": "bert", "text": 'the "man" on <i> the river bank.'}
    answer = client.get("/", params=asked)
    assert answer.headers["x-frame-options"] == "DENY"
    told = dict(re.findall('<meta (?:name|property)="([^"]+)" content="([^"]*)">', answer.text))
    assert unescape(told["og:title"]).startswith(asked["text"])
    assert told["description"] == told["og:description"]
    for name, path in {"og:url": "/", "og:image": "/v1/picture"}.items():
        address = urlsplit(unescape(told[name]))
        assert (address.netloc, address.path) == ("testserver", path)
        assert dict(parse_qsl(address.query)) == asked
    picture = client.get(unescape(told["og:image"]))
    assert picture.headers["content-type"] == "image/png"
    assert picture.content[:8] == b"\x89PNG\r\n\x1a\n"
    # Without a sentence, and of one that cannot be read, it is the page of every day.
    assert "og:image" not in client.get("/", params={"model": "bert"}).text
    for text in ("", "man " * 300):
        assert client.get("/", params=asked | {"text": text}).text == client.get("/?model=bert").text
    assert client.get("/v1/picture", params={"text": ""}).status_code == 400


def test_where_a_key_is_asked_for_no_link_works_for_strangers(models: dict[str, regard.Model]) -> None:
    with TestClient(app_of({"bert": models["bert"]}, settings=Settings(keys=("k",)))) as client:
        assert client.get("/", params={"text": "a river bank"}).text == client.get("/").text
        assert client.get("/v1/picture", params={"text": "a river bank"}).status_code == 401


def test_without_matplotlib_there_is_no_picture(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.font_manager", None)
    answer = client.get("/v1/picture", params={"text": "a river bank"})
    assert answer.status_code == 404
    assert "pictures need matplotlib" in answer.json()["error"]["message"]


@pytest.mark.parametrize("family", ["t5", "bart", "marian"])
def test_a_model_of_two_stacks_has_an_example(
    family: str, models: dict[str, regard.Model], tmp_path: Path
) -> None:
    """Its page asks for nothing, leads to the models that one can type for, and is not the one that opens."""
    write_tokenizer(write(tmp_path, family), 31)
    both = {"a <t5>": regard.load(tmp_path), "gpt2": models["gpt2"]}
    with TestClient(app_of(both)) as client:
        assert "<h1>" not in client.get("/").text
        told = client.get("/", params={"model": "a <t5>"}).text
        assert "<h1>a &lt;t5&gt; reads with an encoder and writes with a decoder</h1>" in told
        assert "default-src 'none'\">" in told
        links = [unescape(each) for each in re.findall(r'href="([^"]+)"', told)]
        assert links == ["?model=a%20%3Ct5%3E&example=true", "?model=a%20%3Ct5%3E", "?model=gpt2"]
        drawn = client.get("/" + links[0]).text
        assert 'id="regard"' in drawn
        assert "connect-src" not in drawn
        assert client.post("/v1/page", json={"text": "w1", "model": "a <t5>"}).status_code == 400


@pytest.mark.parametrize("model", ["bert", "gpt2"])
def test_what_the_page_is_told_is_the_trace(model: str, ask: Ask, models: dict[str, regard.Model]) -> None:
    weights = [weight(1, 2, 3, 1, 0.5), weight(1, 2, 3, 2, 0.2)]
    answer = ask("/v1/page", model=model, text=TEXT, off=[[0, 1]], weights=weights)

    def dragged(row: torch.Tensor) -> torch.Tensor:
        made = row.clone()
        made[..., [1, 2]] = 0
        made = made * 0.3 / made.sum(dim=-1, keepdim=True)
        made[..., [1, 2]] = torch.tensor([0.5, 0.2])
        return made

    edited = models[model].edited(
        regard.Zero("head", layer=0, head=1), regard.Write("weights", dragged, layer=1, head=2, query=3)
    )
    trace = edited.trace(TEXT)
    count = len(trace.tokens)
    np.testing.assert_allclose(floats(answer["contextual"], count, -1), trace.embeddings(), atol=1e-6)
    (kind,) = answer["facts"]["kinds"].values()
    assert answer["facts"]["difference"] < 1e-6
    for layer, facts in enumerate(kind["layers"]):
        q, k = (floats(answer["blocks"][facts[name]["values"]], 3, count, 8) for name in ("q", "k"))
        scores = facts["scale"] * q @ k.swapaxes(1, 2)
        if facts["bias"]:
            scores = scores + floats(answer["blocks"][facts["bias"]["values"]], 3, count, count)
        if model == "gpt2":
            scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        weights_ = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights_ /= weights_.sum(axis=2, keepdims=True)
        np.testing.assert_allclose(weights_, trace.weights(layer), atol=WEIGHTS)
        v = floats(answer["blocks"][facts["v"]["values"]], 3, count, 8)
        assert_close_to_largest(weights_ @ v, trace.context(layer), FP32_OF_LARGEST)
    assert [token["text"] for token in answer["encoded"]["tokens"]] == trace.tokens
    assert "model" not in answer["facts"]  # where it lies is not told


def test_what_is_expected_and_how_alike(ask: Ask, models: dict[str, regard.Model]) -> None:
    text = "🐟 a man on the [MASK]."
    answer = ask("/v1/page", text=text, second="the fish")
    (told,) = answer["predicted"]
    trace = models["bert"].trace(text)
    assert trace.tokens[told["at"]] == "[MASK]"
    with torch.no_grad():
        logits = models["bert"](torch.tensor([trace.token_ids])).logits
    assert logits is not None
    best = logits[0, told["at"]].softmax(dim=0).topk(5)
    tokens = [models["bert"].tokenizer.token_of(id) for id in best.indices.tolist()]
    assert [each["text"] for each in told["best"]] == tokens
    found = [each["probability"] for each in told["best"]]
    assert found == pytest.approx(best.values.tolist(), abs=1e-5)
    start = text.index("[MASK]") + 1  # the fish is two units of UTF-16
    assert answer["encoded"]["tokens"][told["at"]]["span"] == [start, start + 6]
    one, other = (models["bert"].trace(each).embeddings().mean(dim=0) for each in (text, "the fish"))
    wanted = float(torch.cosine_similarity(one, other, dim=0))
    assert answer["likeness"] == pytest.approx(wanted, abs=1e-6)
    alone = ask("/v1/page", text=text, second=".")  # which has no word
    assert alone["beside"] is None
    assert -1 <= alone["likeness"] <= 1
    asked = ask("/v1/page", text=text, second="the fish", word=2, unseen=[2])
    unseen, other = floats(asked["contextual"], len(trace.tokens), -1), models["bert"].trace("the fish")
    here = torch.from_numpy(unseen[2].copy())
    likest = max(
        ["the", "fish"], key=lambda word: torch.cosine_similarity(here, other.embedding(word), dim=0)
    )
    assert asked["beside"]["words"] == ["a", likest]
    assert abs(unseen - trace.embeddings().numpy())[3:].max() > 1e-3
    assert ask("/v1/page", text=text, near=2) == {"near": other_words(trace, 2)}
    assert "takes at most" in ask("/v1/page", text="a", second="fish " * 90)["likeness"]["refused"]

    (told,) = ask("/v1/page", model="gpt2", text="the man")["predicted"]
    wanted_next = models["gpt2"].generate("the man", trace=True, max_length=1).steps[0]
    assert told["best"][0]["probability"] == pytest.approx(wanted_next.probability, abs=1e-5)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "text"),
    ({"text": "x" * 20_001}, "20000"),
    ({"text": "bank " * 90}, "92 tokens"),
    ({"text": "a", "off": [[7, 0]]}, "layer"),
    ({"text": "a", "off": [[0, -9]]}, "head"),
    ({"text": "a man", "unseen": [9]}, "tokens of the text"),
    ({"text": "a man", "second": "a", "word": 9}, "part of a word"),
    ({"text": "a man", "near": -9}, "part of a word"),
    ({"text": "a man", "weights": [weight(0, 0, 0, 9, 1)]}, "can see; got"),
    ({"text": "a man", "weights": [weight(0, 0, 9, 0, 1)]}, "query"),
    ({"text": "a man", "weights": [weight(0, 0, 0, 0, 2)]}, "less than"),
    ({"text": "a man", "weights": [weight(0, 0, 0, 0, 0.6), weight(0, 0, 0, 1, 0.6)]}, "1 together"),
    ({"model": "gpt2", "text": "in", "weights": [weight(0, 0, 0, 0, 0.5)]}, "rest"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=str)
def test_what_cannot_be_answered(body: dict[str, Any], message: str, ask: Ask) -> None:
    status, error = ask("/v1/page", **body)
    assert status == 400
    assert re.search(message, error["message"])


def test_an_answer_is_bounded(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.tracing.pages._served.MOST_READ", 100)
    status, error = ask("/v1/page", text="a man on")
    assert status == 400
    assert "100 weights at most, for a page; it has 150" in error["message"]


def test_a_key_is_asked_for(models: dict[str, regard.Model]) -> None:
    with TestClient(app_of(models, settings=Settings(keys=("secret",)))) as client:
        assert client.get("/").status_code == 200
        assert client.get("/usages").status_code == 404
        assert client.post("/v1/page", json={"text": "a"}).status_code == 401
        headers = {"authorization": "Bearer secret"}
        assert client.post("/v1/page", json={"text": "a"}, headers=headers).status_code == 200


def test_every_route_is_described_by_examples_that_hold(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    schemas = described["components"]["schemas"]

    def of(told: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = schemas[told["schema"]["$ref"].rpartition("/")[2]]
        return found

    names = ("words", "trace", "attention", "usages/search", "completions", "chat/completions", "page")
    for name in names:
        post = described["paths"][f"/v1/{name}"]["post"]
        assert post["summary"]
        assert {"400", "401", "404", "413", "429", "503", "504"} <= post["responses"].keys()
        asked = of(post["requestBody"]["content"]["application/json"])
        (first,) = asked.get("required", [*asked["properties"]][:1])
        body = {first: asked["properties"][first]["examples"][0]}
        if name.endswith("completions"):
            body["model"] = "gpt2" if name == "completions" else "chat"
        answer = client.post(f"/v1/{name}", json=body).json()
        told = post["responses"]["200"]["content"]["application/json"]
        wanted = told["example"] if "example" in told else of(told)["properties"]
        assert answer.keys() == wanted.keys()


def test_what_comes_next(ask: Ask, models: dict[str, regard.Model]) -> None:
    model = models["gpt2"]

    def logits_of(text: str) -> torch.Tensor:
        with torch.no_grad():
            logits = model(torch.tensor([model.tokenizer.encode(text).token_ids])).logits
        assert logits is not None
        return logits[0, -1].double()

    told = ask("/v1/page", model="gpt2", text=TEXT, write={"temperature": 0.5})
    written, trace, logits = told["written"], model.trace(TEXT), logits_of(TEXT)
    assert set(told) == {"written"}
    assert (written["text"], written["chosen"], written["ended"]) == (TEXT, None, "")
    best = logits.topk(5).indices
    for name, shares in (("probability", logits.softmax(0)), ("tempered", (2 * logits).softmax(0))):
        assert [each[name] for each in written["best"]] == pytest.approx(shares[best].tolist(), abs=1e-5)
    taken = torch.stack([trace.norm_weighted(layer)[:, -1].sum(dim=0) for layer in range(2)]).sum(dim=0)
    np.testing.assert_allclose(written["taken"], taken, rtol=1e-4)
    rests = torch.stack([trace.weights(layer)[:, -1, 0] for layer in range(2)]).mean()
    assert written["rests"] == pytest.approx(float(rests), abs=1e-6)
    assert [TEXT[slice(*span)] for span in written["wordSpans"]] == written["words"]
    words = [-1 if token.word is None else token.word for token in trace.stack(None).encoding.tokens]
    assert written["wordOf"] == words

    # A word is written first: the likeliest, or the one up to which the shares come to a number.
    sums = (logits / 0.5).softmax(0).cumsum(0)
    for temperature, drawn in ((0.0, 0.9), (0.5, 0.0), (0.5, 0.37), (0.5, 1.0)):
        place = min(int((sums <= drawn).sum()), len(sums) - 1)
        id = place if temperature else int(logits.argmax())
        new = model.tokenizer.decode([*trace.token_ids, id])
        told = ask("/v1/page", model="gpt2", text=TEXT, write={"temperature": temperature, "drawn": drawn})
        written = told["written"]
        assert written["text"] == TEXT + written["chosen"]["text"] == new
        assert written["chosen"]["isLikeliest"] == (id == int(logits.argmax()))
        after = logits_of(new).softmax(0).topk(5).values.tolist()
        assert [each["probability"] for each in written["best"]] == pytest.approx(after, abs=1e-5)
    off = ask("/v1/page", model="gpt2", text=TEXT, write={}, off=[[0, 1]])["written"]
    assert off["best"] != ask("/v1/page", model="gpt2", text=TEXT, write={})["written"]["best"]


def test_an_encoder_is_asked_for_no_next_word(client: TestClient) -> None:
    asked = {"text": TEXT, "write": {"temperature": 0.5}}
    answer = client.post("/v1/page", json=asked | {"model": "bert"})
    assert answer.status_code == 400
    assert "write must be asked of a decoder" in answer.json()["error"]["message"]
    for wrong in ({"temperature": 2.5}, {"drawn": -1}, {"other": 1}):
        answer = client.post("/v1/page", json=asked | {"model": "gpt2", "write": wrong})
        assert answer.status_code in (400, 422), wrong
