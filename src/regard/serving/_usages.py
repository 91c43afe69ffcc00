"""`POST /v1/usages/search`: the concordance, as `regard find` asks it, and `GET /usages`, by hand."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from regard.api import Model
from regard.concordance import Concordance
from regard.core.errors import InputError
from regard.serving._engine import Engine
from regard.serving._limits import PAGE_ERRORS, PAGE_HEADERS, ApiError, Body, answered, answers
from regard.views import usages_page

router = APIRouter()

MOST_REASONS: Final = 20  # lines that tell why they fit: each is read again without each of its words
# A turn that computes vectors gives way to others after so long.
_TURN_S: Final = 2.0
_QUERY_S: Final = 2.0  # that a query of the index may take
_TOKENS: Final = 512  # what a search counts as, in the queue

Short = Annotated[str, Field(min_length=1, max_length=1000)]
Shorts = Annotated[list[Short], Field(max_length=20)]
Uses = Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1000)]


class UsagesBody(Body):
    """A word, and what it means: the arguments of `Concordance.find`."""

    word: Annotated[Short | None, Field(description="Or words, or /a pattern/.", examples=["bank"])] = None
    sentence: Annotated[
        Annotated[str, Field(min_length=1, max_length=5000)] | None,
        Field(
            description="Where it means what is looked for; one that stands there twice is *marked*.",
            examples=["She sat on the bank of the stream."],
        ),
    ] = None
    index: Annotated[str | None, Field(description="The name of the index; there is one.")] = None
    where: Annotated[Shorts, Field(description="Must all hold.", examples=[["genre=news"]])] = []
    k: Annotated[int, Field(ge=1, le=1000, description="The most lines.")] = 20
    sort: Annotated[Shorts, Field(description="By words around: L1, R2, node.", examples=[["R1", "L1"]])] = []
    sample: Annotated[int | None, Field(ge=1, description="So many uses, drawn at random.")] = None
    seed: Annotated[int, Field(ge=0)] = 0
    more: Annotated[Uses, Field(description="Numbers of uses that are what is looked for.")] = []
    less: Annotated[Uses, Field(description="Numbers of uses that are not.")] = []
    why: Annotated[bool, Field(description="Whether each line tells which words make it fit.")] = False
    any_word: Annotated[bool, Field(description="Other words that are used so.")] = False


class UsagesAnswer(BaseModel):
    """Lines as `regard find --json` gives them."""

    object: Literal["list"]
    index: str
    total: int
    about: str
    lines: list[dict[str, Any]]


_FOUND: Final = {"object": "list", "index": "corpus", "total": 1, "about": "", "lines": [{"node": "bank"}]}


@router.get("/usages", response_class=HTMLResponse, responses=PAGE_ERRORS, tags=["pages"])
async def by_hand(request: Request) -> Response:
    """The concordance, to be searched by hand."""
    usages = _usages_of(request)
    return HTMLResponse(usages_page(usages.name, usages.size, usages.fields), headers=PAGE_HEADERS)


@router.post(
    "/v1/usages/search", response_model=UsagesAnswer, responses=answers(_FOUND), tags=["concordance"]
)
async def search(body: UsagesBody, request: Request) -> Response:
    """Find the uses of a word in the corpus, those first that mean what it means in a sentence."""
    usages = _usages_of(request)
    if body.index not in (None, usages.name):
        message = f"index must be {usages.name}; got {body.index!r}."
        raise ApiError(404, message, param="index", code="index_not_found")
    if body.why and body.k > MOST_REASONS:
        raise ApiError(400, f"k must be {MOST_REASONS} at most with why; got {body.k}.", param="k")
    # Loads the model, or answers 503 where there is no room for it.
    request.app.state.service.engine(usages.engine.name)
    uses = await usages.find(body.model_dump(exclude={"index"}))
    return answered({"object": "list", "index": usages.name} | uses)


def _usages_of(request: Request) -> "Usages":
    there: Usages | None = request.app.state.service.usages
    if there is None:
        raise ApiError(404, "this server has no concordance; `regard serve --index` gives it one.")
    return there


class _NotYet(Exception):
    """A turn is over, and vectors are missing; what it computed is kept."""


class Usages:
    """The concordance at work: one index, on the thread of the model that its vectors are of."""

    def __init__(self, folder: Path, engines: Mapping[str, Engine], timeout: float) -> None:
        there = Concordance(folder)
        self.name, self.size, self._folder, self._timeout = folder.name, there.size, folder, timeout
        self.fields = there.fields
        # An index without vectors fits any model.
        fitting = [engine for engine in engines.values() if _is_of(there, engine)]
        if not fitting:
            wanted = "index must have vectors of a model that is served, or none"
            raise InputError(f"{wanted}; {folder.name!r} has others.")
        self.engine = fitting[0]

    async def find(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What `Concordance.find` gives; 503 where it takes longer; the next request goes on."""
        ends = time.monotonic() + self._timeout
        while True:
            try:
                return await self.engine.call(partial(self._find, asked=asked), tokens=_TOKENS)
            except _NotYet as error:
                # What was computed is kept: the next request is faster.
                if time.monotonic() > ends:
                    message = f"this word's vectors are being computed, {error}; ask again, or give sample."
                    raise ApiError(503, message, code="timeout", retry_after=1) from error

    def _find(self, model: Model, asked: Mapping[str, Any]) -> dict[str, Any]:
        kept = self.engine.kept
        # Kept with the engine, since it holds the loaded model.
        if "concordance" not in kept:
            kept["concordance"] = Concordance(self._folder, model)
        concordance: Concordance = kept["concordance"]
        ends = time.monotonic() + _TURN_S

        # Called between batches of vectors: there a turn can end.
        def go_on(done: int, total: int) -> None:
            if done < total and time.monotonic() > ends:
                raise _NotYet(f"{done:,} of {total:,} in this turn")

        # A regular expression of a stranger must not take the thread for ever.
        with concordance.within(_QUERY_S):
            lines = concordance.find(**asked, progress=go_on)
        return {"total": lines.total, "about": lines.about, "lines": lines.to_rows()}


def _is_of(concordance: Concordance, engine: Engine) -> bool:
    """Whether the vectors of an index, if any, are of a model; of one that is not loaded its name says it."""
    if (model := getattr(engine, "model", None)) is not None:
        return concordance.fits(model)
    return concordance.model_name in (None, engine.source_name)
