"""Texts as a model will read them: in pieces, in parts where they are long, and framed by the template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import InputError
from regard.embedding._embeddings import Computed, Report
from regard.embedding._windows import Part, Truncate, Windows
from regard.text import Aligned, Bulk, Frame


@dataclass(frozen=True, slots=True)
class Passage:
    """One text.

    Attributes:
        ids: its pieces.
        parts: how it is read.
        frame: what is put around each part.
        aligned: where its pieces and words are; None where nobody asks.
    """

    ids: list[int]
    parts: list[Part]
    frame: Frame
    aligned: Aligned | None = None

    @property
    def tokens(self) -> int:
        """How many it has, those of the frame counted, before anything is cut off."""
        return len(self.ids) + len(self.frame)

    @property
    def cut(self) -> int:
        """How many of its pieces are left out."""
        return len(self.ids) - self.parts[-1].stop

    @property
    def rows(self) -> list[int]:
        """The tokens of each row that the model reads of it."""
        return [part.stop - part.start + len(self.frame) for part in self.parts]

    def unknown(self, id: int | None) -> int:
        """How many of its words, or where nobody asks for words of its pieces, are unknown."""
        if self.aligned is not None:
            return len(self.aligned.unknown)
        return 0 if id is None else self.ids.count(id)


@dataclass(frozen=True, slots=True)
class Passages:
    """Texts, and for each row that the model reads of them its text and its part."""

    texts: Sequence[Passage]
    rows: list[tuple[int, Part]]

    @classmethod
    def of(cls, texts: Sequence[Passage]) -> Self:
        """Texts with all their rows."""
        return cls(texts, [(text, part) for text, passage in enumerate(texts) for part in passage.parts])

    def ids(self, row: int) -> list[int]:
        """What the model reads in a row."""
        text, part = self.rows[row]
        frame = self.texts[text].frame
        return [*frame.before, *self.texts[text].ids[part.start : part.stop], *frame.after]

    def length(self, row: int) -> int:
        """The tokens of a row."""
        text, part = self.rows[row]
        return part.stop - part.start + len(self.texts[text].frame)

    def last(self, row: int) -> Part:
        """The last part of a row's text."""
        return self.texts[self.rows[row][0]].parts[-1]

    def report(self, computed: Computed, unknown: int | None) -> Report:
        """What becomes of each text; `unknown` is the id of what the vocabulary cannot spell."""
        without = [
            0 if each.aligned is None else each.aligned.without_pieces + _cut_words(each)
            for each in self.texts
        ]
        return Report(
            tokens=np.array([each.tokens for each in self.texts], dtype=np.int64),
            windows=np.array([len(each.parts) for each in self.texts], dtype=np.int64),
            cut=np.array([each.cut for each in self.texts], dtype=np.int64),
            without_vector=np.array(without, dtype=np.int64),
            unknown=np.array([each.unknown(unknown) for each in self.texts], dtype=np.int64),
            computed=computed,
        )


def read(
    bulk: Bulk,
    frame: Frame,
    texts: Sequence[str],
    *,
    window: Windows | Truncate,
    room: int | None,
    spans: bool,
    first: int = 0,
) -> list[Passage]:
    """Tokenise texts once, and lay their rows out, each with `room` for so many pieces (None: no limit).

    `spans` asks for the places of words and pieces; `first` is the number of the first text, for messages.
    """
    if not spans:
        pieces = bulk.pieces(texts, first=first)
        return [Passage(ids, parts_of(window, len(ids), room, ()), frame) for ids in pieces]
    passages = []
    for aligned in bulk.aligned(texts, first=first):
        starts = _starts(aligned.word_of)
        parts = parts_of(window, len(aligned.ids), room, starts)
        passages.append(Passage(aligned.ids, parts, frame, aligned))
    return passages


def room_of(window: Windows | Truncate, frame: Frame, *, limit: int | None, most: int | None) -> int | None:
    """How many pieces a row has room for; None for as many as there are.

    The window's own size counts where it has one, else `limit`; never more than the `most` that the model can
    take, the frame around each row included.
    """
    size = limit if window.size is None else window.size
    if size is None:
        return None
    if most is not None and size > most:
        raise InputError(f"size must be at most {most}, the tokens that the model takes; got {size}.")
    if size <= len(frame):
        raise InputError(
            f"size must be more than the {len(frame)} tokens that the template puts around a text; "
            f"got {size}."
        )
    room = size - len(frame)
    if isinstance(window, Windows):
        window.check(room)
    return room


def parts_of(window: Windows | Truncate, length: int, room: int | None, starts: Sequence[int]) -> list[Part]:
    """How a text of so many pieces is read; see `Windows.parts`."""
    if room is None or length <= room:
        return [Part(0, length, 0, length)]
    return window.parts(length, room=room, starts=starts)


def groups_of(
    aligned: Aligned | None, stop: int, level: str, unknown: int | None
) -> tuple[NDArray[np.int64], list[tuple[int, int]], NDArray[np.bool_]]:
    """For each piece the word, or itself, that it counts to; of those that get a vector the spans, and which
    the vocabulary has no pieces for."""
    assert aligned is not None, "asked for"
    if level == "token":
        ids = np.array(aligned.ids)
        return np.arange(len(ids)), aligned.spans[:stop], ids[:stop] == unknown
    group_of = np.array(aligned.word_of, dtype=np.int64)
    beyond = group_of[stop:]
    beyond = beyond[beyond >= 0]
    words = aligned.words[: int(beyond.min()) if len(beyond) else None]
    return group_of, words, np.array([word in aligned.unknown for word in range(len(words))], bool)


def torn(group_of: NDArray[np.int64], first: int, last: int, count: int) -> list[int]:
    """The words, at most two, that lie only in part between two pieces."""
    torn = []
    if first > 0 and 0 <= group_of[first] < count and group_of[first - 1] == group_of[first]:
        torn.append(int(group_of[first]))
    if last < len(group_of) and 0 <= group_of[last] < count and group_of[last - 1] == group_of[last]:
        torn.append(int(group_of[last]))
    return list(dict.fromkeys(torn))


def _starts(word_of: list[int]) -> list[int]:
    return [
        place for place, word in enumerate(word_of) if word >= 0 and (not place or word_of[place - 1] != word)
    ]


def _cut_words(passage: Passage) -> int:
    """Words that `Truncate` left out, whole or in part."""
    assert passage.aligned is not None, "asked for words"
    beyond = passage.aligned.word_of[passage.parts[-1].stop :]
    return len({word for word in beyond if word >= 0})
