"""`POST /v1/completions`, as OpenAI defines it, of decoders; and how any answer is written and told."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BeforeValidator, Field

from regard.api import Model
from regard.core.errors import InputError
from regard.decoding import Added, Rules, Sampling, along
from regard.serving._jobs import TOO_LONG, estimate
from regard.serving._limits import ApiError, Body, ModelName, answered, answers
from regard.serving._service import Messages, service_of

router = APIRouter()

T = TypeVar("T")
MOST_CHOICES: Final = 64  # texts that a request has written at once

Ids = Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=2**17)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Stops = Annotated[list[Stop], Field(max_length=4)]
Prompt = Annotated[str, Field(min_length=1, max_length=2**19)]
Several = Annotated[list[T], Field(min_length=1)]
Prompts = Callable[[Model], Sequence[str | Sequence[int]]]
"""What a model is given to read."""


# To Python 0 is False.
No = Annotated[Literal[False], BeforeValidator(lambda given: given if given is False else str(given))]


class StreamOptions(Body, extra="ignore"):
    """How a stream ends."""

    include_usage: bool = False
    include_obfuscation: Annotated[bool, Field(description="Not used.")] = False


class WritingBody(Body):
    """How a text is to be written."""

    model: ModelName = None
    temperature: Annotated[float, Field(ge=0, le=2, description="0 takes the likeliest token.")] = 1.0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES, description="So many of each prompt.")] = 1
    seed: Annotated[int | None, Field(description="The same one writes the same.")] = None
    stop: Annotated[Stop | Stops | None, Field(description="Texts before which it ends.")] = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Annotated[str | None, Field(description="Not used.")] = None
    presence_penalty: Annotated[float, Field(ge=0, le=0, description="Not there.")] = 0
    frequency_penalty: Annotated[float, Field(ge=0, le=0, description="Not there.")] = 0
    logit_bias: Annotated[dict[str, float], Field(max_length=0, description="Not there.")] = {}


class CompletionsBody(WritingBody):
    """Prompts to go on from."""

    prompt: Annotated[
        Prompt | Ids | Several[Prompt] | Several[Ids],
        Field(description="A text, several, or their token ids.", examples=["A river", [[32, 7850]]]),
    ]
    max_tokens: Annotated[int, Field(ge=1, le=2**16)] = 16
    logprobs: Annotated[int | None, Field(ge=0, le=5, description="So many likely tokens a step.")] = None
    echo: Annotated[No, Field(description="Not there.")] = False
    suffix: Annotated[None, Field(description="Not there.")] = None
    best_of: Annotated[int | None, Field(ge=1, le=1, description="Not there.")] = None

    def prompts(self) -> list[str | list[int]]:
        """One or several, as a list."""
        # A list of numbers is one prompt, in tokens.
        given: Any = self.prompt
        return [given] if isinstance(given, str) or isinstance(given[0], int) else list(given)

    def tokens(self) -> int:
        """About how many are read and written."""
        # Read once for each prompt, written n times for each.
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
    prompts = body.prompts()
    return await answer(request, body, _FORM, lambda model: prompts)


class Form(NamedTuple):
    """How a route tells what is written.

    Attributes:
        id: how the ids of its answers begin.
        kinds: what a whole answer is called, and an event of a stream.
        texts: what errors call the texts, and what they are called in the body.
        choice: all of a choice, or what is new in it, and whether it is the first of it; `logprobs` too.
        has_page: whether a page shows the whole of what was read and written.
    """

    id: str
    kinds: tuple[str, str]
    texts: tuple[str, str]
    choice: Callable[[list[Added], bool, bool], dict[str, Any]]
    has_page: bool


async def answer(
    request: Request, body: CompletionsBody, form: Form, prompts: Prompts, messages: Messages = ()
) -> Response:
    """What is written after prompts, whole or as a stream; `messages` are those of a chat."""
    service = service_of(request)
    engine = service.engine(body.model)
    _check(body, service.settings.max_tokens)
    work = partial(written, body=body, form=form, prompts=prompts)
    # The first piece are the ids that were read: a wrong prompt is an error before the stream begins.
    pieces: AsyncIterator[Any] = engine.stream(work, tokens=body.tokens())
    read = await anext(pieces)
    keep = partial(service.answers.keep, model=engine.name, messages=messages)
    writing = _Writing(engine.name, body, form, read, keep)
    if body.stream:
        events = _events(writing, pieces, body.stream_options or StreamOptions())
        headers = {"Cache-Control": "no-cache"} | writing.headers
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)
    # Not streamed: all pieces are gathered, and told at once.
    async for step in pieces:
        writing.add(step)
    response = answered(writing.event(writing.choices(all=True), all=True) | {"usage": writing.usage})
    response.headers.update(writing.headers)
    return response


def _check(body: CompletionsBody, most: int) -> None:
    choices, tokens = len(body.prompts()) * body.n, body.tokens()
    if choices > MOST_CHOICES:
        message = f"n times the prompts must be {MOST_CHOICES} at most; got {choices}."
        raise ApiError(400, message, param="n")
    # Greedy writing gives the same text n times.
    if body.n > 1 and not body.temperature:
        raise ApiError(400, "n must be 1 with temperature 0, which writes one text.", param="n")
    if tokens > most:
        message = f"a request may have {most:,} tokens; with max_tokens these are {tokens:,}."
        raise ApiError(400, message, param="max_tokens")


def written(
    model: Model, body: CompletionsBody, form: Form, prompts: Prompts
) -> Generator[list[list[int]] | list[Added], None, None]:
    """The ids of each prompt, then what each step adds."""
    # A seed of the client's writes the same again; else one at random.
    seed = secrets.randbits(63) if body.seed is None else body.seed % 2**63
    choice = Sampling(temperature=body.temperature, top_p=body.top_p, seed=seed) if body.temperature else None
    try:
        how: dict[str, Any] = {"choice": choice, "count": body.n, "stop": body.stop or ()}
        begun = partial(along, model.loaded, model.tokenizer, prompts(model), top=body.logprobs or 0, **how)
        rules = Rules.of(model.loaded, max_length=body.max_tokens)
        read, steps = begun(rules=rules)
        # Too much for the model's context: less is written, unless the request insists.
        if body.max_tokens > (room := _room(model, max(map(len, read)), body, form)):
            read, steps = begun(rules=replace(rules, max_length=room))
        # The first step, before the ids are told: what is too long for the model is found here.
        first = next(steps)
        yield read
        yield first
        yield from steps
    except InputError as error:
        # Messages name arguments of Python: they get the names of the request.
        message = str(error).replace(*form.texts).replace("max_length", "max_tokens")
        param = form.texts[1].rstrip("[")
        param = "model" if message.startswith("model") else "max_tokens" if "max_tokens" in message else param
        code = TOO_LONG if "the model's" in message else None
        raise ApiError(400, message, param=param, code=code) from error


def _room(model: Model, read: int, body: CompletionsBody, form: Form) -> int:
    """How many tokens may be written after so many, of those that are asked for: as many as a decoder was
    made for. That is refused, if the request says how many it wants, or none are left.
    """
    context = context_of(model)
    # The last one is not read.
    room = body.max_tokens if context is None else context - read + 1
    if room < body.max_tokens and (room < 1 or "max_tokens" in body.model_fields_set):
        raise ApiError(
            400,
            f"This model's maximum context length is {context:,} tokens; these are "
            f"{read + body.max_tokens:,}: {read:,} to read and {body.max_tokens:,} to write. "
            "Send fewer, or lower max_tokens.",
            param="max_tokens" if room > 0 else form.texts[1].rstrip("["),
            code=TOO_LONG,
        )
    return room


def context_of(model: Model) -> int | None:
    """The most tokens that a decoder was made for, read and written; None where nothing says so."""
    network = model.network
    # Rotary positions have no hard limit: then the length of training counts.
    most = network.limit("decoder") or getattr(network.config, "max_seq_len", None)
    return most if len(network.prefixes) == 1 else None  # of two stacks, each has its own


class _Writing:
    """What is being written: the news of each choice since they were told last, and all tokens."""

    def __init__(
        self, name: str, body: CompletionsBody, form: Form, read: list[list[int]], keep: Callable[..., None]
    ) -> None:
        self._form, self._logprobs, self._read, self._keep = form, body.logprobs, read, keep
        # What each choice has gained since it was told; and all ids of each.
        self._news: list[list[Added]] = [[] for _ in range(len(read) * body.n)]
        self._ids: list[list[int]] = [[] for _ in self._news]
        self._ends, self._begun = 0, set[int]()
        self._id = f"{form.id}-{secrets.token_hex(12)}"
        self._head: dict[str, Any] = {"created": int(time.time()), "model": name}
        self.headers: dict[str, str] = {}
        if form.has_page:
            page = f"/answers/{self._id}"
            self._head["regard"], self.headers["X-Regard-Page"] = {"page": page}, page

    def add(self, step: list[Added]) -> None:
        """Take what a step adds; after the last end a page can show it."""
        for added in step:
            self._news[added.way].append(added)
            if added.token is not None:
                self._ids[added.way].append(added.token.id)
            self._ends += bool(added.end)
        # Every choice has ended: the page can show prompt and answer.
        if self._form.has_page and self._ends == len(self._ids):
            # Choices of one prompt follow each other.
            each = len(self._ids) // len(self._read)
            rows = [[*self._read[way // each], *ids] for way, ids in enumerate(self._ids)]
            self._keep(self._id, rows=rows)

    def choices(self, *, all: bool) -> list[dict[str, Any]]:
        """All choices, or those with text or an end, as OpenAI writes them; nothing is told twice."""
        choices = []
        for index, news in enumerate(self._news):
            end = next((each.end for each in news if each.end), None)
            # A step may add no text, as within a character: nothing to tell yet.
            if all or end or any(each.text for each in news):
                choice = {"index": index} | self._form.choice(news, all, index not in self._begun)
                if self._logprobs is None:
                    # OpenAI has null where no log probabilities were asked for.
                    choice["logprobs"] = None
                choices.append(choice | {"finish_reason": end})
                self._news[index] = []
                self._begun.add(index)
        return choices

    def event(self, choices: list[dict[str, Any]], *, all: bool = False) -> dict[str, Any]:
        """The answer, or an event of the stream."""
        return {"id": self._id, "object": self._form.kinds[not all], **self._head, "choices": choices}

    @property
    def usage(self) -> dict[str, int]:
        """Tokens that were read and written."""
        read, count = (sum(map(len, rows)) for rows in (self._read, self._ids))
        return {"prompt_tokens": read, "completion_tokens": count, "total_tokens": read + count}


def _choice(news: list[Added], whole: bool, first: bool) -> dict[str, Any]:
    # A completion tells a whole choice and a part of it alike.
    del whole, first
    added = [each for each in news if each.token is not None]
    tokens = [each.token for each in added if each.token is not None]
    logprobs = {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_probability for token in tokens],
        "top_logprobs": [{token.text: token.log_probability for token in each.likeliest} for each in added],
        "text_offset": [token.start for token in tokens],
    }
    return {"text": "".join(each.text for each in news), "logprobs": logprobs}


_FORM = Form("cmpl", ("text_completion", "text_completion"), ("texts[", "prompt["), _choice, has_page=False)


async def _events(
    writing: _Writing, pieces: AsyncIterator[Any], options: StreamOptions
) -> AsyncIterator[bytes]:
    """The stream: an event for each piece of text, and "[DONE]", or an error that came on the way."""
    try:
        async for step in pieces:
            writing.add(step)
            for choice in writing.choices(all=False):
                # OpenAI: every event has `usage`, null but in the last one.
                usage = {"usage": None} if options.include_usage else {}
                yield _event(writing.event([choice]) | usage)
        if options.include_usage:
            yield _event(writing.event([]) | {"usage": writing.usage})
        yield b"data: [DONE]\n\n"
    # The status was sent long ago: the error is an event of its own.
    except ApiError as error:
        yield _event(error.body)
    except Exception:
        yield _event(ApiError(500, "the server failed at this text; its log says where.").body)
        raise


def _event(told: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(told) + b"\n\n"
