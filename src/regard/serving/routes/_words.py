"""`POST /v1/words`: a contextual vector for each word, and where it stands."""

from base64 import b64encode
from functools import partial
from typing import Annotated, Any, Final, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from regard.core.errors import InputError
from regard.embedding import Embeddings, Truncate, Windows
from regard.model import Model
from regard.serving._errors import ApiError
from regard.serving._jobs import Overlong, estimate
from regard.serving._schema import Body, ModelName, answered, errors
from regard.serving._service import service_of

router = APIRouter()

MOST_NUMBERS: Final = 2**22
"""Of an answer: 22 MB as base64."""


class WordsBody(Body):
    """Texts whose words want a vector each."""

    input: Annotated[
        str | Annotated[list[str], Field(min_length=1)],
        Field(description="A text, or a list of texts.", examples=["a river bank", ["a river bank"]]),
    ]
    model: ModelName = None
    level: Annotated[
        Literal["word", "token"], Field(description="What gets a vector: words, or the model's pieces.")
    ] = "word"
    layer: Annotated[
        int | Annotated[list[int], Field(min_length=1, max_length=64)],
        Field(
            description="0 is the learned embedding, -1 the contextual one; a list gives one of each.",
            examples=[-1, [0, 4]],
        ),
    ] = -1
    pooling: Annotated[
        Literal["mean", "first", "last", "max"], Field(description="How a word's pieces make one vector.")
    ] = "mean"
    encoding_format: Annotated[
        Literal["float", "base64"], Field(description="base64: of float32, little-endian, layer by layer.")
    ] = "float"
    overlong: Annotated[
        Overlong, Field(description="What becomes of a text that is longer than the model takes.")
    ] = "refuse"


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


@router.post("/v1/words", response_model=WordsAnswer, responses=errors(504), tags=["words"])
async def words(body: WordsBody, request: Request) -> Response:
    """Embed the words of texts, each in its context, at any layer."""
    service = service_of(request)
    engine = service.engine(body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    if len(texts) > service.settings.max_texts:
        raise ApiError(
            400, f"input may have {service.settings.max_texts:,} texts; got {len(texts):,}.", param="input"
        )
    work = partial(embedded, texts=texts, body=body, most=service.settings.max_tokens)
    made = await engine.call(work, tokens=sum(map(estimate, texts)))
    told = {"object": "list", "model": engine.name} | answer(made, body)
    return answered(told)


def embedded(model: Model, texts: list[str], body: WordsBody, most: int) -> Embeddings:
    """The vectors of the words of texts.

    Raises:
        ApiError: what cannot be embedded, or would be too much to answer.
    """
    layers = body.layer if isinstance(body.layer, list) else [body.layer]
    try:
        tokens = sum(map(len, model.tokenizer.bulk.pieces(texts)))
        numbers = tokens * len(layers) * model.config.d_model
        if tokens > most:
            raise ApiError(
                400, f"input has {tokens:,} tokens, and a request may have {most:,}.", param="input"
            )
        if numbers > MOST_NUMBERS:
            raise ApiError(
                413,
                f"the answer would have {numbers:,} numbers, and may have {MOST_NUMBERS:,}; "
                "send fewer texts or layers.",
                code="too_large",
            )
        made = model.embed(
            texts,
            level=body.level,
            layer=body.layer,
            pooling=body.pooling if body.level == "word" else None,
            window=Truncate() if body.overlong == "truncate" else Windows(),
            progress=lambda done, total: None,
        )
    except InputError as error:
        raise ApiError(400, str(error).replace("texts[", "input[", 1), param="input") from error
    if body.overlong == "refuse" and (long := np.flatnonzero(made.report.windows > 1)).size:
        raise ApiError(
            400,
            f"input[{long[0]}] has {made.report.tokens[long[0]]:,} tokens, more than this model takes; "
            'shorten it, or send "overlong": "truncate" or "windows".',
            param="input",
            code="context_length_exceeded",
        )
    return made


def answer(made: Embeddings, body: WordsBody) -> dict[str, Any]:
    """The words of each text, with plain values or base64."""
    data: list[dict[str, Any]] = [{"index": index, "words": []} for index in range(len(made.report.tokens))]
    vectors = np.ascontiguousarray(made.vectors, dtype="<f4")
    shown: list[Any] = list(vectors)
    if body.encoding_format == "base64":
        shown = [b64encode(vector).decode() for vector in vectors]
    of_words = (made.rows.tolist(), made.texts, made.spans.tolist(), made.unknown.tolist(), shown)
    for row, text, (start, end), unknown, vector in zip(*of_words, strict=True):
        told = {"text": text, "start": start, "end": end, "unknown": unknown, "embedding": vector}
        data[row]["words"].append(told)
    for each, cut in zip(data, made.report.cut.tolist(), strict=True):
        if cut:
            each["truncated"] = cut
    tokens = int(made.report.tokens.sum() - made.report.cut.sum())
    return {
        "layers": None if made.layers is None else list(made.layers),
        "dimensions": vectors.shape[-1],
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
