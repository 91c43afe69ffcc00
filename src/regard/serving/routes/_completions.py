"""`POST /v1/completions`, as OpenAI defines it, of decoders."""

import secrets
import time
from collections.abc import AsyncIterator, Generator
from functools import partial
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, model_validator

from regard.core.errors import InputError
from regard.decoding import Added, Rules, Sampling, along
from regard.model import Model
from regard.serving._errors import ApiError
from regard.serving._jobs import estimate
from regard.serving._schema import Body, ModelName, answered, errors, example
from regard.serving._service import service_of

router = APIRouter()

MOST_CHOICES: Final = 64
"""Texts that a request has written at once."""

Ids = Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=2**17)]
Prompt = Annotated[str, Field(min_length=1, max_length=2**19)]


class StreamOptions(BaseModel):
    """How a stream ends."""

    include_usage: bool = False
    include_obfuscation: Annotated[bool, Field(description="Not used.")] = False


class CompletionsBody(Body):
    """Prompts to go on from."""

    prompt: Annotated[
        Prompt | Ids | Annotated[list[Prompt] | list[Ids], Field(min_length=1)],
        Field(description="A text, several, or their token ids.", examples=["A river", [[32, 7850]]]),
    ]
    model: ModelName = None
    max_tokens: Annotated[int, Field(ge=1, le=2**16)] = 16
    temperature: Annotated[float, Field(ge=0, le=2, description="0 takes the likeliest token.")] = 1.0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES, description="So many of each prompt.")] = 1
    seed: Annotated[int | None, Field(ge=0, le=2**63 - 1, description="The same one writes the same.")] = None
    stop: Annotated[
        Annotated[str, Field(min_length=1, max_length=1000)]
        | Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(max_length=4)]
        | None,
        Field(description="Texts before which it ends."),
    ] = None
    logprobs: Annotated[
        int | None, Field(ge=0, le=5, description="So many of the likeliest tokens are told of each step.")
    ] = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Annotated[str | None, Field(description="Not used.")] = None
    echo: Annotated[Literal[False], Field(description="Not there.")] = False
    suffix: Annotated[None, Field(description="Not there.")] = None
    best_of: Annotated[Literal[1] | None, Field(description="Not there.")] = None
    presence_penalty: Annotated[float, Field(ge=0, le=0, description="Not there.")] = 0
    frequency_penalty: Annotated[float, Field(ge=0, le=0, description="Not there.")] = 0
    logit_bias: Annotated[dict[str, float], Field(max_length=0, description="Not there.")] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """Clients send null for what they leave out."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}

    def prompts(self) -> list[str | list[int]]:
        """One or several, as a list."""
        given: Any = self.prompt
        return [given] if isinstance(given, str) or isinstance(given[0], int) else list(given)

    def tokens(self) -> int:
        """About how many are read and written."""
        prompts = self.prompts()
        return sum(map(estimate, prompts)) + self.max_tokens * self.n * len(prompts)


_COMPLETED = {
    "id": "cmpl-4f1c",
    "object": "text_completion",
    "created": 1790000000,
    "model": "gpt2",
    "choices": [{"index": 0, "text": " bank", "finish_reason": "length"}],
    "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
}


@router.post("/v1/completions", responses=errors(504) | example(_COMPLETED), tags=["OpenAI"])
async def completions(body: CompletionsBody, request: Request) -> Response:
    """Go on from prompts, with a decoder; as a stream of server-sent events where that is asked for."""
    service = service_of(request)
    engine = service.engine(body.model)
    _check(body, service.settings.max_tokens)
    pieces: AsyncIterator[Any] = engine.stream(partial(written, body=body), tokens=body.tokens())
    if not body.stream:
        return answered(await _whole(engine.name, body, pieces))
    # What is wrong with a prompt is found before the answer begins.
    read = await anext(pieces)
    events = _events(engine.name, body, read, pieces)
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


def _check(body: CompletionsBody, most: int) -> None:
    prompts = body.prompts()
    if len(prompts) * body.n > MOST_CHOICES:
        raise ApiError(
            400,
            f"n times the prompts must be {MOST_CHOICES} at most; got {len(prompts) * body.n}.",
            param="n",
        )
    if body.n > 1 and body.temperature == 0:
        raise ApiError(400, "n must be 1 with temperature 0, which writes one text.", param="n")
    if body.tokens() > most:
        raise ApiError(
            400,
            f"a request may have {most:,} tokens; with max_tokens these are {body.tokens():,}.",
            param="max_tokens",
        )


def written(model: Model, body: CompletionsBody) -> Generator[list[int] | list[Added], None, None]:
    """How many tokens each prompt has, then what each step adds."""
    seed = secrets.randbits(63) if body.seed is None else body.seed
    choice = Sampling(temperature=body.temperature, top_p=body.top_p, seed=seed) if body.temperature else None
    try:
        read, steps = along(
            model.loaded,
            model.tokenizer,
            body.prompts(),
            choice=choice,
            count=body.n,
            stop=body.stop or (),
            rules=Rules.of(model.loaded, max_length=body.max_tokens),
            top=body.logprobs or 0,
        )
        first = next(steps)  # what is too long for the model is found here
        yield read
        yield first
        yield from steps
    except InputError as error:
        told = str(error).replace("texts[", "prompt[").replace("max_length", "max_tokens")
        param = "model" if told.startswith("model") else "max_tokens" if "max_tokens" in told else "prompt"
        raise ApiError(400, told, param=param) from error


class _Written:
    """A choice as it is written: what came since it was told last."""

    def __init__(self, index: int, logprobs: int | None) -> None:
        self._index, self._logprobs = index, logprobs
        self._clear()

    def _clear(self) -> None:
        self._text, self._added, self._end = "", list[Added](), ""

    def add(self, added: Added) -> None:
        self._text += added.text
        self._end = added.end
        if added.token is not None:
            self._added.append(added)

    def told(self) -> dict[str, Any]:
        """As OpenAI writes a choice; what is told is not told again."""
        choice = {
            "index": self._index,
            "text": self._text,
            "logprobs": None if self._logprobs is None else _logprobs(self._added),
            "finish_reason": self._end or None,
        }
        self._clear()
        return choice

    @property
    def has_news(self) -> bool:
        """Whether there is text, or an end, to be told."""
        return bool(self._text or self._end)


def _logprobs(added: list[Added]) -> dict[str, Any]:
    tokens = [each.token for each in added if each.token is not None]
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_probability for token in tokens],
        "top_logprobs": [{token.text: token.log_probability for token in each.likeliest} for each in added],
        "text_offset": [token.start for token in tokens],
    }


def _usage(read: list[int], count: int) -> dict[str, int]:
    return {"prompt_tokens": sum(read), "completion_tokens": count, "total_tokens": sum(read) + count}


def _head(name: str) -> dict[str, Any]:
    id = f"cmpl-{secrets.token_hex(12)}"
    return {"id": id, "object": "text_completion", "created": int(time.time()), "model": name}


async def _whole(name: str, body: CompletionsBody, pieces: AsyncIterator[Any]) -> dict[str, Any]:
    read = await anext(pieces)
    choices = [_Written(index, body.logprobs) for index in range(len(read) * body.n)]
    count = 0
    async for step in pieces:
        for added in step:
            choices[added.way].add(added)
            count += added.token is not None
    return _head(name) | {"choices": [each.told() for each in choices], "usage": _usage(read, count)}


async def _events(
    name: str, body: CompletionsBody, read: list[int], pieces: AsyncIterator[Any]
) -> AsyncIterator[bytes]:
    """The stream: an event for each piece of text, and "[DONE]", or an error that came on the way."""
    head = _head(name)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    choices = [_Written(index, body.logprobs) for index in range(len(read) * body.n)]
    count = 0
    try:
        async for step in pieces:
            for added in step:
                choices[added.way].add(added)
                count += added.token is not None
            for each in choices:
                if each.has_news:
                    yield _event(head | {"choices": [each.told()]} | ({"usage": None} if with_usage else {}))
        if with_usage:
            yield _event(head | {"choices": [], "usage": _usage(read, count)})
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield _event(error.body)
    except Exception:
        yield _event(ApiError(500, "the server failed at this text; its log says where.").body)
        raise


def _event(told: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(told) + b"\n\n"
