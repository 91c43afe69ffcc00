"""What a contextual embedding is for: the next words of a decoder, or a word beside one of another text."""

from typing import Any, NamedTuple

import torch

from regard.core.errors import InputError
from regard.models import Loaded, StackKind
from regard.text import Encoding
from regard.tracing.comparison import movement_of
from regard.tracing.measures import logits_of_layers
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun
from regard.views import plain

_SMALL = 3  # letters of words that say little, as a rule


class PlacedWord(NamedTuple):
    """A word of a text, and the places of its tokens; `asked` is "bank#2" of the second."""

    name: str
    tokens: tuple[int, ...]
    asked: str


def placed_words(trace: Trace) -> list[PlacedWord]:
    """The words of a text that have a letter or digit, and a token."""
    encoding = trace.stack(None).encoding
    places: dict[int, list[int]] = {}
    for place, token in enumerate(encoding.tokens):
        if token.word is not None:
            places.setdefault(token.word, []).append(place)
    found: list[PlacedWord] = []
    for number, of in places.items():
        name = encoding.words[number].text
        which = sum(word.name.casefold() == name.casefold() for word in found) + 1
        if any(map(str.isalnum, name)):
            found.append(PlacedWord(name, tuple(of), name if which == 1 else f"{name}#{which}"))
    return found


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
    theirs = placed_words(other)
    some, others = ([asked], theirs) if asked else (_longer(placed_words(trace)), _longer(theirs))
    rows, columns = trace.embeddings(), other.embeddings()
    pairs = []
    for one in some:
        same = [each for each in theirs if each.name.casefold() == one.name.casefold()]
        here = rows[list(one.tokens)].mean(dim=0)
        for each in same or others:
            there = columns[list(each.tokens)].mean(dim=0)
            pairs.append((float(torch.cosine_similarity(here, there, dim=0)), one, each))
    if not pairs:
        raise InputError("second must have a word, as the text must; got none.")
    _, word, partner = max(pairs, key=lambda pair: pair[0])
    found = movement_of([trace, other], [word.asked, partner.asked], [word.tokens, partner.tokens])
    drawn = found.project(directions=True)
    return {
        "first": word.tokens[0],
        "words": list(found.words),
        "texts": list(found.texts),
        "steps": list(found.steps),
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
    if kind == "decoder" and trace.loaded.network.has_vocabulary_head:
        return {"next": _next(trace)}
    words = placed_words(trace) if with_words and trace.kinds == ("encoder",) else []
    if not words:
        return None
    words.sort(key=lambda word: (first not in word.tokens, -len(word.name)))
    try:
        return {"beside": _beside(trace, trace.loaded, words[:_MOST])}
    except InputError:  # a model that takes no such sentence
        return None


def _next(trace: Trace) -> list[dict[str, Any]]:
    assert trace.loaded is not None
    traced = trace.stack("decoder")
    (logits,) = logits_of_layers(trace, [len(traced.hidden) - 1], [len(traced.encoding.tokens) - 1])
    found = logits[0].double().softmax(dim=0).topk(min(_NEXT, logits.shape[1]))
    tokens = Encoding.from_ids(found.indices.tolist(), trace.loaded.tokenizer).tokens
    return [
        {"text": token.surface or token.text, "probability": float(f"{probability:.4g}")}
        for token, probability in zip(tokens, found.values.tolist(), strict=True)
    ]


def _beside(trace: Trace, loaded: Loaded, words: list[PlacedWord]) -> dict[str, Any]:
    """Each word's way, beside its way in the sentence where it ends furthest from here."""
    given = {
        word.name: _SENTENCES.get(word.name.lower(), (_ASKED.replace("*", word.name),)) for word in words
    }
    texts = [text for some in given.values() for text in some]
    traces = TraceOfRun.of_texts(loaded, texts, keeping=KeepPolicy(keep="residual"))
    others = dict(zip(texts, traces, strict=True))
    ways = {
        word.tokens[0]: max(
            (beside(trace, others[text], word) for text in given[word.name]),
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
