"""Vectors of words: what is near, and what is to one word as others are to each other."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from regard.core.arguments import path_of, whole
from regard.core.errors import CheckpointError, InputError
from regard.core.wording import reason
from regard.words._files import read_file, write_file
from regard.words._ngrams import Parts

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WordVectors:
    """A vector for each word, as word2vec and FastText learn them.

    Args:
        words: each once; the most frequent first.
        vectors: float32 (words, size).
        parts: of FastText, the vectors of n-grams: then other words have vectors too.
        repeated: how often a file had a word again; the first is kept.

    Raises:
        InputError: not as many words as vectors, a word twice, or numbers that are not finite.

    Example:
        >>> import numpy as np
        >>> from regard.words import WordVectors
        >>> made = WordVectors(words=["river", "bank", "loan"], vectors=np.eye(3, dtype=np.float32) + 1)
        >>> made["bank"].tolist(), "boat" in made
        ([1.0, 2.0, 1.0], False)
        >>> made.nearest("bank", 1)
        [('river', 0.833...)]
    """

    words: Sequence[str]
    vectors: Floats
    parts: Parts | None = None
    repeated: int = 0
    _rows: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        try:
            # Numbers beyond float32 become infinite here, and are refused below.
            with np.errstate(over="ignore"):
                object.__setattr__(self, "vectors", np.asarray(self.vectors, np.float32))
        except (TypeError, ValueError) as error:
            raise InputError(f"vectors must be rows of numbers, all as long; {reason(error)}.") from error
        if not all(isinstance(word, str) for word in self.words):
            raise InputError("words must be strings.")
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            raise InputError(
                f"vectors must be one row for each of {len(self.words):,} words; got {self.vectors.shape}."
            )
        # The last row of a word that comes twice stays: so the first one is found as different.
        rows = {word: row for row, word in enumerate(self.words)}
        if len(rows) < len(self.words):
            twice = next(word for row, word in enumerate(self.words) if rows[word] != row)
            raise InputError(f"words must be different; {twice!r} is there twice.")
        if not np.isfinite(self.vectors).all():
            raise InputError("vectors must be finite numbers.")
        # The class is frozen: fields that are computed are set past it.
        object.__setattr__(self, "_rows", rows)

    def __repr__(self) -> str:
        more = "" if self.parts is None else f", {len(self.parts.buckets):,} buckets of n-grams"
        more += f"; {self.repeated:,} came again and are left out" if self.repeated else ""
        return f"WordVectors({len(self.words):,} words of {self.vectors.shape[1]}{more})"

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __getitem__(self, word: str) -> Floats:
        """The vector of a word; with n-grams, of any word: the mean of those of its n-grams.

        Raises:
            InputError: a word without a vector; near ones are named.
        """
        row = self._rows.get(word)
        if row is not None:
            own: Floats = self.vectors[row]
            return own
        # A word that was not learned: FastText's n-grams may know its parts.
        vector = None if self.parts is None else self.parts.of(word)
        if vector is None:
            near = get_close_matches(word, self.words, n=3)
            hint = f"; near ones are {', '.join(map(repr, near))}" if near else ""
            raise InputError(f"word must be one of the {len(self):,} with a vector; got {word!r}{hint}.")
        return vector

    def similarity(self, one: str, other: str) -> float:
        """The cosine of two words' vectors, x.y / (|x| |y|), in float64; 0 where one is zero."""
        return float((_unit(self[one]) * _unit(self[other])).sum())

    def nearest(
        self, to: "str | Sequence[str] | npt.ArrayLike", count: int = 10, *, unlike: str | Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """The words whose vectors have the largest cosines to that of a word, to several, or to a vector.

        Of several words the vectors of length 1 are added, and those of `unlike` subtracted.

        Args:
            to: a word or words, or a vector.
            count: how many.
            unlike: a word or words that they should not be near to. All words that are named are left out.

        Raises:
            InputError: a word without a vector, a vector of another size, or no word.

        Example:
            >>> from regard.words import WordVectors
            >>> rows = [[1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 1, 1], [1, 0, 0]]
            >>> made = WordVectors(words=["man", "king", "woman", "queen", "apple"], vectors=rows)
            >>> made.nearest(["king", "woman"], 1, unlike="man")[0][0]
            'queen'
        """
        whole("count", count, least=1)
        less = [unlike] if isinstance(unlike, str) else list(unlike)
        named = [to] if isinstance(to, str) else to
        if not isinstance(named, Sequence) or not all(isinstance(each, str) for each in named):
            # Not words: then it must be a vector, which is normalised like theirs.
            return self._nearest(_unit(self._checked(named)) - self._sum(less), count, leave_out=less)
        if not named and not less:
            raise InputError("to must be at least one word, or a vector; got none.")
        return self._nearest(self._sum(named) - self._sum(less), count, leave_out=[*named, *less])

    def analogy(self, one: str, other: str, third: str, count: int = 10) -> list[tuple[str, float]]:
        """What is to `third` as `other` is to `one`: the nearest to y - x + z, of vectors of length 1.

        The three words are left out.

        Source: Mikolov, Yih and Zweig 2013, "Linguistic regularities in continuous space word
        representations", NAACL, section 5.
        """
        return self.nearest([other, third], count, unlike=one)

    def odd_one_out(self, words: Sequence[str]) -> str:
        """The word whose vector has the smallest cosine to the mean of all of theirs, each of length 1.

        Raises:
            InputError: fewer than three words, or one without a vector.

        Example:
            >>> from regard.words import WordVectors
            >>> made = WordVectors(words=["lake", "pond", "loan"], vectors=[[4, 1], [5, 1], [1, 5]])
            >>> made.odd_one_out(["pond", "loan", "lake"])
            'loan'
        """
        if isinstance(words, str) or len(words) < 3:
            raise InputError(f"words must be three words at least; got {words!r}.")
        mean = self._sum(words)
        return min(words, key=lambda word: float(_unit(self[word]) @ mean))

    def save(self, path: str | Path) -> None:
        """Write a file, in the format that its name asks for.

        .safetensors holds everything. The others are word2vec's, and hold words alone, without n-grams: .bin
        is the binary format, every other name gets the text format: a line with the number of words and the
        size, then a line for each word with its numbers, between blanks. After .gz (.bin.gz) it is packed.
        Every float32 comes back as it was.

        Raises:
            InputError: a word that is empty or holds a blank, CR or LF, which word2vec's formats cannot have.
            OutputError: it cannot be written.
        """
        write_file(path_of("path", path), self.words, self.vectors, self.parts)

    @classmethod
    def open(cls, path: str | Path, *, limit: int | None = None) -> Self:
        """Read a file of word vectors.

        That is one that `save` has written; word2vec's text format or its binary one, as gensim writes both;
        GloVe's, which has no first line; fastText's .bin, with its n-grams, which takes some 50 microseconds
        a word; or one of these packed by gzip. What it is is told by what it holds. Of a word that comes
        again the first is kept: a warning says how often, and so does `repeated`.

        Args:
            path: the file; or the folder of a run that trained them, or of its model.
            limit: read no more words than so many, the first.

        Raises:
            CheckpointError: it cannot be read, or is not what its beginning says.

        Example:
            >>> import numpy as np
            >>> from pathlib import Path
            >>> from regard.words import WordVectors
            >>> import tempfile
            >>> file = Path(tempfile.mkdtemp(), "vectors.txt")
            >>> WordVectors(words=["a", "b"], vectors=np.eye(2)).save(file)
            >>> file.read_text()
            '2 2\\na 1 0\\nb 0 1\\n'
            >>> WordVectors.open(file)["b"].tolist()
            [0.0, 1.0]
        """
        if limit is not None:
            whole("limit", limit, least=1)
        file = path_of("path", path)
        within = (file.joinpath(*each, "vectors.safetensors") for each in ((), ("model",)))
        try:
            vectors = cls(**read_file(next(filter(Path.is_file, within), file), limit)._asdict())
        except InputError as error:
            raise CheckpointError(f"{path}: {error}") from error
        if vectors.repeated:
            repeats = f"{vectors.repeated:,} {'word' if vectors.repeated == 1 else 'words'} came again"
            warnings.warn(f"{path}: {repeats}; the first of each is kept.", stacklevel=2)
        return vectors

    @cached_property
    def _units(self) -> Floats:
        # In float64 the square of every float32 is a number above 0.
        # (words,): float64 holds the square of every float32.
        squares = np.einsum("ij,ij->i", self.vectors, self.vectors, dtype=np.float64)
        lengths = np.sqrt(np.where(squares > 0, squares, 1))[:, None]
        return np.divide(self.vectors, lengths, out=np.empty_like(self.vectors), casting="same_kind")

    def _sum(self, words: Sequence[str]) -> npt.NDArray[np.float64]:
        """That of vectors of length 1."""
        return sum((_unit(self[word]) for word in words), np.zeros(self.vectors.shape[1]))

    def _checked(self, to: object) -> npt.NDArray[np.float64]:
        try:
            vector = np.asarray(to, np.float64)
        except (TypeError, ValueError):
            vector = np.empty(0)
        if vector.shape != self.vectors.shape[1:] or not np.isfinite(vector).all():
            wanted = f"a word, several words, or a vector of {self.vectors.shape[1]} finite numbers"
            raise InputError(f"to must be {wanted}; got {to!r:.60}.")
        return vector

    def _nearest(
        self, vector: npt.NDArray[np.float64], count: int, *, leave_out: Sequence[str]
    ) -> list[tuple[str, float]]:
        unit = _unit(vector)
        cosines = self._units @ unit.astype(np.float32)
        # The words that were named are nearest to themselves, and are left out.
        cosines[[self._rows[word] for word in leave_out if word in self._rows]] = -np.inf
        # float32 chooses, a little more than is wanted; float64 decides, as in `similarity`.
        # Partition finds the count-th largest without sorting; 1e-5 below it is more than float32
        # rounds.
        least = np.partition(cosines, -count)[-count] - 1e-5 if count < len(cosines) else -2
        rows = np.flatnonzero(cosines > least)
        exact = (_unit(self.vectors[rows]) * unit).sum(axis=1)  # not by BLAS: rows would not be independent
        best = np.argsort(-exact, kind="stable")[:count]
        # A stable sort: of equal cosines the more frequent word comes first.
        return [(self.words[rows[each]], float(exact[each])) for each in best]


def _unit(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    # By the largest number first: then squares are no infinity, and not all 0.
    # Two divisions: by the largest entry, then by the length of what that gives.
    for order in (np.inf, 2):
        length = np.linalg.norm(wide, order, axis=-1, keepdims=True)
        wide /= np.where(length > 0, length, 1)
    return wide
