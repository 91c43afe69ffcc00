"""A word beside one of another text, on their ways through the layers: what a page draws of two sentences."""

from typing import Any, NamedTuple

import torch

from regard.core.errors import InputError
from regard.tracing.comparison import movement_of
from regard.tracing.record import Trace
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

    By default it is, of the longer words, that which has one most like it. Plain values, as
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
