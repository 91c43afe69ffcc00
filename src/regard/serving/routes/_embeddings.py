"""`POST /v1/embeddings`, as OpenAI defines it."""

from base64 import b64encode
from typing import Annotated, Any, Final, Literal, cast

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from regard.serving._engine import Engine
from regard.serving._errors import ApiError
from regard.serving._jobs import Overlong
from regard.serving._schema import Body, ModelName, answered, errors, example
from regard.serving._service import Service, service_of

router = APIRouter()

BUSIEST: Final = "/v1/embeddings"
"""The path, for whom each microsecond counts."""


class EmbeddingsBody(Body):
    """Texts that want a vector each."""

    input: Annotated[
        Any,
        Field(
            description="A text, a list of texts, the token ids of one text, or a list of such. Token ids "
            "are read as given: with their special tokens, if they have any.",
            examples=["a river bank", ["a river bank", "a bank account"], [101, 1037, 2314, 2924, 102]],
            json_schema_extra={
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                    {
                        "type": "array",
                        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                        "minItems": 1,
                    },
                ]
            },
        ),
    ]
    model: ModelName = None
    encoding_format: Annotated[
        Literal["float", "base64"], Field(description="base64: of float32, little-endian.")
    ] = "float"
    dimensions: Annotated[
        int | None, Field(ge=1, description="The first numbers only; of models trained for it.")
    ] = None
    overlong: Annotated[
        Overlong,
        Field(
            description="A text that is longer than the model takes is refused, truncated, or read in "
            "overlapping windows whose tokens are pooled together. Not OpenAI's."
        ),
    ] = "refuse"
    user: Annotated[str | None, Field(description="Not used.")] = None


class Vector(BaseModel):
    """The vector of a text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: Annotated[int | None, Field(description="The tokens that were left out, if any.")] = None


class Usage(BaseModel):
    """Tokens, special ones included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """Vectors in the order of the texts."""

    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: Usage


_EXAMPLE: Final = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.02, 0.0603, -0.0754]}],
    "model": "sentence-transformers/all-MiniLM-L6-v2",
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}


@router.post(
    BUSIEST,
    response_model=EmbeddingsAnswer,
    responses=errors(504) | example(_EXAMPLE),
    tags=["OpenAI"],
)
async def embeddings(body: EmbeddingsBody, request: Request) -> Response:
    """Embed texts: one vector each."""
    return await embedded(body, service_of(request))


async def embedded(body: EmbeddingsBody, service: Service) -> Response:
    """The same, asked without FastAPI."""
    engine = service.engine(body.model)
    made = await engine.embed(_checked(body.input, service), overlong=body.overlong)
    vectors = made.vectors if body.dimensions is None else _cut(made.vectors, body.dimensions, engine)
    shown = _base64 if body.encoding_format == "base64" else list
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(shown(vectors))
    ]
    for place, cut in enumerate(made.cut):
        if cut:
            data[place]["truncated"] = cut
    tokens = sum(made.tokens) - sum(made.cut)
    answer = {
        "object": "list",
        "data": data,
        "model": engine.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return answered(answer)


def _checked(given: Any, service: Service) -> list[str] | list[list[int]]:
    """A list of texts, or of lists of ids.

    Raises:
        ApiError: it is neither, and where.
    """
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or not given:
        came = "an empty list" if given == [] else "something else"
        raise _wrong(f"input must be a text, a list of texts, or token ids; got {came}.")
    if all(type(each) is int for each in given):
        given = [given]
    if len(given) > service.settings.max_texts:
        raise _wrong(f"input may have {service.settings.max_texts:,} texts; got {len(given):,}.")
    kind = type(given[0])
    for place, each in enumerate(given):
        if type(each) is not kind or not (isinstance(each, str) or _is_ids(each)):
            raise _wrong(f"input[{place}] must be {'a text' if kind is str else 'token ids'} as input[0] is.")
        if not each or (isinstance(each, str) and not each.strip()):
            raise _wrong(f"input[{place}] must not be empty.")
    return cast(list[str] | list[list[int]], given)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _wrong(message: str) -> ApiError:
    return ApiError(400, message, param="input")


def _cut(vectors: NDArray[np.float32], size: int, engine: Engine) -> NDArray[np.float32]:
    known = engine.dimensions
    if size == engine.width:
        return vectors
    if size not in known:
        told = f"{known[0]}" if len(known) == 1 else f"one of {', '.join(map(str, known))}"
        raise ApiError(400, f"dimensions must be {told} for this model; got {size}.", param="dimensions")
    part = vectors[:, :size]
    return np.ascontiguousarray(part / np.linalg.norm(part, axis=1, keepdims=True))


def _base64(vectors: NDArray[np.float32]) -> list[str]:
    return [b64encode(vector).decode() for vector in vectors.astype("<f4", copy=False)]
