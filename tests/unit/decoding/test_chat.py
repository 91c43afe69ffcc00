"""Answers to messages: what is read and written, what ends them, and what goes along."""

import json
from typing import Any

import pytest
import torch
from tokenizers import processors

import regard
from regard.core.errors import CheckpointError, InputError
from regard.decoding import Rules, Watched, Written, along, decode_texts, greedy
from regard.text import Tokenizer
from unit.models.folders import write_chat
from unit.text.chats import CHATML, END, START, backend, tokenizer

QUESTION = {"role": "user", "content": "Why?"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    return regard.load(write_chat(tmp_path_factory.mktemp("chat") / "model"))


def test_an_answer_is_what_follows_the_template(model: regard.Model) -> None:
    found = model.chat([QUESTION], max_length=9)
    chat = model.tokenizer.chat([QUESTION])
    ids = list(model.tokenizer.encode(chat).token_ids)
    (way,) = greedy(model.network, [ids], rules=Rules(end_ids=(model.tokenizer.id_of(END),), max_length=9))
    assert (found.prompt, list(found.prompt_ids)) == (chat, ids)
    assert found.token_ids == way.token_ids
    assert found.text == model.tokenizer.decode(way.token_ids, skip_special=True)
    assert found.messages == [QUESTION, {"role": "assistant", "content": found.text}]
    assert json.loads(json.dumps(found.to_json()))["messages"] == found.messages
    assert "".join(model.stream([QUESTION], max_length=9)) == found.text
    going_on = model.chat([*found.messages, QUESTION], max_length=3)
    assert going_on.prompt.startswith(f"{chat}{found.text}<|im_end|>\n")
    assert going_on.messages[:3] == [*found.messages, QUESTION]


def test_a_text_is_no_chat(model: regard.Model) -> None:
    found = model.generate("Why?", max_length=3)
    assert found.messages == []
    assert "messages" not in found.to_json()
    assert found.prompt_ids == model.tokenizer.encode("Why?").token_ids


def test_an_answer_ends_where_the_template_ends_one(model: regard.Model) -> None:
    """The files name no end, so that the same as a text goes on."""
    assert Rules.of(model.loaded).end_ids == ()
    how: Any = {"choice": regard.Sampling(temperature=9.0, seed=1), "max_length": 400}
    found = model.chat([QUESTION], **how)
    text = model.generate(str(found.prompt), **how)
    assert found.ended
    assert not text.ended
    assert (*found.token_ids, model.tokenizer.id_of(END)) == text.token_ids[: len(found.token_ids) + 1]
    assert 3 < len(found.token_ids) < 400
    assert "".join(model.stream([QUESTION], **how)) == found.text
    assert model.generate(found.prompt, **how) == found
    (added,) = list(along(model.loaded, model.tokenizer, [found.prompt], **_rules(how))[1])[-1]
    assert added.end == "stop"


def _rules(how: dict[str, Any]) -> dict[str, Any]:
    return {"choice": how["choice"], "rules": Rules(max_length=how["max_length"])}


def test_nothing_is_put_around_a_chat(model: regard.Model) -> None:
    """Its template has what the tokenizer puts before any other text."""
    framed = backend()
    framed.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, framed.token_to_id(START))]
    )
    made = Tokenizer.from_str(framed.to_str(), chat_template=CHATML)
    for text, more in ((made.chat([QUESTION]), 0), ("Why?", 1)):
        ((way,),) = decode_texts(model.loaded, made, [text], max_length=2)
        assert len(way.prompt_ids) == len(model.tokenizer.encode(text).tokens) + more


def test_several_ways_and_several_chats(model: regard.Model) -> None:
    drawn = regard.Sampling(seed=2)
    ways = model.chat([QUESTION], count=2, choice=drawn, max_length=4)
    assert [way.messages[-1]["content"] for way in ways] == [way.text for way in ways]
    chats = [model.tokenizer.chat([{"role": "user", "content": text}]) for text in ("a", "bank", "a")]
    found = model.generate(chats, choice=drawn, max_length=4)
    assert [each.messages[0]["content"] for each in found] == ["a", "bank", "a"]
    assert found[1].token_ids == model.chat(chats[1].messages, choice=drawn, max_length=4).token_ids


def test_how_an_answer_was_written(model: regard.Model) -> None:
    found = model.chat([QUESTION], trace=True, max_length=5)
    plain = model.chat([QUESTION], max_length=5)
    assert isinstance(found, Watched)
    assert found.messages == plain.messages
    assert found.trace.token_ids == [*plain.prompt_ids, *plain.token_ids]
    assert found.first == len(plain.prompt_ids)
    traced = model.trace(plain.prompt)
    assert traced.token_ids == list(plain.prompt_ids)
    torch.testing.assert_close(
        traced.weights(0, 1), found.trace.weights(0, 1)[: found.first, : found.first], atol=1e-5, rtol=0
    )


def test_chats_and_texts_are_written_apart(model: regard.Model) -> None:
    chat = model.tokenizer.chat([QUESTION])
    other = tokenizer(CHATML.replace("<|im_end|>' + '", "' + '")).chat([QUESTION])
    assert other.ends == ()
    for texts in ([chat, "Why?"], [chat, other]):
        with pytest.raises(InputError, match="texts must all be chats of one template, or none of them"):
            decode_texts(model.loaded, model.tokenizer, texts)


def test_what_cannot_be_answered(model: regard.Model) -> None:
    with pytest.raises(InputError, match="model must have a chat template"):
        regard.load().chat([QUESTION])
    with pytest.raises(InputError, match="messages must be a list of messages"):
        model.chat("Why?")  # type: ignore[call-overload]
    with pytest.raises(CheckpointError, match="fails on these messages"):
        model.chat([{"role": "user", "name": "a call"}])


def test_written_is_as_before() -> None:
    made = Written(prompt="A", text=" b", token_ids=(1,), log_probabilities=(-1.0,), score=-1.0, ended=True)
    assert (made.prompt_ids, made.messages) == ((), [])
