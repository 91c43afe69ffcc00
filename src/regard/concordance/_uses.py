"""Which uses of a word there are, and what stands around each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.concordance._store import Store, numbers
from regard.concordance._where import JOINED, conditions, forms_of, listed
from regard.core.errors import InputError

Uses = NDArray[np.int64]  # their numbers, in the order of the corpus

_PUNCTUATION: Final = 12  # marks that may stand between a word and its farthest neighbour


@dataclass(frozen=True)
class Found:
    """The uses of a word, or of a phrase of `size` words: the number of its first word in each."""

    uses: Uses
    size: int = 1

    def at(self, rows: NDArray[Any]) -> "Found":
        """Some of them, by their places or by a mask."""
        return Found(self.uses[rows], self.size)


def select(
    store: Store, word: str, where: Sequence[str] = (), *, sample: int | None = None, seed: int = 0
) -> Found:
    """The uses of a word or phrase under conditions: all, or a sample in the order of the corpus."""
    forms = forms_of(store, word)
    condition, values = conditions(store, where)
    joins = "".join(
        f" JOIN use u{i} ON u{i}.id = u.id + {i} AND u{i}.text = u.text AND u{i}.form IN ({listed(of)})"
        for i, of in enumerate(forms[1:], 1)
    )
    tables = JOINED if where else "use u"
    word_is = f"u.form IN ({listed(forms[0])}) AND {condition}"
    rows = store.rows(f"SELECT u.id FROM {tables}{joins} WHERE {word_is} ORDER BY u.id", values)
    if not rows:
        what = f"{word!r} with {', '.join(where)}" if where else f"{word!r}: its words never stand in a row"
        raise InputError(f"the corpus has no use of {what}.")
    uses = np.array(rows, np.int64)[:, 0]
    if sample is not None and sample < len(uses):
        uses = np.sort(np.random.default_rng(seed).choice(uses, sample, replace=False))
    return Found(uses, len(forms))


@dataclass(frozen=True, eq=False)
class Place:
    """Where a use stands: its numbers, the text with its own place in it, and what is known of its document.

    `start` and `stop` are code points of `body`, which begins at `offset` of the document.
    """

    use: int
    text: int
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
    rows = store.rows(
        "SELECT u.id, t.id, t.doc, t.body, u.start, v.stop, t.start, d.source, d.place, d.date, d.meta "
        "FROM json_each(?) w CROSS JOIN use u ON u.id = w.value JOIN use v ON v.id = u.id + ? "
        "JOIN text t ON t.id = u.text JOIN doc d ON d.id = t.doc ORDER BY w.key",
        [numbers(found.uses), found.size - 1],
    )
    return [Place(*row) for row in rows]


class Neighbours(NamedTuple):
    """Words around uses: the row of the use; -1 just before it, 1 just after; the word's form and number."""

    row: NDArray[np.int64]
    distance: NDArray[np.int64]
    form: NDArray[np.int64]
    use: NDArray[np.int64]


def neighbours(store: Store, found: Found, left: int, right: int) -> Neighbours:
    """The words within `left` words before and `right` words after each use, in the same text."""
    reach = _PUNCTUATION + max(left, right)
    rows = store.rows(
        "SELECT * FROM (SELECT w.key, iif(v.id < u.id, -1, 1) * row_number() OVER "
        "(PARTITION BY w.key, v.id < u.id ORDER BY abs(v.id - u.id)) distance, v.form, v.id "
        "FROM json_each(?) w CROSS JOIN use u ON u.id = w.value CROSS JOIN use v "
        f"ON v.id BETWEEN u.id - {reach} AND u.id + {reach + found.size} AND +v.text = u.text "
        f"AND v.id NOT BETWEEN u.id AND u.id + {found.size - 1} "
        "CROSS JOIN form f ON f.id = v.form WHERE f.is_word) "
        "WHERE distance BETWEEN ? AND ? ORDER BY 1, 4",
        [numbers(found.uses), -left, right],
    )
    return Neighbours(*np.array(rows, np.int64).reshape(-1, 4).T)


def sort_order(store: Store, found: Found, keys: Sequence[str]) -> NDArray[np.int64]:
    """The order of uses by the words around them: L1 is the one before, R2 the second after; node."""
    keys = [key.upper() for key in keys]
    if odd := [key for key in keys if re.fullmatch("NODE|[LR][1-9]", key) is None]:
        raise InputError(f"sort must be of L1 to L9, node and R1 to R9; got {odd[0]!r}.")
    reach = max(int(key[1]) if key != "NODE" else 0 for key in keys)
    around = neighbours(store, found, reach, reach)
    names = dict(store.rows("SELECT id, key FROM form"))
    columns = []
    for key in keys:
        if key == "NODE":
            query = "SELECT w.key, u.form FROM json_each(?) w CROSS JOIN use u ON u.id = w.value"
            there = store.rows(query, [numbers(found.uses)])
        else:
            at = around.distance == int(key[1]) * (1 if key[0] == "R" else -1)
            there = np.stack([around.row, around.form])[:, at].T.tolist()
        column = np.full(len(found.uses), "", object)
        for row, form in there:
            column[row] = names[form]
        columns.append(column)
    return np.lexsort([column.astype(str) for column in reversed(columns)])
