"""What a body may say, on every route: null for what is left out, and the types that are described."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from regard.serving._chat import ChatBody, Message
from regard.serving._completions import CompletionsBody, StreamOptions
from regard.serving._limits import Body
from regard.serving._pages import PageBody, Weight
from regard.serving._traces import AttentionBody, TraceBody
from regard.serving._usages import UsagesBody
from regard.serving._vectors import EmbeddingsBody, WordsBody

MESSAGE = {"role": "user", "content": "a"}
LEAST: dict[type[Body], dict[str, Any]] = {
    AttentionBody: {"input": "a"},
    ChatBody: {"messages": [MESSAGE]},
    CompletionsBody: {"prompt": "a"},
    EmbeddingsBody: {"input": "a"},
    Message: MESSAGE,
    PageBody: {"text": "a"},
    StreamOptions: {},
    TraceBody: {"input": "a"},
    UsagesBody: {},
    Weight: {"layer": 0, "head": 0, "query": 0, "key": 0, "value": 0.5},
    WordsBody: {"input": "a"},
}
"""Of each body what it must hold."""

OPTIONAL = [(body, name) for body, least in LEAST.items() for name in body.model_fields if name not in least]


def described(body: type[Body], given: object) -> bool:
    """Whether a description allows it."""
    return bool(Draft202012Validator(body.model_json_schema()).is_valid(given))


@pytest.mark.parametrize(("body", "name"), OPTIONAL, ids=lambda each: getattr(each, "__name__", each))
def test_null_is_a_field_that_is_left_out(body: type[Body], name: str) -> None:
    given = LEAST[body] | {name: None}
    assert body.model_validate(given) == body.model_validate(LEAST[body])
    assert described(body, given)


TYPES: list[tuple[type[Body], dict[str, Any], bool]] = [
    (UsagesBody, {"any_word": 0}, False),
    (UsagesBody, {"unknown": None}, False),
    (UsagesBody, {"why": "true"}, False),
    (UsagesBody, {"k": 60.0, "more": [594.0]}, True),
    (UsagesBody, {"k": 60.5}, False),
    (UsagesBody, {"k": "60"}, False),
    (UsagesBody, {"k": True}, False),
    (UsagesBody, {"seed": 2**64}, True),
    (CompletionsBody, {"seed": -(2**70)}, True),
    (CompletionsBody, {"n": {}}, False),
    (CompletionsBody, {"n": {"a": 1}}, False),
    (CompletionsBody, {"n": [1]}, False),
    (CompletionsBody, {"temperature": 1, "top_p": 1}, True),
    (CompletionsBody, {"temperature": "1"}, False),
    (CompletionsBody, {"prompt": None}, False),
    (CompletionsBody, {"prompt": [1.0, 2]}, True),
    (CompletionsBody, {"prompt": [True]}, False),
    (CompletionsBody, {"echo": 0}, False),
    (CompletionsBody, {"best_of": True}, False),
    (CompletionsBody, {"logit_bias": []}, False),
    (ChatBody, {"logprobs": 1}, False),
    (ChatBody, {"tools": {}}, False),
    (ChatBody, {"response_format": {"type": "text"}}, True),
    (TraceBody, {"off": [[3.0, 5]]}, True),
    (TraceBody, {"off": [[3, True]]}, False),
    (TraceBody, {"off": ["35"]}, False),
    (TraceBody, {"pair": ""}, False),
    (PageBody, {"pair": ""}, False),
    (WordsBody, {"layer": [0, 1.0]}, True),
]


@pytest.mark.parametrize(("body", "fields", "is_right"), TYPES, ids=str)
def test_types_are_those_of_the_description(body: type[Body], fields: dict[str, Any], is_right: bool) -> None:
    given = LEAST[body] | fields
    assert described(body, given) is is_right
    if is_right:
        body.model_validate(given)
    else:
        with pytest.raises(ValidationError):
            body.model_validate(given)


@pytest.mark.parametrize("body", [EmbeddingsBody, WordsBody])
@pytest.mark.parametrize("blank", ["", " ", [], ["a", "\n"]], ids=repr)
def test_blank_texts_are_not_described(body: type[Body], blank: object) -> None:
    """What is said of them is tested with the routes."""
    assert not described(body, {"input": blank})
