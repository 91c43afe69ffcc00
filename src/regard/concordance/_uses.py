"""Which uses of a word there are, where they stand, and what stands beside them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.concordance._query import Spelling, matches, read_query
from regard.concordance._store import Store, numbers
from regard.concordance._tokens import Mask, Numbers
from regard.concordance._where import limits, unmet
from regard.core.arguments import plain
from regard.core.errors import InputError
from regard.core.extras import optional

_MARGIN: Final = 200  # characters before and after a part of a long text, which are read with it


@dataclass(frozen=True)
class Found:
    """The uses of a word, in the order of the corpus: of each the first word, and how many words it has."""

    uses: Numbers
    sizes: Numbers

    def at(self, rows: NDArray[Any]) -> "Found":
        """Some of them, by their places or by a mask."""
        return Found(self.uses[rows], self.sizes[rows])


def single(uses: Iterable[int]) -> Found:
    """Uses of one word each."""
    found = np.array([*uses], np.int64)
    return Found(found, np.ones_like(found))


def select(
    store: Store,
    word: str,
    where: Sequence[str] = (),
    *,
    spelling: Spelling | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Found:
    """The uses of a word or phrase under conditions: all, or a sample in the order of the corpus."""
    pattern = read_query(store, plain("word", word, str), spelling)
    uses = Found(*matches(store.tokens, pattern))
    if not len(uses.uses):
        raise InputError(f"the corpus has no use of {word!r}: its words never stand in a row.")
    uses = uses.at(fitting(store, uses.uses, where))
    if not len(uses.uses):
        raise InputError(f"the corpus has no use of {word!r} with {', '.join(where)}.{unmet(store, where)}")
    if sample is not None and sample < len(uses.uses):
        uses = uses.at(np.sort(np.random.default_rng(seed).choice(len(uses.uses), sample, replace=False)))
    return uses


def fitting(store: Store, uses: Numbers, where: Sequence[str]) -> Mask:
    """Which uses are as conditions want them."""
    texts, forms = limits(store, where)
    fits = np.ones(len(uses), np.bool_)
    if texts is not None:
        fits &= texts[store.tokens.text_of(uses)]
    if forms is not None:
        fits &= forms[store.tokens.forms[uses]]
    return fits


@dataclass(frozen=True, eq=False)
class Place:
    """Where a use stands: its numbers, the text with its own place in it, and what is known of its document.

    `start` and `stop` are code points of `body`, which begins at `offset` of the document. Of a long text the
    body is a part, with some of what stands before and after.
    """

    use: int
    doc: int
    body: str
    start: int
    stop: int
    offset: int
    source: str
    where: str
    date: str | None
    meta: str

    @property
    def node(self) -> str:
        """The word."""
        return self.body[self.start : self.stop]


def places(store: Store, found: Found) -> list[Place]:
    """Where uses stand, in their order."""
    tokens = store.tokens
    last = found.uses + found.sizes - 1
    first_text, last_text = tokens.text_of(found.uses), tokens.text_of(last)
    texts = np.unique(np.concatenate([first_text, last_text]))
    uses, starts, stops = tokens.spans(texts)
    start, stop = starts[np.searchsorted(uses, found.uses)], stops[np.searchsorted(uses, last)]
    docs = tokens.doc_of_text(first_text)
    # CROSS JOIN keeps SQLite to this order: the few numbers first, then look-ups.
    query = "SELECT d.id, source, place, date, meta FROM json_each(?) w CROSS JOIN doc d ON d.id = w.value"
    known = {id: about for id, *about in store.rows(query, [numbers(np.unique(docs))])}
    read = bodies(store, sorted({*zip(first_text.tolist(), last_text.tolist(), strict=True)}))
    columns = (found.uses, docs, start, stop, first_text, last_text)
    all_places = []
    for use, doc, begin, end, a, b in np.stack(columns, axis=1).tolist():
        # `head`: characters that were read with it, before its own text.
        head, body, offset, last_begins = read[a, b]
        all_places.append(Place(use, doc, body, head + begin, last_begins + end, offset, *known[doc]))
    return all_places


def bodies(store: Store, runs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, str, int, int]]:
    """Each run of texts with what stands around it: where its first text begins in that, that text itself,
    where it begins in the document, and where the run's last text begins in it.
    """
    # The texts of each run, and one on either side.
    wanted = {text for a, b in runs for text in range(a - 1, b + 2)}
    query = "SELECT t.id, doc, start, body FROM json_each(?) w CROSS JOIN text t ON t.id = w.value"
    rows = {id: row for id, *row in store.rows(query, [numbers(sorted(wanted))])}
    nothing: list[Any] = [0, 0, ""]
    read = {}
    for a, b in runs:
        doc, start, _ = rows[a]
        before, after = (rows.get(text, nothing) for text in (a - 1, b + 1))
        # Neighbours count only within the same document.
        head, tail = (each[2] if each[0] == doc else "" for each in (before, after))
        if len(head) > _MARGIN:
            # Cut where a word begins.
            head = head[-_MARGIN:]
            head = head[head.find(" ") + 1 :]
        if len(tail) > _MARGIN:
            tail = tail[:_MARGIN]
            tail = tail[: tail.rfind(" ") + 1]
        body = "".join(rows[text][2] for text in range(a, b + 1))
        # From the start of the first text to that of the last, in the body.
        inner = len(head) + rows[b][1] - start
        read[a, b] = len(head), head + body + tail, start - len(head), inner
    return read


class Neighbours(NamedTuple):
    """Words around uses: the row of the use; -1 just before it, 1 just after; the word's form and number."""

    row: Numbers
    distance: Numbers
    form: Numbers
    use: Numbers


def neighbours(store: Store, found: Found, left: int, right: int) -> Neighbours:
    """The words within `left` words before and `right` words after each use, in the same document."""
    tokens, words = store.tokens, store.tokens.words
    doc = tokens.doc_of(found.uses)
    first, ends = tokens.doc_first[doc - 1], tokens.doc_first[doc]
    parts = []
    # Places among the words: marks are not counted as neighbours.
    before, after = np.searchsorted(words, found.uses), np.searchsorted(words, found.uses + found.sizes)
    for distance in (*range(-left, 0), *range(1, right + 1)):
        at = before + distance if distance < 0 else after + distance - 1
        rows = np.flatnonzero((at >= 0) & (at < len(words)))
        use = words[at[rows]]
        # In the same document.
        there = (use >= first[rows]) & (use < ends[rows])
        parts.append(
            np.stack([rows[there], np.full(there.sum(), distance), tokens.forms[use[there]], use[there]])
        )
    joined = np.concatenate([np.zeros((4, 0), np.int64), *parts], axis=1)
    # By use, then from left to right.
    return Neighbours(*joined[:, np.lexsort((joined[3], joined[0]))])


def keys_of(store: Store, found: Found, key: str, unit: str = "f.key") -> tuple[Numbers, list[str]]:
    """What stands at L1, R2 or node of each use, by number, and the names by these numbers; "" where nothing.

    `unit` is the SQL of a form's name.
    """
    tokens, key = store.tokens, key.upper()
    if re.fullmatch("NODE|[LR][1-9]", key) is None:
        raise InputError(f"sort must be of L1 to L9, node and R1 to R9; got {key!r}.")
    if key == "NODE":
        # A phrase has several forms: a row for each use, filled up with 0.
        width = int(found.sizes.max(initial=1))
        at = np.minimum(found.uses[:, None] + np.arange(width), len(tokens))
        rows = np.where(np.arange(width) < found.sizes[:, None], tokens.forms[at], 0)
    else:
        reach = int(key[1])
        around = neighbours(store, found, reach * (key[0] == "L"), reach * (key[0] == "R"))
        # Only the word at exactly this distance.
        rows, there = np.zeros((len(found.uses), 1), np.int64), np.abs(around.distance) == reach
        rows[around.row[there], 0] = around.form[there]
    # Different rows once: names are looked up for these.
    distinct, kinds = np.unique(rows, axis=0, return_inverse=True)
    query = f"SELECT f.id, {unit} FROM json_each(?) w CROSS JOIN form f ON f.id = w.value"
    names = dict(store.rows(query, [numbers(np.unique(distinct))])) | {0: ""}
    spelt = [" ".join(map(names.__getitem__, row)).rstrip() for row in distinct.tolist()]
    # Different forms may have the same name (a lemma).
    kept, of = np.unique(np.array(spelt, object), return_inverse=True)
    return of[kinds.reshape(-1)], kept.tolist()


def sort_order(store: Store, found: Found, keys: Sequence[str]) -> NDArray[np.int64]:
    """The order of uses by the words around them: L1 is the one before, R2 the second after; node."""
    columns = []
    for key in keys:
        of, names = keys_of(store, found, key)
        columns.append(_ranks(names)[of])
    # lexsort takes the last key as the first: so they are turned round.
    return np.lexsort(columns[::-1])


def _ranks(names: Sequence[str]) -> NDArray[np.int64]:
    """The places of names in the order of dictionaries, that of Unicode: UTS #10."""
    key: Any = None
    # ASCII sorts by itself; other letters need the tables of Unicode.
    if not all(map(str.isascii, names)):
        key = optional("sorting needs", "pyuca", "pyuca")[0].Collator().sort_key
    order = sorted(range(len(names)), key=lambda at: key(names[at]) if key else names[at])
    return np.argsort(np.array(order, np.int64))
