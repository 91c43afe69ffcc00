"""`POST /v1/embeddings`, as OpenAI defines it, and `/v1/words`: a vector for each word in its context."""

from base64 import b64encode
from functools import partial
from typing import Annotated, Any, Final, Literal, cast

import numpy as np
import torch
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from regard.api import Model
from regard.core.errors import InputError
from regard.core.tensors import unit
from regard.embedding import Embeddings, Truncate, Windows, WordKind
from regard.serving._engine import Engine
from regard.serving._jobs import Overlong, estimate, too_long
from regard.serving._limits import FILLED, ApiError, Body, Filled, Format, ModelName, answered, answers
from regard.serving._service import Service, service_of

router = APIRouter()

BUSIEST: Final = "/v1/embeddings"  # where each microsecond counts
MOST_NUMBERS: Final = 2**22  # of an answer about words: 22 MB as base64


Long = Annotated[
    Overlong,
    Field(
        description="A text that is longer than the model takes is refused, truncated, or read in "
        "overlapping windows whose tokens are pooled together. Not OpenAI's."
    ),
]


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


_TEXT: Final = {"type": "string"} | FILLED
_ID: Final = {"type": "integer"}


class EmbeddingsBody(Body):
    """Texts that want a vector each."""

    input: Annotated[
        Any,
        Field(
            description="A text, a list of texts, the token ids of one text, or a list of such. Token ids "
            "are read as given: with their special tokens, if they have any.",
            examples=["a river bank", ["a river bank", "a bank account"], [101, 1037, 2314, 2924, 102]],
            json_schema_extra={"anyOf": [_TEXT, _list(_TEXT), _list(_ID), _list(_list(_ID))]},
        ),
    ]
    model: ModelName = None
    encoding_format: Format = "float"
    dimensions: Annotated[int | None, Field(ge=1, description="Fewer; of models trained for it.")] = None
    overlong: Long = "refuse"
    user: Annotated[str | None, Field(description="Not used.")] = None


class Vector(BaseModel):
    """The vector of a text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: Annotated[int | None, Field(description="The tokens that were left out, if any.")] = None


class EmbeddingsAnswer(BaseModel):
    """Vectors in the order of the texts."""

    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: Annotated[dict[str, int], Field(description="Tokens, special ones included.")]


_EMBEDDED: Final = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.02, 0.0603, -0.0754]}],
    "model": "sentence-transformers/all-MiniLM-L6-v2",
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}


@router.post(BUSIEST, response_model=EmbeddingsAnswer, responses=answers(_EMBEDDED), tags=["OpenAI"])
async def embeddings(body: EmbeddingsBody, request: Request) -> Response:
    """Embed texts: one vector each."""
    return await embedded(body, service_of(request))


async def embedded(body: EmbeddingsBody, service: Service) -> Response:
    """The same, asked without FastAPI."""
    engine = service.engine(body.model)
    # Tokenising, and the limits of a text, are the engine's.
    result = await engine.embed(_checked(body.input, service), overlong=body.overlong)
    vectors = result.vectors if body.dimensions is None else _cut(result.vectors, body.dimensions, engine)
    shown = _base64 if body.encoding_format == "base64" else list
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(shown(vectors))
    ]
    for item, passage in zip(data, result.passages, strict=True):
        if passage.cut:
            item["truncated"] = passage.cut
    # Truncated tokens were not read.
    usage = _usage(sum(passage.tokens - passage.cut for passage in result.passages))
    return answered({"object": "list", "data": data, "model": engine.name} | usage)


def _checked(texts: Any, service: Service) -> list[str] | list[list[int]]:
    """A list of texts, or of lists of ids; what is neither is refused, with its place."""
    if isinstance(texts, str):
        # The four forms of OpenAI become one: a list of texts, or of lists of ids.
        texts = [texts]
    if not isinstance(texts, list) or not texts:
        came = "an empty list" if texts == [] else "something else"
        raise _wrong(f"input must be a text, a list of texts, or token ids; got {came}.")
    if _is_ids(texts):
        texts = [texts]
    _check_count(texts, service)
    kind = type(texts[0])
    # The first says what they all must be.
    for place, entry in enumerate(texts):
        if type(entry) is not kind or not (isinstance(entry, str) or _is_ids(entry)):
            raise _wrong(f"input[{place}] must be {'a text' if kind is str else 'token ids'} as input[0] is.")
        if not entry or (isinstance(entry, str) and not entry.strip()):
            raise _wrong(f"input[{place}] must not be empty.")
    return cast(list[str] | list[list[int]], texts)


def _check_count(texts: list[Any], service: Service) -> None:
    if len(texts) > service.settings.max_texts:
        raise _wrong(f"input may have {service.settings.max_texts:,} texts; got {len(texts):,}.")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _wrong(message: str) -> ApiError:
    return ApiError(400, message, param="input")


def _cut(vectors: NDArray[np.float32], size: int, engine: Engine) -> NDArray[np.float32]:
    known = engine.dimensions
    # The whole width: nothing to cut.
    if size == engine.width:
        return vectors
    if size not in known:
        allowed = f"{known[0]}" if len(known) == 1 else f"one of {', '.join(map(str, known))}"
        raise ApiError(400, f"dimensions must be {allowed} for this model; got {size}.", param="dimensions")
    # A shorter vector is normalised again.
    return unit(torch.from_numpy(vectors[:, :size])).numpy()


def _usage(tokens: int) -> dict[str, dict[str, int]]:
    return {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _base64(vectors: NDArray[np.float32]) -> list[str]:
    return [b64encode(vector).decode() for vector in vectors.astype("<f4", copy=False)]


class WordsBody(Body):
    """Texts whose words want a vector each."""

    input: Annotated[
        Filled | Annotated[list[Filled], Field(min_length=1)],
        Field(description="A text, or a list of texts.", examples=["a river bank", ["a river bank"]]),
    ]
    model: ModelName = None
    level: Annotated[Literal["word", "token"], Field(description="Or the model's pieces.")] = "word"
    layer: Annotated[
        int | Annotated[list[int], Field(min_length=1, max_length=64)],
        Field(description="0 is the learned embedding, -1 the contextual one.", examples=[-1, [0, 4]]),
    ] = -1
    pooling: Annotated[WordKind, Field(description="How a word's pieces make one vector.")] = "mean"
    encoding_format: Format = "float"
    overlong: Long = "refuse"


class WordVector(BaseModel):
    """A word with its vector."""

    text: str
    start: Annotated[int, Field(description="In code points of its text.")]
    end: int
    unknown: Annotated[bool, Field(description="Whether the model has read [UNK] for it.")]
    embedding: list[float] | list[list[float]] | str


class TextWords(BaseModel):
    """The words of a text."""

    index: int
    words: list[WordVector]
    truncated: Annotated[int | None, Field(description="The tokens that were left out, if any.")] = None


class WordsAnswer(BaseModel):
    """The words of each text, in order."""

    object: Literal["list"]
    model: str
    layers: list[int] | None
    dimensions: int
    data: list[TextWords]
    usage: dict[str, int]


class TokensBody(Body):
    """A text to be cut into tokens."""

    prompt: Annotated[Filled, Field(max_length=2**19, examples=["a river bank"])]
    model: ModelName = None


_TOKENS: Final = {"tokens": [101, 1037, 2314, 2924, 102], "count": 5, "max_model_len": 256}


@router.post("/tokenize", responses=answers(_TOKENS), tags=["words"])
async def tokenize(body: TokensBody, request: Request) -> Response:
    """The ids of a text's tokens, special ones included, as vLLM's route gives them."""
    engine = service_of(request).engine(body.model)
    read = await engine.call(lambda model: model.tokenizer.encode(body.prompt), tokens=estimate(body.prompt))
    found = [token.id for token in read.tokens]
    return answered({"tokens": found, "count": len(found), "max_model_len": engine.embedder.limit})


_WORD: Final = {"text": "bank", "start": 8, "end": 12, "unknown": False, "embedding": [[0.02], [0.06]]}
_WORDS: Final = {
    "object": "list",
    "model": "sentence-transformers/all-MiniLM-L6-v2",
    "layers": [0, 4],
    "dimensions": 384,
    "data": [{"index": 0, "words": [_WORD]}],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}


@router.post("/v1/words", response_model=WordsAnswer, responses=answers(_WORDS), tags=["words"])
async def words(body: WordsBody, request: Request) -> Response:
    """Embed the words of texts, each in its context, at any layer."""
    service = service_of(request)
    engine = service.engine(body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    _check_count(texts, service)
    work = partial(_of_words, texts=texts, body=body, most=service.settings.max_tokens)
    embeddings = await engine.call(work, tokens=sum(map(estimate, texts)))
    return answered({"object": "list", "model": engine.name} | _told(embeddings, body))


def _of_words(model: Model, texts: list[str], body: WordsBody, most: int) -> Embeddings:
    """The vectors of the words of texts; what cannot be embedded, or would be too much, is refused."""
    layers = body.layer if isinstance(body.layer, list) else [body.layer]
    try:
        tokens = sum(map(len, model.tokenizer.bulk.pieces(texts)))
        # Numbers of the answer: each token at each layer.
        numbers = tokens * len(layers) * model.config.d_model
        if tokens > most:
            raise _wrong(f"input has {tokens:,} tokens, and a request may have {most:,}.")
        if numbers > MOST_NUMBERS:
            raise ApiError(
                413,
                f"the answer would have {numbers:,} numbers, and may have {MOST_NUMBERS:,}; "
                "send fewer texts or layers.",
                code="too_large",
            )
        result = model.embed(
            texts,
            level=body.level,
            layer=body.layer,
            # Tokens are not pooled.
            pooling=body.pooling if body.level == "word" else None,
            window=Truncate() if body.overlong == "truncate" else Windows(),
            progress=lambda done, total: None,
        )
    except InputError as error:
        raise _wrong(str(error).replace("texts[", "input[", 1)) from error
    # Refused after embedding: only then it is known how many windows a text took.
    if body.overlong == "refuse" and (long := np.flatnonzero(result.report.windows > 1)).size:
        excess = f"{result.report.tokens[long[0]]:,} tokens, more than this model takes"
        raise too_long(int(long[0]), excess)
    return result


def _told(made: Embeddings, body: WordsBody) -> dict[str, Any]:
    """The words of each text, with plain values or base64."""
    data: list[dict[str, Any]] = [{"index": index, "words": []} for index in range(len(made.report.tokens))]
    # Little-endian and without gaps, for base64.
    vectors = np.ascontiguousarray(made.vectors, dtype="<f4")
    shown = (_base64 if body.encoding_format == "base64" else list)(vectors)
    # Columns of all words: their text's number, text, place, whether unknown, and vector.
    of_words = (made.rows.tolist(), made.texts, made.spans.tolist(), made.unknown.tolist(), shown)
    for row, text, (start, end), unknown, vector in zip(*of_words, strict=True):
        word = {"text": text, "start": start, "end": end, "unknown": unknown, "embedding": vector}
        data[row]["words"].append(word)
    for each, cut in zip(data, made.report.cut.tolist(), strict=True):
        if cut:
            each["truncated"] = cut
    layers = None if made.layers is None else list(made.layers)
    usage = _usage(int(made.report.tokens.sum() - made.report.cut.sum()))
    return {"layers": layers, "dimensions": vectors.shape[-1], "data": data} | usage
