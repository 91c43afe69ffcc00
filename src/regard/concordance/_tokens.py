"""The corpus as numbers: which form stands at each place, and where texts and documents begin."""

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

COLUMNS = {"docs": "u4", "texts": "u4", "forms": "u4", "gaps": "u2"}
"""What a block has: of each document how many texts, of each text how many uses, of each use the number of
its form, and how many characters stand between it and the use before it in its text.
"""


def packed(columns: Iterable[Sequence[int]]) -> list[bytes]:
    """The columns of a block as they are stored, in the order of `COLUMNS`."""
    kinds = zip(columns, COLUMNS.values(), strict=True)
    # Level 1: fast, and most of the gain.
    return [zlib.compress(np.array(column, f"<{kind}").tobytes(), 1) for column, kind in kinds]


class Tokens:
    """All uses of an index, by their numbers, which begin at 1 and follow the order of the corpus.

    Attributes:
        forms: (uses + 1,), the form of each use; 0 at 0, which is no use.
        text_first, doc_first: (texts + 1,) and (documents + 1,), the first use of each; one behind the last.
        doc_text: (documents + 1,), the first text of each document, and one behind the last.
    """

    def __init__(self, query: Callable[..., list[tuple[Any, ...]]]) -> None:
        self._query = query
        rows = query("SELECT docs, texts, forms, gaps FROM block ORDER BY id")
        self.blocks = len(rows)
        joined = {}
        for at, (name, kind) in enumerate(COLUMNS.items()):
            joined[name] = np.frombuffer(b"".join(zlib.decompress(row[at]) for row in rows), f"<{kind}")
        docs, texts, forms, self._gaps = joined.values()
        # The sums of one column are the lengths of the next: a damaged file is noticed here.
        if (docs.sum(), texts.sum(), len(forms)) != (len(texts), len(forms), len(self._gaps)):
            raise ValueError("its blocks do not fit together")
        # A use 0 that is none, so that numbers from 1 on index the array.
        self.forms = np.concatenate([np.zeros(1, np.uint32), forms])
        # Numbers begin at 1: sums of lengths, one behind the last.
        self.text_first = 1 + np.concatenate([[0], np.cumsum(texts, dtype=np.int64)])
        self.doc_text = 1 + np.concatenate([[0], np.cumsum(docs, dtype=np.int64)])
        self.doc_first = self.text_first[self.doc_text - 1]

    def __len__(self) -> int:
        return len(self.forms) - 1

    @cached_property
    def is_word(self) -> Mask:
        """By the number of a form, whether it is a word, and no mark."""
        return self.mask(id for (id,) in self._query("SELECT id FROM form WHERE is_word"))

    @cached_property
    def words(self) -> Numbers:
        """The uses that are words."""
        return np.flatnonzero(self.is_word[self.forms])

    def mask(self, forms: Iterable[int]) -> Mask:
        """Forms as a mask by their numbers."""
        found = np.zeros(1 + self._query("SELECT count(*) FROM form")[0][0], np.bool_)
        found[list(forms)] = True
        return found

    def text_of(self, uses: Numbers) -> Numbers:
        """The texts that uses are in."""
        # text_first[i] is the first use of text i + 1: the search gives the number itself.
        return np.searchsorted(self.text_first, uses, side="right")

    def doc_of(self, uses: Numbers) -> Numbers:
        """The documents that uses are in."""
        return np.searchsorted(self.doc_first, uses, side="right")

    def doc_of_text(self, texts: Numbers) -> Numbers:
        """The documents that texts are of."""
        return np.searchsorted(self.doc_text, texts, side="right")

    def spans(self, texts: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """All uses in some texts (in order, each once), and the code points where they begin and end."""
        first, count = self.text_first[texts - 1], self.text_first[texts] - self.text_first[texts - 1]
        ends = np.cumsum(count)
        # Runs of numbers, one for each text, without a loop: counted on from each run's first.
        uses = np.arange(int(count.sum())) + np.repeat(first - ends + count, count)
        # Lengths of forms are asked of the database, each form once.
        forms, kind = np.unique(self.forms[uses], return_inverse=True)
        query = "SELECT form FROM json_each(?) w JOIN form f ON f.id = w.value ORDER BY w.key"
        size = np.array([len(form) for (form,) in self._query(query, [json.dumps(forms.tolist())])])
        length: Any = size[kind] if len(size) else np.zeros(0, np.int64)
        # Gaps and words laid end to end: their running sum is where each use ends.
        run = np.concatenate([[0], np.cumsum(self._gaps[uses - 1] + length)])
        # Counted anew from the start of each text.
        stops = run[1:] - np.repeat(run[ends - count], count)
        return uses, stops - length, stops

    def under(self, texts: Mask | None, forms: Mask | None) -> Mask:
        """By their numbers, the uses in texts that a mask has, whose forms another one has."""
        found = np.ones(len(self.forms), np.bool_)
        found[0] = False
        if texts is not None:
            # Texts to uses: each text's flag as often as it has uses.
            found[1:] = np.repeat(texts[1:], np.diff(self.text_first))
        return found if forms is None else found & forms[self.forms]
