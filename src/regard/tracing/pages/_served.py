"""The page of a served model: what it opens with, and what it is answered for each text and edit."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from time import perf_counter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from regard.core import DenseBias, attention_weights
from regard.core.errors import InputError
from regard.core.tensors import cosine
from regard.models import Loaded
from regard.tracing.edits import Edit, Write, Zero, edited, unseen
from regard.tracing.measures import logits_of_layers, outermost
from regard.tracing.pages._instead import other_words
from regard.tracing.pages._names import MOST_OF_A_WIDGET, MOST_WEIGHTS, weights_of
from regard.tracing.pages._next import WriteRequest, encoded, marks_of, next_of, spelled
from regard.tracing.pages._page import page_record
from regard.tracing.pages._reads import Reads
from regard.tracing.pages._story import beside, sentences, word_at
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun
from regard.views import (
    LivePooling,
    Page,
    Preview,
    ServedRecord,
    every_head,
    find_start,
    page_contents,
    preview_of,
    render_page,
)

MOST_MB = 12.0
"""What an answer may take: of a longer text the page gets some heads, and pictures of the others."""

MOST_READ = 1 << 28
"""Weights that are worked out for an answer: those of 1900 tokens of the default model, in seconds."""

_MASKS = ("[MASK]", "<mask>")  # where the tokenizer's files name none
_BEST = 5  # tokens that the model expects, at each place
_LEAST = -200.0  # added to a score, it leaves a weight of 0


class DraggedWeight(NamedTuple):
    """A weight of one row that a reader gives another value."""

    layer: int
    head: int
    query: int
    key: int
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """What a page asks: a text, and what is changed in the model.

    Attributes:
        text, pair: as of `trace`.
        off: heads, (layer, head), whose output is 0.
        weights: the weights that were dragged; the others of a row keep their proportions.
        unseen: tokens of a word that no other may look at.
        second: a text to compare with; "" for none.
        word: a token of the word that is shown beside one of the second text; None for any.
        write: what comes next is asked, and nothing else; None for all else.
        near: a token of a word in whose place others may stand: these are asked, and nothing else; None for
            all else.
    """

    text: str
    pair: str | None = None
    off: Sequence[tuple[int, int]] = ()
    weights: Sequence[DraggedWeight] = ()
    unseen: Sequence[int] = ()
    second: str = ""
    word: int | None = None
    write: WriteRequest | None = None
    near: int | None = None

    def edits(self) -> list[Edit]:
        """The changes as edits of a model."""
        # All changes of one row are one edit.
        rows = groupby(sorted(self.weights), key=lambda each: each[:3])
        return [
            *(Zero("head", layer=layer, head=head) for layer, head in self.off),
            *(
                Write("weights", _dragged([*changes]), layer=layer, head=head, query=query)
                for (layer, head, query), changes in rows
            ),
            *([unseen(self.unseen)] if self.unseen else []),
        ]


def served_page(loaded: Loaded, text: str, *, served: ServedRecord) -> Page:
    """The page that a server opens with: it asks the server for every other text.

    Raises:
        InputError: a model with an encoder and a decoder; or as `Trace.page`.
    """
    # Before the pass.
    check_served(loaded)
    head: Literal["next", "masked"] | None = None
    if loaded.network.has_vocabulary_head:
        head = "next" if outermost(loaded.network) == "decoder" else "masked"
    record = page_record(TraceOfRun.of_text(loaded, text), story=True, names=MOST_WEIGHTS)
    record = replace(record, model=served.model)  # by which it is asked for, and not where it lies
    chat = marks_of(loaded.require_tokenizer()) if head == "next" else None
    return render_page(record, live=replace(served, head=head, chat=chat, sentences=sentences()))


def preview(loaded: Loaded, text: str, name: str) -> Preview:
    """What `served_page` says of itself with this text, without the page; `name` is the model's.

    Raises:
        InputError: as `served_page`.
    """
    check_served(loaded)
    record = page_record(TraceOfRun.of_text(loaded, text), names=MOST_WEIGHTS, check=False)
    return preview_of(replace(record, model=name), find_start(record, every_head(record)))


def check_served(loaded: Loaded) -> None:
    """Refuse a model that a server's page cannot ask about."""
    if len(loaded.network.prefixes) > 1:
        raise InputError(
            f"model must be an encoder or a decoder, for the page; {loaded.source.name} is both. "
            "`regard look` draws it."
        )


def page_answer(
    loaded: Loaded, asked: PageRequest, *, pooling: LivePooling | None = None, reads: Reads | None = None
) -> dict[str, Any]:
    """What a page is told of a text, as static/live/worker.js tells it of a model in the page.

    Args:
        loaded: the model.
        asked: the text and the edits.
        pooling: how one vector of a text is made, to compare it with the second.
        reads: what was read before, so that the next word of a text is one token's work; None for nothing.

    Returns:
        Plain values, arrays as base64: `facts` and `blocks`, as a page holds them; `encoded`, the tokens with
        their places in UTF-16; `contextual`, their last vectors; `predicted`, what the head expects;
        `likeness` with the second text, and a word `beside` one of it; `milliseconds`. Where `write` is
        asked, `written`: see static/live/next.js; where `near` is, `near`: the words.

    Raises:
        InputError: a text or an edit that the model cannot take.
    """
    began = perf_counter()
    check_served(loaded)
    edits = asked.edits()
    model = edited(loaded, edits) if edits else loaded
    # The door that writes asks for the next word alone.
    if asked.write is not None:
        return {"written": next_of(model, asked.text, asked.write, Reads() if reads is None else reads)}
    trace = TraceOfRun.of_text(model, asked.text, asked.pair)
    if asked.near is not None:
        return {"near": other_words(trace, asked.near)}
    count = sum(weights_of(trace, kind) for kind in trace.kinds)
    # So that one request does not hold the server for minutes.
    if count > MOST_READ:
        raise InputError(f"text must have {MOST_READ:,} weights at most, for a page; it has {count:,}.")
    record = page_record(_as_drawn(trace, asked), story=True, names=MOST_OF_A_WIDGET, check=False)
    facts, blocks = page_contents(record, max_mb=MOST_MB)
    # The page knows whom it asked.
    del facts["model"]
    contextual = trace.embeddings()
    return {
        "facts": facts,
        "blocks": blocks,
        "encoded": encoded(trace.stack(None).encoding),
        "contextual": b64encode(contextual.numpy().astype("<f4").tobytes()).decode("ascii"),
        "predicted": _predicted(trace),
        **_second(loaded, asked, trace, pooling),
        "milliseconds": 1000 * (perf_counter() - began),
    }


def _dragged(changes: Sequence[DraggedWeight]) -> Callable[[Tensor], Tensor]:
    """Rows in which some weights have these values, and the others share what is left of 1."""
    # The values first, then what the others share.
    keys = [each.key for each in changes]
    values = [each.value for each in changes]
    left = 1 - sum(values)
    if not (all(0 <= value <= 1 for value in values) and left >= -1e-9):
        raise InputError(f"weights of a row must be from 0 to 1, and 1 together at most; got {values}.")

    def function(row: Tensor) -> Tensor:
        if not (min(keys) >= 0 and max(keys) < row.shape[-1] and bool((row[..., keys] > 0).all())):
            raise InputError(f"key must be tokens that the query can see; got {keys}.")
        changed = row.clone()
        changed[..., keys] = 0
        # What the other keys had, scaled to what is left.
        others = changed.sum(dim=-1, keepdim=True)
        if left > 1e-9 and not bool((others > 0).all()):
            raise InputError("weights must leave a word to take the rest of the row; here there is none.")
        changed = torch.where(others > 0, changed * max(left, 0.0) / others, 0.0)
        changed[..., keys] = row.new_tensor(values)
        return changed

    return function


def _as_drawn(trace: Trace, asked: PageRequest) -> Trace:
    """The trace with what the page computes from q, k and v: the weights and results that the edits left.

    Dragged weights become a bias. Where a layer has a bias of its own, or sinks, they stay as they were
    written, without q and k. The values of a head that is off become 0, unless other heads share them.
    """
    kind = outermost(trace.require_model().network)
    traced = trace.stack(kind)
    layers = list(traced.attention)
    # The page draws softmax(q k + bias): a bias that gives the written weights.
    for number in {each.layer for each in asked.weights}:
        inputs = layers[number].inputs
        if inputs.bias is None and inputs.sinks is None:
            plain = inputs.unwritten()
            before, after = attention_weights(plain), attention_weights(inputs)
            # With s the scores, softmax(s + log(after / before)) is `after`.
            added = torch.where(before > 0, (after / before).log().clamp(min=_LEAST), 0.0)
            changed = (after - before).abs().amax(dim=-1, keepdim=True) > 0
            bias = DenseBias(torch.where(changed, added, 0.0))
            layers[number] = replace(layers[number], inputs=plain.changed(bias=bias))
    # A head that is off gives values of zero.
    for number, head in asked.off:
        inputs = layers[number].inputs
        if inputs.v.shape[1] == inputs.num_heads:
            v = inputs.v.clone()
            v[:, head] = 0
            layers[number] = replace(layers[number], inputs=inputs.changed(v=v))
    traced = replace(traced, attention=layers)
    return replace(trace, encoder=traced) if kind == "encoder" else replace(trace, decoder=traced)


def _predicted(trace: Trace) -> list[dict[str, Any]]:
    """What the head expects: after the last token, or in the place of each mask."""
    loaded = trace.require_model()
    if not loaded.network.has_vocabulary_head:
        return []
    tokenizer, ids = loaded.require_tokenizer(), trace.stack(None).encoding.token_ids
    goes_on = outermost(loaded.network) == "decoder"
    masks = {tokenizer.special_ids.mask} | {id for id in ids if tokenizer.piece_of(id) in _MASKS}
    # A decoder's last token, or each mask.
    places = [len(ids) - 1] if goes_on else [place for place, id in enumerate(ids) if id in masks]
    if not places:
        return []
    (logits,) = logits_of_layers(trace, [len(trace.stack(None).hidden) - 1], places)
    before = [list(ids[-1:])] if goes_on else [[] for _ in places]
    best = logits.double().softmax(dim=-1).topk(min(_BEST, logits.shape[-1]))
    return [
        {
            "at": place,
            "best": [
                spelled(tokenizer, behind, id) | {"probability": probability}
                for id, probability in zip(ids, probabilities, strict=True)
            ],
        }
        for place, behind, ids, probabilities in zip(
            places, before, best.indices.tolist(), best.values.tolist(), strict=True
        )
    ]


def _second(loaded: Loaded, asked: PageRequest, trace: Trace, pooling: LivePooling | None) -> dict[str, Any]:
    """How alike the two texts' vectors are, and a word in both, with the same heads off; or why not."""
    # No second text.
    if not asked.second.strip():
        return {"likeness": None, "beside": None}
    word = None if asked.word is None else word_at(trace, asked.word)
    try:
        heads = replace(asked, weights=(), unseen=()).edits()
        model = edited(loaded, heads) if heads else loaded
        second = TraceOfRun.of_text(model, asked.second, keeping=KeepPolicy(keep="residual"))
    except InputError as error:
        return {"likeness": {"refused": str(error)}, "beside": None}
    way = None
    with suppress(InputError):  # of a text without a word
        way = beside(trace, second, word)
    if pooling is None:
        return {"likeness": None, "beside": way}
    one, other = (_pooled(each.embeddings(), pooling) for each in (trace, second))
    return {"likeness": float(cosine(one, other)), "beside": way}


def _pooled(rows: Tensor, pooling: LivePooling) -> Tensor:
    return {"mean": rows.mean(dim=0), "cls": rows[0], "last": rows[-1]}[pooling]
