"""`GET /`: the page on the server's models; `POST /v1/page`: what it asks; `GET /answers/ID`: an answer's."""

import math
from dataclasses import replace
from functools import partial
from html import escape
from importlib.util import find_spec
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field

from regard.api import Model
from regard.core.errors import InputError, MissingExtraError
from regard.serving._engine import Engine
from regard.serving._jobs import estimate
from regard.serving._limits import (
    PAGE_ERRORS,
    PAGE_HEADERS,
    ApiError,
    Body,
    ModelName,
    Pair,
    answered,
    answers,
)
from regard.serving._service import Messages, Service, service_of
from regard.serving._traces import MOST_MB
from regard.text import read_back
from regard.tracing import (
    DraggedWeight,
    PageRequest,
    Reads,
    WriteRequest,
    page_answer,
    preview,
    served_page,
    trace_read,
    writing_page,
)
from regard.views import ServedRecord

router = APIRouter(tags=["pages"])

_OPENINGS = ("The trophy does not fit into the suitcase because it is too big.", "a river bank", "a")
_MOST_WRITTEN: Final = 30  # tokens
# By engine: a page is made once, and goes when the engine goes.
_pages: WeakKeyDictionary[Engine, dict[bool, str]] = WeakKeyDictionary()

_TWO_STACKS: Final = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{model}</title>
<main>
<h1>{model} reads with an encoder and writes with a decoder</h1>
<p>One cannot type sentences for such a model here. What there is:</p>
<ul>
<li><a href="?model={quoted}&amp;example=true">An example</a>: a sentence, what the model writes, every head.
<li>The same for your own: <code>regard look TEXT --target TEXT</code> where the model lies, or from this
server <code>/v1/trace</code> with <code>"target"</code> and <code>"html": true</code>.
<li>Models of this server: {others}
</ul>
</main>
"""

Text = Annotated[str, Field(max_length=20_000)]


class Weight(Body):
    """A weight of a row that gets another value."""

    layer: int
    head: int
    query: int
    key: int
    value: Annotated[float, Field(ge=0, le=1)]


class Write(Body):
    """How the next word is chosen."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    drawn: Annotated[float | None, Field(ge=0, le=1, description="By which one is written first.")] = None


class PageBody(Body):
    """What the page asks: a text, heads that are off, and weights that were dragged."""

    text: Annotated[Text, Field(examples=["A man sat on the river bank."])]
    model: ModelName = None
    pair: Annotated[Text, Field(min_length=1)] | None = None
    off: Annotated[list[Pair], Field(max_length=4096, examples=[[[3, 5]]])] = []
    weights: Annotated[list[Weight], Field(max_length=256)] = []
    unseen: Annotated[list[int], Field(max_length=64, description="Tokens that no other may look at.")] = []
    second: Annotated[Text, Field(description="A text to compare with.")] = ""
    word: Annotated[int | None, Field(description="A token of the word that is drawn in both texts.")] = None
    near: Annotated[int | None, Field(description="Words that may stand in a token's place, alone.")] = None
    write: Annotated[Write | None, Field(description="What comes next, and nothing else.")] = None

    def asked(self) -> PageRequest:
        """The same, for the model."""
        weights = [DraggedWeight(**each.model_dump()) for each in self.weights]
        write = None if self.write is None else WriteRequest(**self.write.model_dump())
        plain = self.model_dump(exclude={"model", "weights", "write"})
        return PageRequest(**plain, weights=weights, write=write)


@router.get("/", response_class=HTMLResponse, responses=PAGE_ERRORS)
async def page(
    request: Request, model: str | None = None, example: bool = False, text: Text | None = None
) -> Response:
    """The page: type a sentence, and see every view of it on a model of this server.

    With `text` it opens on that sentence, and a link to it is drawn with a picture of it; where requests need
    a key, the page asks for the sentence itself. A model with an encoder and a decoder has a page that says
    what there is for it, and an example.
    """
    service = service_of(request)
    # The first model that one can type sentences for.
    typed = (name for name, each in service.engines.items() if _is_typed_for(each))
    name = next(typed, next(iter(service.engines))) if model is None else model
    engine = service.engines.get(name)
    # With keys a stranger must not have a text read by opening a link.
    if text is not None and not service.settings.keys and (html := await _opened(request, name, text)):
        return HTMLResponse(html, headers=PAGE_HEADERS)
    # A page that is kept needs no model in memory.
    if engine is None or example not in _pages.get(engine, {}):
        engine = service.engine(name)
        make = partial(_made, service=service, name=name, example=example)
        _pages.setdefault(engine, {})[example] = await engine.call(make, tokens=estimate(_OPENINGS[0]))
    return HTMLResponse(_pages[engine][example], headers=PAGE_HEADERS)


def _served(service: Service, name: str) -> ServedRecord:
    """What the page of a model that is loaded knows of the server."""
    pooling, usages = service.engines[name].embedder.sentence.plain_pooling, service.usages is not None
    return ServedRecord(model=name, models=tuple(service.engines), usages=usages, pooling=pooling)


async def _opened(request: Request, name: str, text: str) -> str | None:
    """The page with a text; None where it cannot be read, which the page itself then says."""
    service = service_of(request)
    asked = urlencode({"model": name, "text": text})
    # The addresses of the page and of its picture, for previews of links.
    addresses = [escape(f"{request.base_url}{path}?{asked}") for path in ("", "v1/picture")]
    make = partial(_linked, service=service, name=name, text=text, addresses=addresses)
    try:
        return await service.engine(name).call(make, tokens=estimate(text))
    except InputError:
        return None


def _linked(model: Model, service: Service, name: str, text: str, addresses: list[str]) -> str:
    page = served_page(model.loaded, text, served=_served(service, name))
    # Without words, or without matplotlib, there is no picture to link to.
    drawn = addresses if page.preview.words and find_spec("matplotlib") else addresses[:1]
    return page.html.replace(page.preview.head(), page.preview.head(*drawn), 1)


@router.get("/v1/picture", response_class=Response, responses=answers())
async def picture(text: Text, request: Request, model: ModelName = None) -> Response:
    """A PNG of 1200 x 630 pixels, for links to the page with this text: its front door in small."""
    service = service_of(request)
    # The name that the server knows it by, which the picture shows.
    name = model or next(iter(service.engines))
    png = await service.engine(name).call(partial(_drawn, text=text, name=name), tokens=estimate(text))
    return Response(png, media_type="image/png", headers={"Cache-Control": "max-age=3600"})


def _drawn(model: Model, text: str, name: str) -> bytes:
    try:
        return preview(model.loaded, text, name).png()
    # matplotlib is optional: 404 says that there are no pictures here.
    except MissingExtraError as error:
        raise ApiError(404, str(error), code="no_pictures") from error


@router.get("/answers/{id}", response_class=HTMLResponse, responses=PAGE_ERRORS)
async def answer_page(id: str, request: Request, choice: int = 0) -> Response:
    """The page of a chat with its answer, which the answer names: message by message, every head on all of
    their tokens.
    """
    service = service_of(request)
    name, messages, ids = service.answers.choice_of(id, choice)
    make = partial(_of_answer, messages=messages, ids=ids, name=name)
    html = await service.engine(name).call(make, tokens=len(ids))
    return HTMLResponse(html, headers=PAGE_HEADERS)


def _of_answer(model: Model, messages: Messages, ids: list[int], name: str) -> str:
    try:
        # The tokens as they were, not the text encoded anew: the model may write in other pieces.
        trace = trace_read(model.loaded, read_back(ids, model.tokenizer))
    except InputError as error:  # the memory does not suffice
        raise ApiError(413, str(error), code="too_large") from error
    # The template again, for where each message stands.
    chat = model.tokenizer.chat(messages)
    return writing_page(replace(trace, model=name), None, chat=chat, max_mb=MOST_MB).html


_TOLD = {
    "facts": {"sides": {}, "kinds": {}, "story": {}},
    "blocks": {"encoder-0-q": "base64"},
    "encoded": {"ids": [101, 1037, 2924, 102], "words": ["a", "bank"], "tokens": []},
    "contextual": "base64",
    "predicted": [],
    "likeness": 0.37,
    "beside": {"words": ["bank", "bank"]},
    "milliseconds": 90.5,
}


@router.post("/v1/page", responses=answers(_TOLD))
async def answer(body: PageBody, request: Request) -> Response:
    """What the page is told of a text: its facts, and its arrays as base64."""
    engine = service_of(request).engine(body.model)
    work = partial(_answered, engine=engine, asked=body.asked())
    return answered(await engine.call(work, tokens=estimate(body.text) + estimate(body.second)))


def _is_typed_for(engine: Engine) -> bool:
    model = getattr(engine, "model", None)  # where it is loaded
    return model is None or len(model.network.prefixes) == 1


def _made(model: Model, service: Service, name: str, example: bool) -> str:
    # A model with few positions gets a shorter sentence; a decoder one to go on with.
    limit = model.network.limit(next(iter(model.network.prefixes))) or math.inf
    openings = ("The capital of France is", *_OPENINGS)["encoder" in model.network.prefixes :]
    fitting = (text for text in openings if len(model.tokenizer.encode(text).tokens) <= limit)
    opening = next(fitting, _OPENINGS[-1])
    if len(model.network.prefixes) == 1:
        return served_page(model.loaded, opening, served=_served(service, name)).html
    if not example:
        others = ", ".join(f'<a href="?model={quote(each)}">{escape(each)}</a>' for each in service.engines)
        # An encoder-decoder writes: a page for typing would have to wait for that.
        return _TWO_STACKS.format(model=escape(name), quoted=quote(name), others=others)
    # Half of what the decoder takes, so that the page of it fits.
    most = model.network.limit("decoder") or 2 * _MOST_WRITTEN
    written = model.generate(opening, max_length=min(_MOST_WRITTEN, most // 2)).text
    trace = model.trace(opening, target=written if written.strip() else opening)
    return replace(trace, model=name).page().html


def _answered(model: Model, engine: Engine, asked: PageRequest) -> dict[str, Any]:
    # Reads are kept with the engine: a page asks about the same text several times.
    reads = engine.kept.setdefault("reads", Reads())
    return page_answer(model.loaded, asked, pooling=engine.embedder.sentence.plain_pooling, reads=reads)
