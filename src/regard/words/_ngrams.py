"""The parts of a word that FastText has vectors for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError

# FNV-1a of 32 bits: its offset basis and its prime.
_OFFSET, _PRIME, _BITS = 2166136261, 16777619, 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Ngrams:
    """Which parts of a word are taken, and how they are numbered.

    A word is written between < and >, and each part of `shortest` to `longest` characters is an n-gram. Its
    bucket is its hash (FNV-1a over the bytes of its UTF-8) modulo the number of buckets, so that several
    n-grams may share a bucket.

    Args:
        shortest, longest: characters of an n-gram, the marks < and > counted.
        buckets: how many there are.

    Raises:
        InputError: lengths that are none, or no bucket.

    Example:
        >>> from regard.words import Ngrams
        >>> list(Ngrams(shortest=3, longest=4).of("bank"))
        ['<ba', '<ban', 'ban', 'bank', 'ank', 'ank>', 'nk>']
        >>> Ngrams(shortest=3, longest=3).buckets_of("as")
        [1429031, 1039177]

    Source: Bojanowski et al. 2017, arXiv 1607.04606, section 3.2. As in the authors' program, bytes of 128
    and more count as negative, < or > alone is no n-gram, and </s>, the end of a line, has none.
    """

    shortest: int = 3
    longest: int = 6
    buckets: int = 2_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise InputError(f"shortest must be from 1 to longest, {self.longest}; got {self.shortest}.")
        if not 1 <= self.buckets < 2**31:
            raise InputError(f"buckets must be from 1 to {2**31 - 1}; got {self.buckets}.")

    def of(self, word: str) -> Iterator[str]:
        """The n-grams of a word, in order, those that occur twice twice."""
        # The end of a line is no word of letters, and has no parts.
        marked = f"<{word}>" if word != "</s>" else ""
        for start in range(len(marked)):
            for end in range(start + self.shortest, min(start + self.longest, len(marked)) + 1):
                # A single < or > is no n-gram; a single letter is one where `shortest` is 1.
                if end - start > 1 or 0 < start < len(marked) - 1:
                    yield marked[start:end]

    def buckets_of(self, word: str) -> list[int]:
        """The bucket of each n-gram of a word."""
        return [_hash(each.encode()) % self.buckets for each in self.of(word)]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Parts:
    """The vectors of n-grams, by their buckets.

    Args:
        ngrams: which parts of a word are taken.
        buckets: those that have a vector, rising.
        vectors: of these, float32 (buckets, size).
    """

    ngrams: Ngrams
    buckets: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]

    def of(self, word: str) -> npt.NDArray[np.float32] | None:
        """The mean of the vectors of a word's n-grams; None where none of them has one."""
        wanted = np.array(self.ngrams.buckets_of(word), dtype=np.int64)
        # `buckets` is sorted: a search for each, then those that were found. (Places at the end are
        # beyond it.)
        places = np.searchsorted(self.buckets, wanted)
        known = places[places < len(self.buckets)]
        known = known[self.buckets[known] == wanted[places < len(self.buckets)]]
        return self.vectors[known].mean(axis=0) if len(known) else None


def _hash(data: bytes) -> int:
    number = _OFFSET
    for byte in data:
        # The authors' program takes bytes as signed: 128 and more are extended by ones.
        signed = byte if byte < 128 else byte | 0xFFFFFF00
        number = (number ^ signed) * _PRIME & _BITS
    return number
