"""`POST /v1/trace` and `/v1/attention`: what a model reads in a text, and what its heads look at."""

from base64 import b64encode
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Final, Literal

import torch
from fastapi import APIRouter, Request, Response
from pydantic import Field
from torch import Tensor

from regard.model import Model
from regard.serving._errors import ApiError
from regard.serving._jobs import estimate
from regard.serving._schema import Body, ModelName, answered, errors, example
from regard.serving._service import service_of
from regard.text import Encoding
from regard.tracing import Trace, Zero
from regard.tracing.record import chosen_of

router = APIRouter(tags=["attention"])

MOST_WEIGHTS: Final = 2**20
"""Of an answer: some 10 MB as decimals, 6 as base64."""

MOST_READ: Final = 2**28
"""Weights that are worked out for the top k."""

MOST_MB: Final = 16.0
"""Of a page."""

_NAMES: Final = ("kind", "layer", "head")

Text = Annotated[str, Field(min_length=1, max_length=20_000, examples=["A man sat on the river bank."])]
Numbers = Annotated[list[int], Field(min_length=1, max_length=1024)]


class TracedBody(Body):
    """A text, and what is switched off while it is read."""

    input: Text
    pair: Annotated[Text | None, Field(description="A second text beside it.")] = None
    target: Annotated[Text | None, Field(description="What the decoder of an encoder-decoder reads.")] = None
    model: ModelName = None
    off: Annotated[
        list[tuple[int, int]],
        Field(max_length=1024, description="Heads, (layer, head), whose output is 0.", examples=[[[3, 5]]]),
    ] = []

    def tokens(self) -> int:
        """About how many tokens it has."""
        return sum(estimate(each) for each in (self.input, self.pair, self.target) if each)

    def trace(self, model: Model) -> Trace:
        """The text's trace."""
        zeros = [Zero("head", layer=layer, head=head) for layer, head in self.off]
        model = model.edited(*zeros) if zeros else model
        return model.trace(self.input, self.pair, target=self.target)


class TraceBody(TracedBody):
    """A text to trace."""

    html: Annotated[bool, Field(description="Whether the interactive page comes too.")] = False


class AttentionBody(TracedBody):
    """Which weights of a text."""

    kind: Annotated[
        Literal["encoder", "decoder", "cross"] | None, Field(description="Of an encoder-decoder, which.")
    ] = None
    layers: Annotated[Numbers | None, Field(description="From 0, or -1 for the last; all.")] = None
    heads: Annotated[Numbers | None, Field(description="From 0; all.")] = None
    queries: Annotated[
        list[int | str] | None, Field(min_length=1, max_length=4096, description="Tokens or words; all.")
    ] = None
    keys: Annotated[
        list[int | str] | None, Field(min_length=1, max_length=4096, description="Tokens or words; all.")
    ] = None
    top_k: Annotated[
        int | None,
        Field(ge=1, le=1024, description="Of each row the k largest weights, and what they sum to."),
    ] = None
    encoding_format: Annotated[
        Literal["float", "base64"], Field(description="base64: of float32, little-endian, row by row.")
    ] = "float"


_TRACED = {
    "object": "trace",
    "model": "all-MiniLM-L6-v2",
    "kinds": ["encoder"],
    "sides": {
        "encoder": {
            "texts": ["a bank"],
            "tokens": [{"index": 1, "id": 1037, "text": "a", "span": [0, 1], "word": 0, "special": False}],
            "words": [{"index": 0, "text": "a", "span": [0, 1], "tokens": [1]}],
        }
    },
    "heads": [{"kind": "encoder", "layer": 0, "head": 0, "pattern": "previous", "entropy": 1.38}],
    "html": "<!DOCTYPE html>…",  # null where it is not asked for
}
_WEIGHTS = {
    "object": "attention",
    "model": "all-MiniLM-L6-v2",
    "kind": "encoder",
    "queries": [{"index": 7, "text": "bank"}],
    "keys": [{"index": 6, "text": "river"}, {"index": 7, "text": "bank"}],
    "data": [{"layer": 3, "head": 5, "weights": [[0.62, 0.21]]}],
}


@router.post("/v1/trace", responses=errors(504) | example(_TRACED))
async def trace(body: TraceBody, request: Request) -> Response:
    """Trace a text: its tokens and words, what each head does, and the page that shows it."""
    engine = service_of(request).engine(body.model)
    told = await engine.call(partial(traced, body=body, name=engine.name), tokens=body.tokens())
    return answered({"object": "trace", "model": engine.name} | told)


@router.post("/v1/attention", responses=errors(504) | example(_WEIGHTS))
async def attention(body: AttentionBody, request: Request) -> Response:
    """Weights of heads: rows and blocks, exact, or of each row the largest with the mass that they hold."""
    engine = service_of(request).engine(body.model)
    told = await engine.call(partial(weights, body=body), tokens=body.tokens())
    return answered({"object": "attention", "model": engine.name} | told)


def traced(model: Model, body: TraceBody, name: str) -> dict[str, Any]:
    """What a trace tells in plain values; `name` is what the server calls the model."""
    made = replace(body.trace(model), model=name)
    for kind in made.kinds:
        queries, keys = (len(each.encoding.tokens) for each in made.sides(kind))
        counts = (made.attention_of(layer, kind).inputs.num_heads for layer in made.layers_of(kind))
        _check(sum(counts) * queries, keys, 1)
    heads = {tuple(row[name] for name in _NAMES): row for row in made.heads().to_rows()}
    for kind in made.kinds:
        for row in made.statistics(kind).to_rows():
            heads.get((kind, row["layer"], row["head"]), {}).update(row)
    stacks = {"encoder": made.encoder, "decoder": made.decoder}
    return {
        "kinds": list(made.kinds),
        "sides": {name: side(each.encoding) for name, each in stacks.items() if each is not None},
        "heads": list(heads.values()),
        "html": made.page(max_mb=MOST_MB).html if body.html else None,
    }


def side(encoding: Encoding) -> dict[str, Any]:
    """The tokens and words of a text, with their places in code points."""
    return {
        "texts": list(encoding.texts),
        "tokens": [asdict(token) for token in encoding.tokens],
        "words": [asdict(word) for word in encoding.words],
    }


def weights(model: Model, body: AttentionBody) -> dict[str, Any]:
    """The weights that are asked for.

    Raises:
        ApiError: 413, more than an answer holds.
        InputError: a layer, head, token or word that is not there.
    """
    made = body.trace(model)
    kind = made.kind(body.kind)
    of_queries, of_keys = (each.encoding for each in made.sides(kind))
    rows = _places("queries", of_queries, body.queries)
    columns = _places("keys", of_keys, body.keys)
    heads = [
        (made.layer_index(layer, kind), each)
        for layer in body.layers or made.layers_of(kind)
        for each in body.heads or range(made.attention_of(layer, kind).inputs.num_heads)
    ]
    _check(len(heads) * len(rows), len(columns), body.top_k)
    data = []
    for layer, head in heads:
        # Without keys a column more, of attention sinks, where the model has them.
        block = made.weights(layer, head, kind=kind, query=rows, key=columns if body.keys else None)
        told = {"layer": layer, "head": made.head_index(head, kind, layer)}
        data.append(told | (shown(block, body) if body.top_k is None else largest(block, columns, body)))
    return {
        "kind": kind,
        "queries": [{"index": place, "text": of_queries.tokens[place].text} for place in rows],
        "keys": [{"index": place, "text": of_keys.tokens[place].text} for place in columns],
        "data": data,
    }


def largest(block: Tensor, columns: list[int], body: AttentionBody) -> dict[str, Any]:
    """Of each row the largest weights, their keys, and the mass that they hold together."""
    assert body.top_k is not None, "asked for"
    found = block.topk(min(body.top_k, block.shape[1]), dim=1)
    sink = len(columns)  # the column beyond the keys
    keys = torch.tensor([*columns, -1])[found.indices.clamp(max=sink)]
    return {"keys": keys.tolist(), "mass": found.values.sum(dim=1).tolist()} | shown(found.values, body)


def shown(block: Tensor, body: AttentionBody) -> dict[str, Any]:
    """Weights as decimals or as base64."""
    values = block.numpy().astype("<f4")
    if body.encoding_format == "base64":
        return {"weights": b64encode(values.tobytes()).decode(), "shape": list(values.shape)}
    return {"weights": values}


def _places(name: str, encoding: Encoding, chosen: list[int | str] | None) -> list[int]:
    return list(range(len(encoding.tokens))) if chosen is None else list(chosen_of(name, encoding, chosen))


def _check(rows: int, columns: int, top_k: int | None) -> None:
    for count, most, told in (
        (rows * min(columns, top_k or columns), MOST_WEIGHTS, "the answer would have"),
        (rows * columns, MOST_READ, "it would take"),
    ):
        if count > most:
            raise ApiError(
                413,
                f"{told} {count:,} weights, and may be {most:,}; choose layers, heads, queries or top_k.",
                code="too_large",
            )
