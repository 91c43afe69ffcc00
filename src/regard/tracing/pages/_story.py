"""One word's way through a stack, from a trace: what the page's story draws, and what it ends with."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.blocks import Embeddings
from regard.core.errors import InputError
from regard.core.tensors import cosine
from regard.models import Kind, Loaded, StackKind
from regard.text import Encoding
from regard.tracing.comparison import movement_of
from regard.tracing.measures import logits_of_layers
from regard.tracing.pages._explain import Sublayer, sublayers
from regard.tracing.pages._next import THE_END
from regard.tracing.pages._page_measures import as_array
from regard.tracing.record import KeepPolicy, Trace, TracedStack
from regard.tracing.run import TraceOfRun
from regard.views import SHOWN, StoryNeurons, StoryPart, StoryRecord, StoryRow, plain

_SMALL = 3  # letters of words that say little, as a rule


class PlacedWord(NamedTuple):
    """A word of a text, and the places of its tokens; `asked` is "bank#2" of the second."""

    name: str
    tokens: tuple[int, ...]
    asked: str


def placed_words(trace: Trace) -> list[PlacedWord]:
    """The words of a text that have a letter or digit, and a token."""
    encoding = trace.stack(None).encoding
    # Words by number, with the places of their tokens.
    places: dict[int, list[int]] = {}
    for place, token in enumerate(encoding.tokens):
        if token.word is not None:
            places.setdefault(token.word, []).append(place)
    words: list[PlacedWord] = []
    times = Counter[str]()
    for number, tokens in places.items():
        name = encoding.words[number].text
        if any(map(str.isalnum, name)):
            times[name.casefold()] += 1
            # The second "bank" is asked for as "bank#2".
            which = times[name.casefold()]
            words.append(PlacedWord(name, tuple(tokens), name if which == 1 else f"{name}#{which}"))
    return words


def word_at(trace: Trace, token: int) -> PlacedWord:
    """The word that a token is of."""
    found = [word for word in placed_words(trace) if token in word.tokens]
    if not found:
        raise InputError(f"word must be a token that is part of a word of the text; got {token}.")
    return found[0]


def beside(trace: Trace, other: Trace, asked: PlacedWord | None = None) -> dict[str, Any]:
    """How a word moves in a text, and the same word in another, or the one that comes to be most like it.

    By default it is the one of the longer words that finds the most alike. Plain values, as
    static/live/beside.js has them: its `first` token, `words`, `texts`, `steps`, the `points` of both ways in
    the plane, how `far` they are apart at each step, and what the axes keep: see `Projection`, of directions.
    """
    # A named word is looked for in the other text; else any two are compared.
    theirs = placed_words(other)
    some, others = ([asked], theirs) if asked else (_longer(placed_words(trace)), _longer(theirs))
    rows, columns = trace.embeddings(), other.embeddings()
    pairs = []
    for one in some:
        # The same word, if the other text has it.
        same = [each for each in theirs if each.name.casefold() == one.name.casefold()]
        here = rows[list(one.tokens)].mean(dim=0)
        for each in same or others:
            there = columns[list(each.tokens)].mean(dim=0)
            pairs.append((float(cosine(here, there)), one, each))
    if not pairs:
        raise InputError("second must have a word, as the text must; got none.")
    # The pair that ends most alike.
    _, word, partner = max(pairs, key=lambda pair: pair[0])
    moved = movement_of([trace, other], [word.asked, partner.asked], [word.tokens, partner.tokens])
    drawn = moved.project(directions=True)
    return {
        "first": word.tokens[0],
        "words": list(moved.words),
        "texts": list(moved.texts),
        "steps": list(moved.steps),
        "points": plain(drawn.points, 4),
        "far": plain(drawn.true[:, 0, 1], 4),
        "share": plain(drawn.share, 4),
        "apart": plain(drawn.apart, 4),
    }


def _longer(words: list[PlacedWord]) -> list[PlacedWord]:
    return [word for word in words if len(word.name) > _SMALL] or words


_NEXT = 10  # words that come next
_OF_EACH = ("words", "points", "far", "share", "apart")
_MOST = 8  # words that are shown beside themselves: each is 0.4 kB of a page

_ASKED = "What does the word * mean?"  # a sentence for any word

# Words of several meanings, each in two sentences: the one is taken where the word ends furthest from here.
_SENTENCES = {
    "bank": ("The boat lay on the river bank.", "She keeps her savings in a bank."),
    "bark": ("The bark of the tree was rough.", "The bark of the dog was loud."),
    "bat": ("A bat flew out of the cave.", "He hit the ball with a bat."),
    "date": ("They ate a dried date from the palm.", "They agreed on a date in May."),
    "fair": ("We rode a wheel at the fair.", "The judge was fair to both."),
    "flies": ("The flies sat on the fruit.", "The plane flies to Rome."),
    "light": ("She switched off the light.", "The feather was light."),
    "like": ("I like music and dancing.", "He ran like the wind."),
    "match": ("He lit the fire with a match.", "Our team won the match."),
    "ring": ("She wore a gold ring.", "I heard the telephone ring."),
    "seal": ("The seal swam under the ice.", "The letter had a seal of wax."),
    "spring": ("Flowers bloom in spring.", "The watch has a steel spring."),
    "watch": ("My watch is five minutes slow.", "They watch the birds."),
    "write": ("They write letters home.", "The disk is slow to write."),
}


def sentences() -> dict[str, tuple[str, ...]]:
    """For a page that asks its model: sentences for some words, and under "*" that for any other."""
    return _SENTENCES | {"*": (_ASKED,)}


def ending_of(
    trace: Trace, kind: StackKind, first: int = 0, *, with_words: bool = True
) -> dict[str, Any] | None:
    """How the story of a stack ends, as plain values; None where there is nothing true to show.

    `next` is the likeliest tokens after the last one, of a decoder that says them. Of an encoder alone,
    `beside` has words of the text, by their first tokens, beside themselves in another sentence: the longest
    words, and that at the token `first`; `with_words` leaves them to a page that can ask its model.
    """
    if trace.loaded is None:
        return None
    # A decoder ends with what comes next.
    if kind == "decoder" and (coming := next_tokens(trace)):
        return {"next": coming}
    words = placed_words(trace) if with_words and trace.kinds == ("encoder",) else []
    if not words:
        return None
    # The word that the page opens on first, then long ones.
    words.sort(key=lambda word: (first not in word.tokens, -len(word.name)))
    try:
        return {"beside": _beside(trace, trace.loaded, words[:_MOST])}
    except InputError:  # a model that takes no such sentence
        return None


def next_tokens(trace: Trace) -> list[dict[str, Any]]:
    """What a decoder expects after its last token, the likeliest first; none where the model does not say."""
    if trace.decoder is None or trace.loaded is None or not trace.loaded.network.has_vocabulary_head:
        return []
    traced = trace.decoder
    (logits,) = logits_of_layers(trace, [len(traced.hidden) - 1], [len(traced.encoding.tokens) - 1])
    # The likeliest first.
    likeliest = logits[0].double().softmax(dim=0).topk(min(_NEXT, logits.shape[1]))
    tokenizer, shares = trace.loaded.tokenizer, likeliest.values.tolist()
    tokens = Encoding.from_ids(likeliest.indices.tolist(), tokenizer).tokens
    ends = [] if tokenizer is None else tokenizer.end_ids
    names = [str(THE_END["text"]) if token.id in ends else token.shown for token in tokens]
    return [{"text": text, "probability": float(f"{p:.4g}")} for text, p in zip(names, shares, strict=True)]


def _beside(trace: Trace, loaded: Loaded, words: list[PlacedWord]) -> dict[str, Any]:
    """Each word's way, beside its way in the sentence where it ends furthest from here."""
    sentences_of = {
        word.name: _SENTENCES.get(word.name.lower(), (_ASKED.replace("*", word.name),)) for word in words
    }
    # All sentences in one batch.
    texts = [text for some in sentences_of.values() for text in some]
    traces = TraceOfRun.of_texts(loaded, texts, keeping=KeepPolicy(keep="residual"))
    others = dict(zip(texts, traces, strict=True))
    ways = {
        word.tokens[0]: max(
            (beside(trace, others[text], word) for text in sentences_of[word.name]),
            key=lambda way: float(way["far"][-1]),
        )
        for word in words
    }
    own = {
        first: {"text": way["texts"][1]} | {name: way[name] for name in _OF_EACH}
        for first, way in ways.items()
    }
    any_way = next(iter(ways.values()))
    return {"text": any_way["texts"][0], "steps": any_way["steps"], "of": own}


MOST_TOKENS = 64
"""Tokens whose story a page holds; of a longer text, those around one place."""

_TOP = 5  # neurons that are named, of each token and layer


def story_record(
    trace: Trace, kind: StackKind, around: int = 0, *, with_words: bool = True
) -> StoryRecord | None:
    """The way of a stack's tokens through it; `around` is in the middle where not all are held. `with_words`:
    see `ending_of`.

    None where the trace does not have the residual stream. A RegardError where a layer's steps do not lead to
    what was recorded.
    """
    traced = trace.stack(kind)
    # A story needs every layer's output.
    if not traced.keeping.hidden or traced.keeping.layers is not None or traced.learned is None:
        return None
    if len(traced.hidden) != len(traced.attention) + 1:
        return None
    count = len(traced.encoding.tokens)
    # Around one place of a long text.
    start = max(0, min(around - MOST_TOKENS // 2, count - MOST_TOKENS))
    tokens = list(range(start, min(count, start + MOST_TOKENS)))
    stack = None if trace.loaded is None else trace.loaded.network.stack(kind)
    embeddings = None if stack is None else stack.embeddings
    rows = _Rows(trace, kind, tokens)
    # From the table to layer 0, then layer by layer.
    rows.embed(embeddings)
    for layer in range(len(traced.attention)):
        rows.walk(layer)
    return StoryRecord(
        tokens=tuple(tokens),
        ids=tuple(traced.encoding.token_ids[place] for place in tokens),
        vocabulary=None if embeddings is None else embeddings.tokens.num_embeddings,
        rows=tuple(rows.rows),
        moved=_moved(traced, tokens),
        neurons=rows.neurons(),
        heads=rows.heads,
        ending=ending_of(trace, kind, around, with_words=with_words),
    )


class _Rows:
    """The vectors of some tokens, as they come."""

    def __init__(self, trace: Trace, kind: StackKind, tokens: list[int]) -> None:
        self._trace, self._kind, self._tokens = trace, kind, tokens
        self._traced = trace.stack(kind)
        self.rows: list[StoryRow] = []
        self.heads: dict[tuple[str, int], np.ndarray] = {}
        self._hidden: dict[int, Tensor] = {}
        self._stream = 0  # the row that holds the residual stream

    def embed(self, embeddings: Embeddings | None) -> None:
        """What enters layer 0, and what it is made of."""
        traced, first = self._traced, self._traced.hidden[0]
        assert traced.learned is not None
        word_vectors = [("learned", traced.learned), ("scaled", traced.scaled)]
        for name, vectors in word_vectors:
            if vectors is not None:
                self._add(name, "embedding", None, vectors)
        # Which row the sum begins with.
        base = len(self.rows) - 1
        total = (traced.learned if traced.scaled is None else traced.scaled).double()
        parts = [base]
        for name, vectors in (("position", traced.positions), ("token type", traced.token_types)):
            if vectors is not None:
                self._add(name, "embedding", None, vectors)
                parts.append(len(self.rows) - 1)
                total = total + vectors.double()
        # Without positions and types there is nothing to add up.
        if len(parts) > 1:
            self._add("sum", "embedding", None, total, total=tuple(parts))
        # A norm or a projection stands between.
        if total.shape != first.shape or not torch.allclose(total, first.double(), rtol=1e-5, atol=1e-6):
            norm = None if embeddings is None else embeddings.norm
            name = "enters layer 0" if norm is None else type(norm).__name__
            projected = embeddings is not None and embeddings.projection is not None
            self._add(f"{name}, projected" if projected else name, "embedding", None, first)
        self._reads(0)

    def walk(self, layer: int) -> None:
        """The steps of a layer."""
        # Step by step where the layer's code is known.
        parts = sublayers(self._trace, self._kind, layer, self._tokens, widen=False)
        if parts:
            for part in parts:
                self._sublayer(layer, part)
        else:
            output = self._trace.attention_of(layer, self._kind).output
            if output is not None:
                self._add("attention", "attention", layer, output)
            self._add("output", "output", layer, self._traced.hidden[layer + 1])
        self._reads(layer + 1)
        kinds: list[Kind] = [self._kind]
        if self._kind == "decoder" and "cross" in self._trace.kinds:
            kinds.append("cross")
        for kind in kinds:
            self._heads(kind, layer)

    def neurons(self) -> StoryNeurons | None:
        """The largest of each layer's neurons."""
        if not self._hidden:
            return None
        layers = tuple(self._hidden)
        # As many as the layer with the fewest has.
        count = min(hidden.shape[1] for hidden in self._hidden.values())
        places = [hidden.abs().topk(min(_TOP, count), dim=1).indices for hidden in self._hidden.values()]
        values = [hidden.gather(1, of) for hidden, of in zip(self._hidden.values(), places, strict=True)]
        active = [(hidden > 0).sum(dim=1) for hidden in self._hidden.values()]
        return StoryNeurons(
            layers=layers,
            count=count,
            places=torch.stack(places).int().cpu().numpy(),
            values=as_array(torch.stack(values)),
            active=torch.stack(active).int().cpu().numpy(),
        )

    def _sublayer(self, layer: int, part: Sublayer) -> None:
        name: StoryPart = part.name  # type: ignore[assignment]
        for step in part.steps:
            # Neurons are kept apart from the residual stream.
            if step.name == "hidden":
                self._hidden[layer] = step.value
                continue
            last = len(self.rows) - 1
            final = step.name.startswith("final ")
            total = (self._stream, last) if step.total else ()
            self._add(step.name, "final" if final else name, layer, step.value, total=total, whole=False)
        self._stream = len(self.rows) - 1

    def _heads(self, kind: Kind, layer: int) -> None:
        """How long what each head adds to the attention's output is."""
        if layer not in self._trace.layers_of(kind) or self._trace.loaded is None:
            return
        traced = self._trace.attention_of(layer, kind)
        projection = self._trace.loaded.network.projection(kind, layer)
        if projection is None or traced.output_written:
            return
        context = traced.context[:, self._tokens]
        # |W_O^h context|, (tokens,) for each head
        added = [projection.of_values(context, head).norm(dim=1) for head in range(len(context))]
        self.heads[kind, layer] = as_array(torch.stack(added, dim=1))

    def _reads(self, layer: int) -> None:
        """The last row is what this layer reads."""
        self.rows[-1] = replace(self.rows[-1], hidden=layer)
        self._stream = len(self.rows) - 1

    def _add(
        self,
        name: str,
        part: StoryPart,
        layer: int | None,
        vectors: Tensor,
        *,
        total: tuple[int, ...] = (),
        whole: bool = True,
    ) -> None:
        """A row of these vectors: of all tokens of the text where they are `whole`, else of those told of."""
        vectors = vectors[self._tokens] if whole else vectors
        self.rows.append(
            StoryRow(
                name=name,
                part=part,
                layer=layer,
                values=as_array(vectors[:, :SHOWN]),
                lengths=as_array(vectors.double().norm(dim=1)),
                dim=vectors.shape[1],
                total=total,
            )
        )


def _moved(traced: TracedStack, tokens: Sequence[int]) -> np.ndarray:
    """How alike each state is to the learned embedding, layer 0's input and the state before, and how far."""
    assert traced.learned is not None
    # (tokens, d) before each layer, and after the last
    states = [state[list(tokens)].double() for state in traced.hidden]
    learned = traced.learned[list(tokens)].double()
    moved = np.full((2, 3, len(states), len(tokens)), np.nan, np.float32)
    for place, state in enumerate(states):
        for to, other in enumerate((learned, states[0], states[max(0, place - 1)])):
            if other.shape == state.shape:
                moved[0, to, place] = as_array(cosine(state, other))
                moved[1, to, place] = as_array((state - other).norm(dim=1))
    return moved
