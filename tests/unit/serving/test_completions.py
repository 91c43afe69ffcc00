"""What a decoder writes, as OpenAI's API has it: the text of `model.generate`, whole and in events."""

import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

import regard
from unit.serving.conftest import Ask

PROMPT = "the man in"


def events(client: TestClient, path: str = "/v1/completions", **body: Any) -> list[Any]:
    """What a stream sends, each event parsed but the last."""
    with client.stream("POST", path, json={"model": "gpt2", "stream": True} | body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_the_text_is_that_of_generate(
    temperature: float, ask: Ask, client: TestClient, models: dict[str, regard.Model]
) -> None:
    choice = regard.Sampling(temperature=temperature, top_p=0.9, seed=5) if temperature else None
    wanted = models["gpt2"].generate(PROMPT, choice=choice, max_length=12)
    how = {"prompt": PROMPT, "max_tokens": 12, "temperature": temperature, "top_p": 0.9, "seed": 5}
    answer = ask("/v1/completions", model="gpt2", **how)
    (whole,) = answer["choices"]
    assert whole["text"] == wanted.text
    assert whole["finish_reason"] == ("stop" if wanted.ended else "length")
    assert answer["object"] == "text_completion"
    read = len(models["gpt2"].tokenizer.encode(PROMPT).tokens)
    assert answer["usage"] == {
        "prompt_tokens": read,
        "completion_tokens": len(wanted.token_ids),
        "total_tokens": read + len(wanted.token_ids),
    }
    *told, usage, done = events(client, **how, stream_options={"include_usage": True})
    assert "".join(each["choices"][0]["text"] for each in told) == wanted.text
    assert [each["choices"][0]["finish_reason"] for each in told][-1] == whole["finish_reason"]
    assert len({each["id"] for each in [*told, usage]}) == 1
    assert (usage["choices"], usage["usage"], done) == ([], answer["usage"], "[DONE]")
    assert len(told) > 1


def test_several_prompts_and_ways(ask: Ask, client: TestClient, models: dict[str, regard.Model]) -> None:
    model = models["gpt2"]
    wanted = model.generate([PROMPT, "fish"], choice=regard.Sampling(seed=3), count=2, max_length=6)
    ids = [list(model.tokenizer.encode(text).token_ids) for text in (PROMPT, "fish")]
    for prompt in ([PROMPT, "fish"], ids):
        how = {"prompt": prompt, "n": 2, "seed": 3, "max_tokens": 6}
        choices = ask("/v1/completions", model="gpt2", **how)["choices"]
        assert [each["index"] for each in choices] == [0, 1, 2, 3]
        assert [each["text"] for each in choices] == [way.text for ways in wanted for way in ways]
        streamed = [""] * 4
        for event in events(client, **how)[:-1]:
            for each in event["choices"]:
                streamed[each["index"]] += each["text"]
        assert streamed == [each["text"] for each in choices]


def test_a_stop_ends_it(ask: Ask, models: dict[str, regard.Model]) -> None:
    whole = models["gpt2"].generate(PROMPT, max_length=12).text
    how = {"model": "gpt2", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    for stop in (whole[4:6], ["never there", whole[4:6]]):
        (choice,) = ask("/v1/completions", stop=stop, **how)["choices"]
        assert choice["text"] == whole[: whole.index(whole[4:6])]
        assert choice["finish_reason"] == "stop"


def test_log_probabilities(ask: Ask, client: TestClient, models: dict[str, regard.Model]) -> None:
    wanted = models["gpt2"].generate(PROMPT, max_length=8)
    how = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logprobs": 2}
    told = ask("/v1/completions", model="gpt2", **how)["choices"][0]["logprobs"]
    assert told["token_logprobs"] == pytest.approx(list(wanted.log_probabilities), abs=1e-5)
    for best, own in zip(told["top_logprobs"], told["token_logprobs"], strict=True):
        assert len(best) <= 2  # two tokens may be spelled alike
        assert max(best.values()) == own
    assert told["text_offset"][0] == 0
    assert len(told["tokens"]) == len(told["text_offset"]) == 8
    # A part of a character is its bytes.
    assert all(
        token in wanted.text or re.fullmatch("(<0x[89A-F][0-9A-F]>)+", token) for token in told["tokens"]
    )
    parts = [each["choices"][0]["logprobs"] for each in events(client, **how)[:-1]]
    for name, values in told.items():
        assert [value for part in parts for value in part[name]] == values
    assert ask("/v1/completions", model="gpt2", prompt=PROMPT)["choices"][0]["logprobs"] is None


def test_what_is_null_is_left_out(ask: Ask) -> None:
    nulls = dict.fromkeys(("max_tokens", "temperature", "n", "stop", "seed", "echo", "logit_bias", "stream"))
    answer = ask("/v1/completions", model="gpt2", prompt=PROMPT, presence_penalty=0.0, **nulls)
    assert answer["usage"]["completion_tokens"] == 16


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": "a", "model": "bert"}, "model", "must have a decoder"),
    ({"prompt": ""}, "prompt", ""),
    ({"prompt": " "}, "prompt", "blank"),
    ({"prompt": []}, "prompt", ""),
    ({"prompt": ["a", [1]]}, "prompt", ""),
    ({"prompt": [[1], [-1]]}, "prompt", ""),
    ({"prompt": [1, 99_999]}, "prompt", r"prompt\[0\] must be ids from 0 to"),
    ({"prompt": "a " * 60}, "prompt", r"prompt\[0\] must"),
    (
        {"prompt": "a", "max_tokens": 500},
        "max_tokens",
        "maximum context length is 79 tokens; these are 501: 1 to read and 500",
    ),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens", ""),
    ({"prompt": "a", "max_tokens": 60_000, "n": 60}, "max_tokens", "a request may have"),
    ({"prompt": "a", "temperature": 3}, "temperature", ""),
    ({"prompt": "a", "n": 2, "temperature": 0}, "n", "n must be 1"),
    ({"prompt": ["a"] * 40, "n": 2}, "n", "64 at most; got 80"),
    ({"prompt": "a", "echo": True}, "echo", ""),
    ({"prompt": "a", "suffix": "b"}, "suffix", "not supported by this server; leave it out"),
    ({"prompt": "a", "best_of": 3}, "best_of", ""),
    ({"prompt": "a", "logit_bias": {"1": 5}}, "logit_bias", ""),
    ({"prompt": "a", "presence_penalty": 0.5}, "presence_penalty", ""),
    ({"prompt": "a", "stop": ["a"] * 5}, "stop", ""),
    ({"prompt": "a", "logprobs": 6}, "logprobs", ""),
]


@pytest.mark.parametrize(("body", "param", "message"), REFUSED, ids=str)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_written(
    body: dict[str, Any], param: str, message: str, stream: bool, ask: Ask
) -> None:
    status, error = ask("/v1/completions", **({"model": "gpt2", "stream": stream} | body))
    assert (status, error["param"]) == (400, param)
    assert re.search(message, error["message"])


@pytest.mark.parametrize("body", [{"max_tokens": 500}, {"prompt": "a " * 60}, {"prompt": [5] * 90}], ids=str)
def test_what_is_longer_than_the_context_has_openai_s_code(body: dict[str, Any], ask: Ask) -> None:
    status, error = ask("/v1/completions", **{"model": "gpt2", "prompt": "a"} | body)
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == ("max_tokens" if "max_tokens" in body else "prompt")


def test_as_many_tokens_as_the_context_has_room_for(ask: Ask) -> None:
    """The last one is not read."""
    asked = {"model": "gpt2", "prompt": "a", "temperature": 0}
    assert ask("/v1/completions", **asked, max_tokens=79)["usage"]["completion_tokens"] == 79
    assert ask("/v1/completions", **asked, max_tokens=80)[0] == 400


def test_an_error_on_the_way_is_told_in_the_stream(
    client: TestClient, models: dict[str, regard.Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.decoding._texts._Way.ended", lambda self: 1 / 0)
    *told, error = events(client, prompt=PROMPT, max_tokens=12, temperature=0)
    assert told
    assert error["error"]["type"] == "server_error"
    assert "ZeroDivision" not in json.dumps(error)
