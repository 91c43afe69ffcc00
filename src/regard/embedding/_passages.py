"""Texts as a model will read them: in pieces, in parts where they are long, and framed by the template."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.core.errors import InputError
from regard.embedding._report import Computed, Report
from regard.embedding._windows import Part, Truncate, Windows
from regard.text import Aligned, Bulk, Frame


@dataclass(frozen=True, slots=True)
class Passage:
    """One text.

    Attributes:
        ids: its pieces.
        parts: how it is read.
        aligned: where its pieces and words are; None where nobody asks.
    """

    ids: list[int]
    parts: list[Part]
    aligned: Aligned | None

    def unknown(self, id: int | None) -> int:
        """How many of its words, or where nobody asks for words of its pieces, are unknown."""
        if self.aligned is not None:
            return len(self.aligned.unknown)
        return 0 if id is None else self.ids.count(id)


@dataclass(frozen=True, slots=True)
class Passages:
    """Texts, and the rows that the model reads of them.

    Attributes:
        texts: one for each text.
        rows: for each row of the model its text and its part.
        frame: what is put around each row.
    """

    texts: list[Passage]
    rows: list[tuple[int, Part]]
    frame: Frame

    def ids(self, row: int) -> list[int]:
        """What the model reads in a row."""
        text, part = self.rows[row]
        return [*self.frame.before, *self.texts[text].ids[part.start : part.stop], *self.frame.after]

    def length(self, row: int) -> int:
        """The tokens of a row."""
        part = self.rows[row][1]
        return part.stop - part.start + len(self.frame)

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
            tokens=np.array([len(each.ids) + len(self.frame) for each in self.texts], dtype=np.int64),
            windows=np.array([len(each.parts) for each in self.texts], dtype=np.int64),
            cut=np.array([len(each.ids) - each.parts[-1].stop for each in self.texts], dtype=np.int64),
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
) -> Passages:
    """Tokenise texts once, and lay their rows out.

    Args:
        bulk, frame: of the tokenizer.
        texts: as the tokenizer gets them.
        window: what becomes of long ones.
        room: the pieces that a row has room for; None for no limit.
        spans: whether the places of words and pieces are wanted.
        first: the number of the first text, for messages.
    """
    passages = []
    if spans:
        for aligned in bulk.aligned(texts, first=first):
            starts = _starts(aligned.word_of)
            parts = _parts(window, len(aligned.ids), room, starts)
            passages.append(Passage(aligned.ids, parts, aligned))
    else:
        passages = [
            Passage(ids, _parts(window, len(ids), room, ()), None) for ids in bulk.pieces(texts, first=first)
        ]
    rows = [(text, part) for text, passage in enumerate(passages) for part in passage.parts]
    return Passages(passages, rows, frame)


def room_of(window: Windows | Truncate, frame: Frame, *, limit: int | None, most: int | None) -> int | None:
    """How many pieces a row has room for; None for as many as there are.

    Args:
        window: its size counts where it has one.
        frame: what is put around each row.
        limit: the tokens of a row where the window has no size; None for no limit.
        most: the tokens that the model can take; None for no limit.
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


def _parts(window: Windows | Truncate, length: int, room: int | None, starts: Sequence[int]) -> list[Part]:
    if room is None or length <= room:
        return [Part(0, length, 0, length)]
    return window.parts(length, room=room, starts=starts)


def _starts(word_of: list[int]) -> list[int]:
    return [
        place for place, word in enumerate(word_of) if word >= 0 and (not place or word_of[place - 1] != word)
    ]


def _cut_words(passage: Passage) -> int:
    """Words that `Truncate` left out, whole or in part."""
    assert passage.aligned is not None, "asked for words"
    beyond = passage.aligned.word_of[passage.parts[-1].stop :]
    return len({word for word in beyond if word >= 0})
