"""The messages of a chat on its page: each has its tokens, and those of the template are nobody's."""

import json

import pytest

import regard
from regard.text import Chat
from regard.tracing.pages._pages import messages_of
from unit.views.conftest import facts_of

SAID = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "What is the capital of France?"},
]


@pytest.fixture(scope="module")
def model() -> regard.Model:
    return regard.load("smollm2")


def test_each_message_has_its_tokens(model: regard.Model) -> None:
    answer = model.chat(SAID, max_length=20, trace=True)
    facts, ids = facts_of(answer.page()), answer.trace.token_ids
    messages = facts["messages"]
    assert [(each["role"], each["text"]) for each in messages] == [
        (each["role"], each["content"]) for each in answer.messages
    ]
    for each in messages:
        assert model.tokenizer.decode(ids[each["first"] : each["last"] + 1]) == each["text"]
        frame = model.tokenizer.decode(ids[each["frame"] : each["first"]])
        assert frame == f"<|im_start|>{each['role']}\n"
    assert messages[-1]["first"] == answer.first
    [run] = json.loads(answer.view().facts)["runs"]
    assert run["facts"]["messages"] == messages


def test_of_what_is_no_chat_nothing_is_said(model: regard.Model) -> None:
    chat = model.tokenizer.chat(SAID)
    trace, other = model.trace(chat), model.trace("The capital of France is")
    assert messages_of(other, None) == []
    assert messages_of(other, chat) == []  # of another text
    bare = Chat(str(chat), chat.messages, chat.seams, chat.ends)
    assert messages_of(trace, bare) == []  # of a template that changes what messages say
    found = messages_of(trace, chat)
    assert (found[-1]["role"], found[-1]["text"]) == ("assistant", "")
    assert facts_of(regard.load().trace("a river bank").page())["messages"] == []
