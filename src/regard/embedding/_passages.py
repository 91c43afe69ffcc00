"""Texts as a model will read them: in pieces, in parts where they are long, and framed by the template."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from regard.core.arguments import Count, Limited, Natural
from regard.core.errors import InputError
from regard.embedding._embeddings import Computed, Report
from regard.text import Aligned, Bulk, Frame


@dataclass(frozen=True, slots=True)
class Part:
    """Some pieces of a text that the model reads together, and those of them that are embedded there.

    Attributes:
        start, stop: the pieces that are read, half-open, in the text's count.
        first, last: the pieces whose vectors are taken from here, half-open. Parts of one text take each of
            its pieces once.
    """

    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Windows(Limited):
    """Windows of equal length, spread evenly over the text; each piece is embedded where it has most context.

    k windows of c pieces start at i (n - c) // (k - 1), with the smallest k for which neighbours share at
    least `overlap` pieces. Between two neighbours the border is the middle of what they share, moved to the
    nearest start of a word within it, so that the pieces of a word are all embedded in one window.

    Args:
        size: the tokens of a window, those of the template counted; by default what the model takes.
        overlap: the least pieces that neighbours share; by default half of a window's.

    Raises:
        InputError: sizes that are no windows.

    Example:
        >>> from regard import Windows
        >>> Windows(overlap=2).parts(7, room=4, starts=range(7))
        [Part(start=0, stop=4, first=0, last=2), Part(start=1, stop=5, first=2, last=4), \
Part(start=3, stop=7, first=4, last=7)]
    """

    size: Count | None = None
    overlap: Natural | None = None

    def check(self, room: int) -> None:
        """Refuse an overlap that leaves nothing of a window.

        Args:
            room: the pieces that a window has room for.
        """
        if self.overlap is not None and self.overlap >= room:
            raise InputError(
                f"overlap must be less than the {room} pieces that a window has room for; got {self.overlap}."
            )

    def parts(self, length: int, *, room: int, starts: Sequence[int]) -> list[Part]:
        """How a text is read.

        Args:
            length: its pieces.
            room: the pieces that a window has room for.
            starts: the pieces that words start with, rising.
        """
        if length <= room:
            return [Part(0, length, 0, length)]
        self.check(room)
        # Half a window, unless it is said.
        overlap = room // 2 if self.overlap is None else self.overlap
        # Rounded up: windows enough to cover the text.
        count = -(-(length - overlap) // (room - overlap))
        # Evenly from the first piece to the last.
        begins = [index * (length - room) // (count - 1) for index in range(count)]
        # The middle of an overlap is where both windows have as much context.
        middles = [(left + room + right) // 2 for left, right in pairwise(begins)]
        borders = [0]
        for index, middle in enumerate(middles):
            # Half-way to the borders beside it at the most, so that none is moved past another.
            least = max(begins[index + 1], (middles[index - 1] + middle) // 2 + 1 if index else 1)
            most = begins[index] + room
            if index + 1 < len(middles):
                most = min(most, (middle + middles[index + 1]) // 2)
            # Moved to the start of a word near by, so that no word is divided.
            borders.append(_nearest(middle, starts, least, min(most, length - 1)))
        borders.append(length)
        return [
            Part(begin, begin + room, borders[index], borders[index + 1])
            for index, begin in enumerate(begins)
        ]


@dataclass(frozen=True, slots=True)
class Truncate(Limited):
    """The first pieces of a text, as many as there is room for; the rest is left out, counted and reported.

    sentence-transformers does the same, without a word about it.

    Args:
        size: the tokens that are read, those of the template counted; by default what the model takes.

    Raises:
        InputError: a size below 1.
    """

    size: Count | None = None

    def parts(self, length: int, *, room: int, starts: Sequence[int]) -> list[Part]:
        """How a text is read; see `Windows.parts`."""
        del starts
        kept = min(length, room)
        return [Part(0, kept, 0, kept)]


def _nearest(middle: int, starts: Sequence[int], least: int, most: int) -> int:
    """The start of a word in least..most that is nearest to the middle; the middle where there is none."""
    # The starts on either side.
    place = bisect_left(starts, middle)
    near = [starts[i] for i in (place - 1, place) if 0 <= i < len(starts) and least <= starts[i] <= most]
    return min(near, key=lambda start: (abs(start - middle), start), default=middle)


Window = Windows | Truncate
"""What becomes of a long text."""


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
    def with_rows(cls, texts: Sequence[Passage]) -> Self:
        """Texts with all their rows."""
        return cls(texts, [(text, part) for text, passage in enumerate(texts) for part in passage.parts])

    def ids(self, row: int) -> list[int]:
        """What the model reads in a row."""
        text, part = self.rows[row]
        frame = self.texts[text].frame
        # Each part gets the frame around it.
        return [*frame.before, *self.texts[text].ids[part.start : part.stop], *frame.after]

    def length(self, row: int) -> int:
        """The tokens of a row."""
        text, part = self.rows[row]
        return part.stop - part.start + len(self.texts[text].frame)

    def last(self, row: int) -> Part:
        """The last part of a row's text."""
        return self.texts[self.rows[row][0]].parts[-1]

    def report(
        self, computed: Computed, unknown: int | None, *, zero: NDArray[np.int64], pooling: tuple[str, ...]
    ) -> Report:
        """What becomes of each text; `unknown` is the id of what the vocabulary cannot spell."""
        # Words that the tokenizer gave no pieces, and those that were cut off.
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
            zero=zero,
            pooling=pooling,
            computed=computed,
        )


def read(
    bulk: Bulk,
    frame: Frame,
    texts: Sequence[str],
    *,
    window: Window,
    room: int | None,
    spans: bool,
    first: int = 0,
) -> list[Passage]:
    """Tokenise texts once, and lay their rows out, each with `room` for so many pieces (None: no limit).

    `spans` asks for the places of words and pieces; `first` is the number of the first text, for messages.
    """
    # Ids alone are quicker than ids with their places.
    if not spans:
        pieces = bulk.pieces(texts, first=first)
        return [Passage(ids, parts_of(window, len(ids), room, ()), frame) for ids in pieces]
    passages = []
    for aligned in bulk.aligned(texts, first=first):
        starts = _starts(aligned.word_of)
        parts = parts_of(window, len(aligned.ids), room, starts)
        passages.append(Passage(aligned.ids, parts, frame, aligned))
    return passages


def room_of(window: Window, frame: Frame, *, limit: int | None, most: int | None) -> int | None:
    """How many pieces a row has room for; None for as many as there are.

    The window's own size counts where it has one, else `limit`; never more than the `most` that the model can
    take, the frame around each row included.
    """
    # The caller's size, or the model's limit.
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


def parts_of(window: Window, length: int, room: int | None, starts: Sequence[int]) -> list[Part]:
    """How a text of so many pieces is read; see `Windows.parts`."""
    if room is None or length <= room:
        return [Part(0, length, 0, length)]
    return window.parts(length, room=room, starts=starts)


def groups_of(
    aligned: Aligned | None, stop: int, level: str, unknown: int | None
) -> tuple[NDArray[np.int64], list[tuple[int, int]], NDArray[np.bool_]]:
    """The number of the word that each piece belongs to, or at level "token" of the piece itself.

    And of the words or pieces that get a vector their spans, and whether they are unknown to the model.
    """
    assert aligned is not None, "asked for"
    # Every piece is a group of its own.
    if level == "token":
        ids = np.array(aligned.ids)
        return np.arange(len(ids)), aligned.spans[:stop], ids[:stop] == unknown
    group_of = np.array(aligned.word_of, dtype=np.int64)
    # A word that was cut anywhere has no vector.
    beyond = group_of[stop:]
    beyond = beyond[beyond >= 0]
    words = aligned.words[: int(beyond.min()) if len(beyond) else None]
    return group_of, words, np.array([word in aligned.unknown for word in range(len(words))], bool)


def torn(group_of: NDArray[np.int64], first: int, last: int, count: int) -> list[int]:
    """The words, at most two, that lie only in part between two pieces."""
    torn = []
    # A word that begins before this part, and one that goes on after it.
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
