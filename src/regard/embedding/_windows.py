"""Texts that are longer than the model takes: windows that overlap, or truncation on request."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.core.arguments import whole
from regard.core.errors import InputError


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
class Windows:
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
        >>> Windows(overlap=2).parts(7, room=4, starts=range(7))
        [Part(start=0, stop=4, first=0, last=2), Part(start=1, stop=5, first=2, last=4), \
Part(start=3, stop=7, first=4, last=7)]
    """

    size: int | None = None
    overlap: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            whole("size", self.size, least=1)
        if self.overlap is not None:
            whole("overlap", self.overlap, least=0)

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
        overlap = room // 2 if self.overlap is None else self.overlap
        count = -(-(length - overlap) // (room - overlap))
        begins = [index * (length - room) // (count - 1) for index in range(count)]
        middles = [(left + room + right) // 2 for left, right in pairwise(begins)]
        borders = [0]
        for index, middle in enumerate(middles):
            # Half-way to the borders beside it at the most, so that none is moved past another.
            least = max(begins[index + 1], (middles[index - 1] + middle) // 2 + 1 if index else 1)
            most = begins[index] + room
            if index + 1 < len(middles):
                most = min(most, (middle + middles[index + 1]) // 2)
            borders.append(_nearest(middle, starts, least, min(most, length - 1)))
        borders.append(length)
        return [
            Part(begin, begin + room, borders[index], borders[index + 1])
            for index, begin in enumerate(begins)
        ]


@dataclass(frozen=True, slots=True)
class Truncate:
    """The first pieces of a text, as many as there is room for; the rest is left out, counted and reported.

    What sentence-transformers does, which tells nobody.

    Args:
        size: the tokens that are read, those of the template counted; by default what the model takes.

    Raises:
        InputError: a size below 1.
    """

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            whole("size", self.size, least=1)

    def parts(self, length: int, *, room: int, starts: Sequence[int]) -> list[Part]:
        """How a text is read; see `Windows.parts`."""
        del starts
        kept = min(length, room)
        return [Part(0, kept, 0, kept)]


def _nearest(middle: int, starts: Sequence[int], least: int, most: int) -> int:
    """The start of a word in least..most that is nearest to the middle; the middle where there is none."""
    place = bisect_left(starts, middle)
    near = [starts[i] for i in (place - 1, place) if 0 <= i < len(starts) and least <= starts[i] <= most]
    return min(near, key=lambda start: (abs(start - middle), start), default=middle)
