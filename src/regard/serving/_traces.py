"""`POST /v1/trace` and `/v1/attention`: what a model reads in a text, and what its heads look at."""

from base64 import b64encode
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Final, Literal

import torch
from fastapi import APIRouter, Request, Response
from pydantic import Field
from torch import Tensor

from regard.api import Model
from regard.serving._jobs import estimate
from regard.serving._limits import ApiError, Body, Format, ModelName, Pair, answered, answers
from regard.serving._service import service_of
from regard.text import Encoding, Token
from regard.tracing import Trace, Zero
from regard.tracing.record import chosen_of

router = APIRouter(tags=["attention"])

MOST_WEIGHTS: Final = 2**20  # of an answer: some 10 MB as decimals, 6 as base64
MOST_READ: Final = 2**28  # weights that are worked out for the top k
MOST_MB: Final = 16.0  # of a page
_NAMES: Final = ("kind", "layer", "head")

Text = Annotated[str, Field(min_length=1, max_length=20_000, examples=["A man sat on the river bank."])]
Kind = Literal["encoder", "decoder", "cross"]
Places = Annotated[list[int | str], Field(min_length=1, max_length=4096)]
Numbers = Annotated[list[int], Field(min_length=1, max_length=1024)]


class TracedBody(Body):
    """A text, and what is switched off while it is read."""

    input: Text
    pair: Annotated[Text | None, Field(description="A second text beside it.")] = None
    target: Annotated[Text | None, Field(description="What the decoder of an encoder-decoder reads.")] = None
    model: ModelName = None
    off: Annotated[
        list[Pair], Field(max_length=1024, description="[layer, head], off.", examples=[[[3, 5]]])
    ] = []

    def tokens(self) -> int:
        """About how many tokens it has."""
        return sum(estimate(each) for each in (self.input, self.pair, self.target) if each)

    def trace(self, model: Model) -> Trace:
        """The text's trace."""
        # Heads that are off are edits of the model; without any, the model itself.
        zeros = [Zero("head", layer=layer, head=head) for layer, head in self.off]
        model = model.edited(*zeros) if zeros else model
        return model.trace(self.input, self.pair, target=self.target)


class TraceBody(TracedBody):
    """A text to trace."""

    html: Annotated[bool, Field(description="Whether the interactive page comes too.")] = False


class AttentionBody(TracedBody):
    """Which weights of a text."""

    kind: Annotated[Kind | None, Field(description="Of an encoder-decoder, which.")] = None
    layers: Annotated[Numbers | None, Field(description="From 0, or -1 for the last; all.")] = None
    heads: Annotated[Numbers | None, Field(description="From 0; all.")] = None
    queries: Annotated[Places | None, Field(description="Tokens or words; all.")] = None
    keys: Annotated[Places | None, Field(description="Tokens or words; all.")] = None
    top_k: Annotated[int | None, Field(ge=1, le=1024, description="The largest of each row; all.")] = None
    encoding_format: Format = "float"


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


@router.post("/v1/trace", responses=answers(_TRACED))
async def trace(body: TraceBody, request: Request) -> Response:
    """Trace a text: its tokens and words, what each head does, and the page that shows it."""
    engine = service_of(request).engine(body.model)
    told = await engine.call(partial(traced, body=body, name=engine.name), tokens=body.tokens())
    return answered({"object": "trace", "model": engine.name} | told)


@router.post("/v1/attention", responses=answers(_WEIGHTS))
async def attention(body: AttentionBody, request: Request) -> Response:
    """Weights of heads: rows and blocks, exact, or of each row the largest with the mass that they hold."""
    engine = service_of(request).engine(body.model)
    told = await engine.call(partial(weights, body=body), tokens=body.tokens())
    return answered({"object": "attention", "model": engine.name} | told)


def traced(model: Model, body: TraceBody, name: str) -> dict[str, Any]:
    """What a trace tells in plain values; `name` is what the server calls the model."""
    record = replace(body.trace(model), model=name)
    for kind in record.kinds:
        # What the answer may hold is checked before anything is worked out.
        queries, keys = (len(each.encoding.tokens) for each in record.sides(kind))
        counts = (record.attention_of(layer, kind).inputs.num_heads for layer in record.layers_of(kind))
        _check(sum(counts) * queries, keys, 1)
    # What each head does, and its statistics, joined by kind, layer and head.
    heads = {tuple(row[name] for name in _NAMES): row for row in record.heads().to_rows()}
    for kind in record.kinds:
        for row in record.statistics(kind).to_rows():
            heads.get((kind, row["layer"], row["head"]), {}).update(row)
    stacks = {"encoder": record.encoder, "decoder": record.decoder}
    return {
        "kinds": list(record.kinds),
        "sides": {name: _side(each.encoding) for name, each in stacks.items() if each is not None},
        "heads": list(heads.values()),
        "html": record.page(max_mb=MOST_MB).html if body.html else None,
    }


def _side(encoding: Encoding) -> dict[str, Any]:
    tokens, words = ([asdict(each) for each in some] for some in (encoding.tokens, encoding.words))
    return {"texts": list(encoding.texts), "tokens": tokens, "words": words}


def weights(model: Model, body: AttentionBody) -> dict[str, Any]:
    """The weights that are asked for."""
    record = body.trace(model)
    kind = record.kind(body.kind)
    of_queries, of_keys = (each.encoding for each in record.sides(kind))
    rows = _places("queries", of_queries, body.queries)
    columns = _places("keys", of_keys, body.keys)
    heads = [
        # Negative numbers count from the end: the answer has them from 0.
        (record.layer_index(layer, kind), each)
        for layer in body.layers or record.layers_of(kind)
        # Layers may differ in their number of heads.
        for each in body.heads or range(record.attention_of(layer, kind).inputs.num_heads)
    ]
    # Rows of all heads, and columns.
    _check(len(heads) * len(rows), len(columns), body.top_k)
    data = []
    for layer, head in heads:
        # Without keys a column more, of attention sinks, where the model has them.
        block = record.weights(layer, head, kind=kind, query=rows, key=columns if body.keys else None)
        entry = {"layer": layer, "head": record.head_index(head, kind, layer)}
        data.append(entry | _shown(block, columns, body))
    return {
        "kind": kind,
        "queries": [_named(of_queries.tokens[place]) for place in rows],
        "keys": [_named(of_keys.tokens[place]) for place in columns],
        "data": data,
    }


def _named(token: Token) -> dict[str, Any]:
    return {"index": token.index, "text": token.text, "shown": token.shown}


def _shown(block: Tensor, columns: list[int], body: AttentionBody) -> dict[str, Any]:
    """All weights, or of each row the largest, with their keys and the mass that they hold together."""
    shown: dict[str, Any] = {}
    if body.top_k is not None:
        # The largest of each row, and where they stand.
        block, places = block.topk(min(body.top_k, block.shape[1]), dim=1)
        sink = len(columns)
        # -1 for the column beyond the keys: an attention sink, which is no token.
        keys = torch.tensor([*columns, -1])[places.clamp(max=sink)]
        shown = {"keys": keys.tolist(), "mass": block.sum(dim=1).tolist()}
    # Little-endian, whatever the processor.
    values = block.numpy().astype("<f4")
    if body.encoding_format == "base64":
        return shown | {"weights": b64encode(values.tobytes()).decode(), "shape": list(values.shape)}
    return shown | {"weights": values}


def _places(name: str, encoding: Encoding, chosen: list[int | str] | None) -> list[int]:
    return list(range(len(encoding.tokens))) if chosen is None else list(chosen_of(name, encoding, chosen))


def _check(rows: int, columns: int, top_k: int | None) -> None:
    # Two bounds: of what is sent, and of what has to be computed for it.
    for count, most, start in (
        (rows * min(columns, top_k or columns), MOST_WEIGHTS, "the answer would have"),
        (rows * columns, MOST_READ, "it would take"),
    ):
        if count > most:
            text = f"{start} {count:,} weights, and may be {most:,}; choose layers, heads, queries or top_k."
            raise ApiError(413, text, code="too_large")
