"""Which uses of a word there are, and what stands around each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._store import Store
from regard.concordance._where import JOINED, conditions, forms_of
from regard.core.errors import InputError

Uses = NDArray[np.int64]
"""Numbers of uses, in the order of the corpus."""

_PUNCTUATION: Final = 12
"""So many marks may stand between a word and the farthest neighbour that is asked for."""


@dataclass(frozen=True)
class Found:
    """The uses of a word, or of a phrase of `size` words: the number of its first word in each."""

    uses: Uses
    size: int = 1


def select(
    store: Store, word: str, where: Sequence[str] = (), *, sample: int | None = None, seed: int = 0
) -> Found:
    """The uses of a word or phrase under conditions: all, or a sample in the order of the corpus."""
    forms = forms_of(store, word)
    condition, values = conditions(store, where)
    joins = "".join(
        f" JOIN use u{i} ON u{i}.id = u.id + {i} AND u{i}.text = u.text AND u{i}.form IN ({_list(of)})"
        for i, of in enumerate(forms[1:], 1)
    )
    tables = JOINED if where else "use u"
    rows = store.rows(
        f"SELECT u.id FROM {tables}{joins} WHERE u.form IN ({_list(forms[0])}) AND {condition} ORDER BY u.id",
        values,
    )
    if not rows:
        what = f"{word!r} with {', '.join(where)}" if where else f"{word!r}: its words never stand in a row"
        raise InputError(f"the corpus has no use of {what}.")
    uses = np.array(rows, np.int64)[:, 0]
    if sample is not None and sample < len(uses):
        uses = np.sort(np.random.default_rng(seed).choice(uses, sample, replace=False))
    return Found(uses, len(forms))


def _list(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


@dataclass(frozen=True, eq=False)
class Place:
    """Where a use stands, and in what.

    Attributes:
        use: its number.
        text: of its text.
        body: the text.
        start, stop: where it is there, in code points.
        offset: of the text in its document.
        source, where: the document.
        date, meta: what is known of it.
    """

    use: int
    text: int
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
    with store.of(found.uses):
        rows = store.rows(
            "SELECT u.id, t.id, t.body, u.start, v.stop, t.start, d.source, d.place, d.date, d.meta "
            f"FROM wanted w JOIN use u ON u.id = w.use JOIN use v ON v.id = u.id + {found.size - 1} "
            "JOIN text t ON t.id = u.text JOIN doc d ON d.id = t.doc ORDER BY w.rowid"
        )
    return [Place(*row) for row in rows]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The words around some uses, punctuation left out.

    `row` is the place of the use among those that were asked for; a `distance` of -1 is the word before the
    use, of 1 the one after it; `form` and `use` are the word's own numbers.
    """

    row: NDArray[np.int64]
    distance: NDArray[np.int64]
    form: NDArray[np.int64]
    use: NDArray[np.int64]


def neighbours(store: Store, found: Found, left: int, right: int) -> Neighbours:
    """The words within `left` words before and `right` words after each use, in the same text."""
    reach = _PUNCTUATION + max(left, right)
    with store.of(found.uses):
        rows = np.array(
            store.rows(
                "SELECT w.rowid - 1, v.id - u.id, v.form, v.id "
                "FROM wanted w CROSS JOIN use u ON u.id = w.use CROSS JOIN use v "
                f"ON v.id BETWEEN u.id - {reach} AND u.id + {reach + found.size} AND +v.text = u.text "
                "CROSS JOIN form f ON f.id = v.form WHERE f.is_word ORDER BY w.rowid, v.id"
            ),
            np.int64,
        ).reshape(-1, 4)
    row, step, form, use = rows.T
    distance = np.zeros_like(step)
    for sign, side in ((-1, step < 0), (1, step >= found.size)):
        at = np.flatnonzero(side)[::sign]
        distance[at] = sign * _ranks(row[at])
    kept = (distance != 0) & (distance >= -left) & (distance <= right)
    return Neighbours(row[kept], distance[kept], form[kept], use[kept])


def _ranks(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """1, 2, 3 within each run of equal numbers."""
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    return np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows))) + 1


def sort_order(store: Store, found: Found, keys: Sequence[str]) -> NDArray[np.int64]:
    """The order of uses by the words around them: L1 is the one before, R2 the second after; node."""
    columns: list[Any] = []
    around = neighbours(store, found, 9, 9)
    names = dict(store.rows("SELECT id, key FROM form"))
    for key in keys:
        side, number = key[:1].upper(), key[1:]
        if key.lower() == "node":
            with store.of(found.uses):
                forms = store.rows("SELECT u.form FROM wanted w JOIN use u ON u.id = w.use ORDER BY w.rowid")
            columns.append(np.array([names[form] for (form,) in forms], object))
            continue
        if side not in ("L", "R") or not number.isdigit() or not 1 <= int(number) <= 9:
            raise InputError(f"sort must be of L1 to L9, node and R1 to R9; got {key!r}.")
        column = np.full(len(found.uses), "", object)
        at = around.distance == (int(number) if side == "R" else -int(number))
        column[around.row[at]] = [names[form] for form in around.form[at].tolist()]
        columns.append(column)
    return np.lexsort([np.array(each, str) for each in reversed(columns)])
