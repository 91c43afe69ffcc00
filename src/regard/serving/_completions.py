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
from regard.serving._jobs import estimate
from regard.serving._limits import ApiError, Body, ModelName, answered, answers
from regard.serving._service import service_of

router = APIRouter()

MOST_CHOICES: Final = 64  # texts that a request has written at once

Ids = Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=2**17)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Stops = Annotated[list[Stop], Field(max_length=4)]
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
    stop: Annotated[Stop | Stops | None, Field(description="Texts before which it ends.")] = None
    logprobs: Annotated[int | None, Field(ge=0, le=5, description="So many likely tokens a step.")] = None
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


@router.post("/v1/completions", responses=answers(_COMPLETED), tags=["OpenAI"])
async def completions(body: CompletionsBody, request: Request) -> Response:
    """Go on from prompts, with a decoder; as a stream of server-sent events where that is asked for."""
    service = service_of(request)
    engine = service.engine(body.model)
    _check(body, service.settings.max_tokens)
    pieces: AsyncIterator[Any] = engine.stream(partial(written, body=body), tokens=body.tokens())
    writing = _Writing(engine.name, body, await anext(pieces))  # a wrong prompt is found here
    if body.stream:
        events = _events(writing, pieces, body.stream_options or StreamOptions())
        kept = {"Cache-Control": "no-cache"}
        return StreamingResponse(events, media_type="text/event-stream", headers=kept)
    async for step in pieces:
        writing.add(step)
    return answered(writing.head | {"choices": writing.told(all=True), "usage": writing.usage})


def _check(body: CompletionsBody, most: int) -> None:
    choices, tokens = len(body.prompts()) * body.n, body.tokens()
    if choices > MOST_CHOICES:
        told = f"n times the prompts must be {MOST_CHOICES} at most; got {choices}."
        raise ApiError(400, told, param="n")
    if body.n > 1 and not body.temperature:
        raise ApiError(400, "n must be 1 with temperature 0, which writes one text.", param="n")
    if tokens > most:
        told = f"a request may have {most:,} tokens; with max_tokens these are {tokens:,}."
        raise ApiError(400, told, param="max_tokens")


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


class _Writing:
    """What is being written: the news of each choice since they were told last, and all tokens counted."""

    def __init__(self, name: str, body: CompletionsBody, read: list[int]) -> None:
        self._read, self._logprobs, self._count = read, body.logprobs, 0
        self._news: list[list[Added]] = [[] for _ in range(len(read) * body.n)]
        id = f"cmpl-{secrets.token_hex(12)}"
        self.head = {"id": id, "object": "text_completion", "created": int(time.time()), "model": name}

    def add(self, step: list[Added]) -> None:
        """Take what a step adds."""
        for added in step:
            self._news[added.way].append(added)
            self._count += added.token is not None

    def told(self, *, all: bool) -> list[dict[str, Any]]:
        """All choices, or those with text or an end, as OpenAI writes them; nothing is told twice."""
        choices = []
        for index, news in enumerate(self._news):
            text, ends = "".join(each.text for each in news), [each.end for each in news if each.end]
            if all or text or ends:
                logprobs = None if self._logprobs is None else _logprobs(news)
                end = ends[-1] if ends else None
                choices.append({"index": index, "text": text, "logprobs": logprobs, "finish_reason": end})
                self._news[index] = []
        return choices

    @property
    def usage(self) -> dict[str, int]:
        """Tokens that were read and written."""
        read = sum(self._read)
        all = read + self._count
        return {"prompt_tokens": read, "completion_tokens": self._count, "total_tokens": all}


def _logprobs(news: list[Added]) -> dict[str, Any]:
    added = [each for each in news if each.token is not None]
    tokens = [each.token for each in added if each.token is not None]
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_probability for token in tokens],
        "top_logprobs": [{token.text: token.log_probability for token in each.likeliest} for each in added],
        "text_offset": [token.start for token in tokens],
    }


async def _events(
    writing: _Writing, pieces: AsyncIterator[Any], options: StreamOptions
) -> AsyncIterator[bytes]:
    """The stream: an event for each piece of text, and "[DONE]", or an error that came on the way."""
    try:
        async for step in pieces:
            writing.add(step)
            for choice in writing.told(all=False):
                usage = {"usage": None} if options.include_usage else {}
                yield _event(writing.head | {"choices": [choice]} | usage)
        if options.include_usage:
            yield _event(writing.head | {"choices": [], "usage": writing.usage})
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield _event(error.body)
    except Exception:
        yield _event(ApiError(500, "the server failed at this text; its log says where.").body)
        raise


def _event(told: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(told) + b"\n\n"
