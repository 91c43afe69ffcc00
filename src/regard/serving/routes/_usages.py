"""`POST /v1/usages/search`: the concordance, as `regard find` asks it."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from regard.serving._errors import ApiError
from regard.serving._schema import Body, answered, errors
from regard.serving._service import service_of

router = APIRouter()

MOST_REASONS: Final = 20
"""Lines that tell why they fit: each is read again without each of its words."""

Short = Annotated[str, Field(min_length=1, max_length=1000)]
Uses = Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1000)]


class UsagesBody(Body):
    """A word, and what it means: the arguments of `Concordance.find`."""

    word: Annotated[
        Short | None,
        Field(description="A word, some in a row, or a pattern, /banks?/.", examples=["bank"]),
    ] = None
    sentence: Annotated[
        Annotated[str, Field(min_length=1, max_length=5000)] | None,
        Field(
            description="Where it means what is looked for; one that stands there twice is *marked*.",
            examples=["She sat on the bank of the stream."],
        ),
    ] = None
    index: Annotated[str | None, Field(description="The name of the index; there is one.")] = None
    where: Annotated[
        list[Short],
        Field(max_length=20, description="Conditions that must all hold.", examples=[["genre=news"]]),
    ] = []
    k: Annotated[int, Field(ge=1, le=1000, description="The most lines.")] = 20
    sort: Annotated[
        list[Short],
        Field(max_length=10, description="By the words around: L1, R2, node.", examples=[["R1", "L1"]]),
    ] = []
    sample: Annotated[int | None, Field(ge=1, description="So many uses, drawn at random.")] = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    more: Annotated[Uses, Field(description="Numbers of uses that are what is looked for.")] = []
    less: Annotated[Uses, Field(description="Numbers of uses that are not.")] = []
    why: Annotated[bool, Field(description="Whether each line tells which words make it fit.")] = False
    any_word: Annotated[bool, Field(description="Other words that are used so.")] = False


class UsagesAnswer(BaseModel):
    """Lines as `regard find --json` gives them."""

    object: str
    index: str
    total: int
    about: str
    lines: list[dict[str, Any]]


@router.post("/v1/usages/search", response_model=UsagesAnswer, responses=errors(504), tags=["concordance"])
async def search(body: UsagesBody, request: Request) -> Response:
    """Find the uses of a word in the corpus, those first that mean what it means in a sentence."""
    service = service_of(request)
    usages = service.usages
    if usages is None:
        raise ApiError(404, "this server has no concordance; `regard serve --index` gives it one.")
    if body.index not in (None, usages.name):
        raise ApiError(
            404, f"index must be {usages.name}; got {body.index!r}.", param="index", code="index_not_found"
        )
    if body.why and body.k > MOST_REASONS:
        raise ApiError(400, f"k must be {MOST_REASONS} at most with why; got {body.k}.", param="k")
    service.engine(usages.engine.name)  # there is room for it
    found = await usages.find(body.model_dump(exclude={"index"}))
    told = {"object": "list", "index": usages.name} | found
    return answered(told)
