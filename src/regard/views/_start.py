"""What a page opens on: the head and the word with the link that is most their own."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._assets import read
from regard.views._blocks import Facts
from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._records import AttentionRecord, HeldHeads, PageToken, RecordKind, Subject

_Floats = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Ranked = tuple[tuple[int, float, float], dict[str, Any]]
"""A start, after what the smallest of several is the best by."""

_SCREEN, _MOST_WEIGHTS = 48, 1 << 22
"""Queries that are asked of each head, the first of a text; and weights of all heads."""

# How much two words have to be, and how far apart: the first of these that leaves a link.
_WHOLE, _PIECES, _FUNCTION, MARK, SPECIAL = 4, 3, 2, 1, 0
_WANTED = ((_WHOLE, 2), (_PIECES, 2), (_PIECES, 1), (_FUNCTION, 1), (MARK, 1), (MARK, 0), (SPECIAL, 0))

_SHARED = 2 / 3  # of the words: to a key that more of them give most to, no link is their own

# Heads of these names look where they do whatever the words are.
_BY_PLACE = ("previous", "next", "positional stride", "delimiter sink", "broadcast")


def start_of(
    records: Sequence[AttentionRecord],
    held: HeldHeads,
    subject: Subject | None = None,
) -> dict[str, Any] | None:
    """The start of a page of one run, or of how a second differs: see `find_start` and `find_difference`.

    Of a text that was written it is of the rows that wrote it: over its source, where there is one.
    """
    if subject is not None and subject.kind == "compared":
        return find_difference(records[0], records[1], held, subject.facts)
    if subject is None or subject.kind != "writing":
        return find_start(records[0], held)
    # From the last token that was read before writing.
    start = find_start(records[0], held, subject.facts["first"] - 1)
    if start is None:
        return None
    starts = [start, *start.pop("others", ())]
    return _first(((each["kind"] != "cross", 0.0, 0.0), each) for each in starts)


def find_start(record: AttentionRecord, held: HeldHeads, since: int = 0) -> dict[str, Any] | None:
    """The head and the query that a page opens on, and those of its other kinds of attention.

    The page opens on the link, from a word to a word, that is strongest and most its own: see `own_links`. It
    joins two content words, which are single tokens and at least two words apart. A content word has a letter
    or a digit, and is no function word ("of"). Where a text has no two of them, words in pieces count too,
    then the next word, function words and a decoder's first word, on which attention rests, punctuation, the
    word itself, and at last special tokens. The row of a word in pieces is their mean, and what goes to it is
    a sum. Of a long text only the first words count. A sentence that the live page has ready
    (static/ready.json) opens on the word that it is about.

    Args:
        record: What is shown.
        held: The heads that the page holds: the start is among them.
        since: A decoder's first query that counts.

    Returns:
        `kind`, `layer`, `head`, `pin`, the query's first token, and `key`, the key's; `units`, "words", where
        one of them has several; and where there are several kinds, `others` with the same of each of the
        others. None for a page without tokens.
    """
    if record.start is not None and held.every and not since:
        return dict(record.start)
    # How many queries of each head are looked at: fewer of a large model.
    size = sum(layer.keys for kind in record.kinds for layer, _ in _heads(record, held, kind))
    most = min(_SCREEN, max(8, _MOST_WEIGHTS // max(1, size)))
    return _first(_strongest(record, held, kind, most, since) for kind in record.kinds)


def _strongest(
    record: AttentionRecord, held: HeldHeads, kind: RecordKind, most: int, since: int
) -> _Ranked | None:
    queries, keys = (Words(side.tokens) for side in record.sides(kind))
    side = record.sides(kind)[0]
    ready = next((each for each in _ready() if (each["text"], None) == (side.text, side.pair)), None)
    # From the strictest wish to the weakest.
    for place, (least, apart) in enumerate(_WANTED):
        # Queries that say something, in the first part of the text.
        asked = np.flatnonzero(queries.ranks >= min(least, MARK))
        asked = asked[queries.starts[asked] >= (0 if kind == "encoder" else since)][:most]
        columns = np.arange(len(keys.starts))
        # A decoder's first word gets attention whatever it is.
        rests = (columns == 0) & (kind == "decoder") & (least > _FUNCTION)
        says = (keys.ranks >= least) & ~rests
        far = (queries.ranks[asked] >= least)[:, None] & says
        # The project's own sentences: the link that each was chosen for.
        if ready is not None:
            about = (queries.texts[asked] == ready["about"])[:, None]
            own = about & (np.isin(keys.texts, ready["among"]) if "among" in ready else says)
            far = own if own.any() else far
        seen = np.full(far.shape, True) if kind != "decoder" else columns <= asked[:, None]
        # Not to a hidden word, and not to a neighbour.
        if kind != "cross":
            far &= seen & (np.abs(asked[:, None] - columns) >= apart) & (columns <= asked.max(initial=-1))
        if not far.any():
            continue
        best: _Ranked | None = None
        for layer, head in _heads(record, held, kind):
            weights = _of_words(layer, head, queries, asked, keys)
            links = own_links(weights, seen, far, keys.ranks >= min(least, MARK)) * (
                1 - _by_place(record, kind, layer, head)
            )
            links[~far] = -np.inf  # also where a head that goes by place alone makes it no number
            # The largest weight decides between equal links.
            strongest = np.flatnonzero(links == links.max())
            link = strongest[weights.ravel()[strongest].argmax()]
            row, key = np.unravel_index(link, links.shape)
            ranked = place, -float(links[row, key]), -float(weights[row, key])
            if best is None or ranked < best[0]:
                pin, at = int(queries.starts[asked[row]]), int(keys.starts[key])
                cut = {"units": "words"} if queries.sizes[asked[row]] > 1 or keys.sizes[key] > 1 else {}
                start = {"kind": kind, "layer": layer.layer, "head": head, "pin": pin, "key": at}
                best = ranked, start | cut
        return best
    return None


def _first(found: Iterable[_Ranked | None]) -> dict[str, Any] | None:
    """The best of some starts, with the others in it."""
    starts = [start for _, start in sorted(filter(None, found), key=lambda each: each[0])]
    if not starts:
        return None
    first, *others = starts
    return first | {"others": others} if others else first


def own_links(weights: _Floats, seen: _Bools, far: _Bools, counts: _Bools) -> _Floats:
    """How strong each link is, and how much more than the same key gets from everybody.

        own_ij = sqrt(weight_ij) (weight_ij - mean over i of weight_ij)

    The mean is over the queries that have `seen` the key. A key that two of three words give most to, of the
    keys that count, is no link of any one of them: 0 at most. (queries, keys); minus infinity if not far.
    """
    # What each key gets from everybody who sees it.
    mean = np.where(seen, weights, 0).sum(axis=0) / np.maximum(1, seen.sum(axis=0))
    links = np.sqrt(weights) * (weights - mean)
    counted = np.where(counts, weights, 0)
    favourite = (counted > 0) & (counted == counted.max(axis=1, keepdims=True))
    # A key that most words like most tells nothing of any.
    shared = favourite.mean(axis=0) > _SHARED
    links[:, shared] = np.minimum(links[:, shared], 0)
    return np.where(far, links, -np.inf)


def _by_place(record: AttentionRecord, kind: RecordKind, layer: LayerRecord, head: int) -> float:
    """How much of what a head does has a name that says nothing of the words."""
    named = None if record.names is None else record.names["kinds"].get(kind)
    # Names that `heads` gave, with their effect.
    names = named[record.layers[kind].index(layer)][head] if named else []
    return max((float(each["effect"]) for each in names if each["name"] in _BY_PLACE), default=0.0)


def find_difference(
    one: AttentionRecord, other: AttentionRecord, held: HeldHeads, difference: Facts
) -> dict[str, Any] | None:
    """The head and the query that a page of two runs opens on, and those of its other kinds of attention.

    The head has the largest divergence of those that the page holds, and the query is the content word whose
    row differs most in it: the sum over the keys with partners of |weight of the other - weight of the one|.

    As `find_start`; `pin` counts the tokens of both, as the page shows them. None if nothing can be compared.
    """
    return _first(_most_different(one, other, held, difference, kind) for kind in difference["kinds"])


def _most_different(
    one: AttentionRecord, other: AttentionRecord, held: HeldHeads, difference: Facts, kind: RecordKind
) -> _Ranked | None:
    of_kind = difference["kinds"][kind]
    best: tuple[float, int, int] | None = None
    for layer, head in _heads(one, held, kind):
        place = one.layers[kind].index(layer)
        # The head whose weights differ most.
        value = of_kind["divergence"][place][head]
        if value is not None and (best is None or value > best[0]):
            best = value, place, head
    if best is None:
        return None
    value, place, head = best
    queries, keys = (np.array(of_kind[name], np.int64) for name in ("queries", "keys"))
    rows = [
        weight_rows(record.layers[kind][place], head, queries[:, run])[:, keys[:, run]]
        for run, record in enumerate((one, other))
    ]
    # And the query where they differ most.
    apart = np.abs(rows[1] - rows[0]).sum(axis=1)
    tokens = one.sides(kind)[0].tokens
    counted = np.array([_rank(tokens[query : query + 1]) >= _FUNCTION for query in queries[:, 0]])
    pair = int(np.argmax(np.where(counted if counted.any() else True, apart, -1.0)))
    # Before a pair stand the pairs before it, and what only the one or only the other has.
    pin = int(queries[pair].sum()) - pair
    layer_number = one.layers[kind][place].layer
    return (0, -value, 0.0), {"kind": kind, "layer": layer_number, "head": head, "pin": pin}


def _heads(record: AttentionRecord, held: HeldHeads, kind: RecordKind) -> Iterator[tuple[LayerRecord, int]]:
    for layer in record.layers[kind]:
        for head in held.of_layer(kind, layer):
            yield layer, head


class Words:
    """The words of a side: where each begins, how many tokens and which text it has, and how much it says."""

    def __init__(self, tokens: Sequence[PageToken]) -> None:
        self.starts = np.array(
            [at for at, token in enumerate(tokens) if at == 0 or not _is_one(tokens[at - 1], token)], np.int64
        )
        self.sizes = np.diff(self.starts, append=len(tokens))
        pieces = [tokens[start:end] for start, end in zip(self.starts, self.starts + self.sizes, strict=True)]
        self.texts = np.array([_spelled(each) for each in pieces])
        self.ranks = np.array([_rank(each) for each in pieces], np.int64)


def _is_one(one: PageToken, other: PageToken) -> bool:
    return one.word is not None and (one.sequence, one.word) == (other.sequence, other.word)


def _spelled(pieces: Sequence[PageToken]) -> str:
    return "".join(piece.text if piece.surface is None else piece.surface for piece in pieces).strip()


def _rank(pieces: Sequence[PageToken]) -> int:
    spelled = _spelled(pieces)
    if any(piece.special for piece in pieces):
        return SPECIAL
    if any(piece.unknown for piece in pieces) or not any(map(str.isalnum, spelled)):
        return MARK
    if spelled.lower() in _function_words():
        return _FUNCTION
    return _WHOLE if len(pieces) == 1 else _PIECES


@cache
def _ready() -> list[dict[str, Any]]:
    sentences: list[dict[str, Any]] = json.loads(read("ready.json"))
    return sentences


@cache
def _function_words() -> frozenset[str]:
    lists: dict[str, str] = json.loads(read("function_words.json"))
    return frozenset(" ".join(lists.values()).split())


def _of_words(layer: LayerRecord, head: int, queries: Words, asked: _Places, keys: Words) -> _Floats:
    """The weights between words: (asked, words of the keys)."""
    sizes = queries.sizes[asked]
    firsts = np.cumsum(sizes) - sizes
    # All tokens of the words asked for, one after the other.
    tokens = np.repeat(queries.starts[asked] - firsts, sizes) + np.arange(sizes.sum())
    weights = weight_rows(layer, head, tokens)[:, : keys.sizes.sum()]
    # Summed over the tokens of a key word, averaged over those of a query word.
    of_keys = np.add.reduceat(weights, keys.starts, axis=1)
    means: _Floats = np.add.reduceat(of_keys, firsts, axis=0) / sizes[:, None]
    return means
