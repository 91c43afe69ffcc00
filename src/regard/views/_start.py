"""What a page opens on: the head and the word where most is to be seen."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.views._blocks import Facts
from regard.views._layer_record import LayerRecord
from regard.views._records import AttentionRecord, HeldHeads, PageToken, RecordKind
from regard.views._weights import weight_rows

_Floats = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int64]
_Ranked = tuple[tuple[int, float], dict[str, Any]]
"""A start, after what the smallest of several is the best by."""

_MOST_QUERIES, _MOST_WEIGHTS = 64, 1 << 22
"""Words that are asked of each head, and weights of all: of a longer text, evenly spaced words."""

_Counts = Literal["content", "plain", "any"]

# Which tokens count, and how far away a key has to be: the first of these that leaves a link.
_WANTED: tuple[tuple[_Counts, int], ...] = (
    ("content", 2),
    ("content", 1),
    ("plain", 1),
    ("plain", 0),
    ("any", 0),
)


def start_of(
    records: Sequence[AttentionRecord],
    held: HeldHeads,
    difference: Facts | None = None,
    writing: Facts | None = None,
) -> dict[str, Any] | None:
    """The start of a page of one run, or of how a second differs: see `find_start` and `find_difference`.

    Of a text that was written it is of the rows that wrote it: over its source, where there is one.
    """
    if difference is not None:
        return find_difference(records[0], records[1], held, difference)
    start = find_start(records[0], held, 0 if writing is None else writing["first"] - 1)
    if writing is None or start is None:
        return start
    starts = [start, *start.pop("others", ())]
    return _first(((each["kind"] != "cross", 0.0), each) for each in starts)


def find_start(record: AttentionRecord, held: HeldHeads, since: int = 0) -> dict[str, Any] | None:
    """The head and the query that a page opens on, and those of its other kinds of attention.

    The head has the largest mean of `far_links` over the content words; the query is the one with the
    largest of them in it. A content word has a letter or a digit, and a key counts from two tokens away on,
    unless it is a piece of the same word. Where there is no such link, the next token counts too, then what
    is no content, then the token itself, and at last special tokens.

    Args:
        record: What is shown.
        held: The heads that the page holds: the start is among them.
        since: A decoder's first query that counts.

    Returns:
        `kind`, `layer`, `head`, and `pin`, the query's token; where there are several kinds, `others` has the
        same of each of the others. None for a page without tokens.
    """
    size = sum(layer.keys for kind in record.kinds for layer, _ in _heads(record, held, kind))
    most = min(_MOST_QUERIES, max(8, _MOST_WEIGHTS // max(1, size)))
    return _first(_farthest(record, held, kind, most, since) for kind in record.kinds)


def _farthest(
    record: AttentionRecord, held: HeldHeads, kind: RecordKind, most: int, since: int = 0
) -> _Ranked | None:
    of_queries, of_keys = (side.tokens for side in record.sides(kind))
    for rank, (counts, apart) in enumerate(_WANTED):
        queries, keys = _places(of_queries, counts), _places(of_keys, counts)
        if kind != "encoder":
            queries = queries[queries >= since]
        queries = queries[:: -(-len(queries) // most) or 1]
        far = np.ones((len(queries), len(keys)), bool)
        if kind != "cross":
            far = _apart(of_queries, queries, keys, apart)
        if not far.any():
            continue
        best: _Ranked | None = None
        for layer, head in _heads(record, held, kind):
            links = far_links(weight_rows(layer, head, queries)[:, keys], far)
            place = rank, -float(np.nanmean(links))
            if best is None or place < best[0]:
                pin = int(queries[np.nanargmax(links)])
                best = place, {"kind": kind, "layer": layer.layer, "head": head, "pin": pin}
        return best
    return None


def _first(found: Iterable[_Ranked | None]) -> dict[str, Any] | None:
    """The best of some starts, with the others in it."""
    starts = [start for _, start in sorted(filter(None, found), key=lambda each: each[0])]
    if not starts:
        return None
    first, *others = starts
    return first | {"others": others} if others else first


def far_links(weights: _Floats, far: npt.NDArray[np.bool_]) -> _Floats:
    """How much of each query goes to the one key that gets most, of those that are far enough.

        link_i = max over j, far_ij, of weight_ij

    (queries,), NaN where no key counts.
    """
    largest = np.where(far, weights, -1.0).max(axis=1, initial=-1.0)
    return np.where(far.any(axis=1), largest, np.nan)


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
    apart = np.abs(rows[1] - rows[0]).sum(axis=1)
    tokens = one.sides(kind)[0].tokens
    counted = np.isin(queries[:, 0], _places(tokens, "content"))
    pair = int(np.argmax(np.where(counted if counted.any() else True, apart, -1.0)))
    # Before a pair stand the pairs before it, and what only the one or only the other has.
    pin = int(queries[pair].sum()) - pair
    layer_number = one.layers[kind][place].layer
    return (0, -value), {"kind": kind, "layer": layer_number, "head": head, "pin": pin}


def _heads(record: AttentionRecord, held: HeldHeads, kind: RecordKind) -> Iterator[tuple[LayerRecord, int]]:
    for layer in record.layers[kind]:
        for head in held.of(kind, layer):
            yield layer, head


def _places(tokens: Sequence[PageToken], counts: _Counts) -> _Places:
    def counted(token: PageToken) -> bool:
        if counts == "any" or token.special:
            return counts == "any"
        read = token.text if token.surface is None else token.surface
        return counts == "plain" or any(map(str.isalnum, read))

    return np.flatnonzero([counted(token) for token in tokens])


def _apart(tokens: Sequence[PageToken], queries: _Places, keys: _Places, apart: int) -> npt.NDArray[np.bool_]:
    """Whether each key is so many tokens away from each query, and in another word."""
    far: npt.NDArray[np.bool_] = np.abs(queries[:, None] - keys) >= apart
    if apart:
        words = np.array(
            [-1 - place if token.word is None else token.word for place, token in enumerate(tokens)]
        )
        far &= words[queries][:, None] != words[keys]
    return far
