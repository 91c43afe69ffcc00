"""Vectors of words: what is near, and what is to one word as others are to each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from regard.core.arguments import whole
from regard.core.errors import CheckpointError, InputError
from regard.static._files import read_file, write_file
from regard.static._ngrams import Parts

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WordVectors:
    """A vector for each word, as word2vec and FastText learn them.

    Args:
        words: each once; the most frequent first.
        vectors: float32 (words, size).
        parts: of FastText, the vectors of n-grams: then other words have vectors too.

    Raises:
        InputError: not as many words as vectors, a word twice, or numbers that are not finite.

    Example:
        >>> made = WordVectors(words=["river", "bank", "loan"], vectors=np.eye(3, dtype=np.float32) + 1)
        >>> made["bank"].tolist(), "boat" in made
        ([1.0, 2.0, 1.0], False)
        >>> made.nearest("bank", 1)
        [('river', 0.833...)]
    """

    words: Sequence[str]
    vectors: Floats
    parts: Parts | None = None
    _rows: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            raise InputError(
                f"vectors must be one row for each of {len(self.words):,} words; got {self.vectors.shape}."
            )
        rows = {word: row for row, word in enumerate(self.words)}
        if len(rows) < len(self.words):
            twice = next(word for row, word in enumerate(self.words) if rows[word] != row)
            raise InputError(f"words must be different; {twice!r} is there twice.")
        if not np.isfinite(self.vectors).all():
            raise InputError("vectors must be finite numbers.")
        object.__setattr__(self, "_rows", rows)

    def __repr__(self) -> str:
        more = "" if self.parts is None else f", {len(self.parts.buckets):,} buckets of n-grams"
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
        made = None if self.parts is None else self.parts.of(word)
        if made is None:
            near = get_close_matches(word, self.words, n=3)
            hint = f"; near ones are {', '.join(map(repr, near))}" if near else ""
            raise InputError(f"word must be one of the {len(self):,} with a vector; got {word!r}{hint}.")
        return made

    def similarity(self, one: str, other: str) -> float:
        """The cosine of two words' vectors, x.y / (|x| |y|), in float64; 0 where one is zero."""
        return float(_unit(self[one]) @ _unit(self[other]))

    def nearest(self, to: "str | npt.ArrayLike", count: int = 10) -> list[tuple[str, float]]:
        """The words whose vectors have the largest cosines to that of a word, or to a vector.

        Args:
            to: a word, which is itself left out; or a vector.
            count: how many.

        Raises:
            InputError: a word without a vector, or a vector of another size.
        """
        if isinstance(to, str):
            return self._nearest(self[to], count, leave_out=[to])
        return self._nearest(np.asarray(to), count, leave_out=[])

    def analogy(self, one: str, other: str, third: str, count: int = 10) -> list[tuple[str, float]]:
        """What is to `third` as `other` is to `one`: the nearest to y - x + z, of vectors of length 1.

        The three words are left out.

        Example:
            >>> rows = [[1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 1, 1], [1, 0, 0]]
            >>> words = ["man", "king", "woman", "queen", "apple"]
            >>> made = WordVectors(words=words, vectors=np.array(rows, dtype=np.float32))
            >>> made.analogy("man", "king", "woman", 1)[0][0]
            'queen'

        Source: Mikolov, Yih and Zweig 2013, "Linguistic regularities in continuous space word
        representations", NAACL, section 5.
        """
        x, y, z = (_unit(self[word]) for word in (one, other, third))
        return self._nearest(y - x + z, count, leave_out=[one, other, third])

    def save(self, path: str | Path) -> None:
        """Write a file: .safetensors with everything, or else word2vec's text format, which has words only.

        In the text format the first line has the number of words and the size, then a line for each word has
        it and its numbers, between blanks; every float32 comes back as it was.

        Raises:
            InputError: a word that is empty or holds white space, which the text format cannot have.
            OutputError: it cannot be written.
        """
        write_file(Path(path), self.words, self.vectors, self.parts)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Read a file that `save` has written, or another in word2vec's text format, such as gensim's.

        Raises:
            CheckpointError: it cannot be read, or is not what its beginning says.

        Example:
            >>> import tempfile
            >>> file = Path(tempfile.mkdtemp(), "vectors.txt")
            >>> WordVectors(words=["a", "b"], vectors=np.eye(2, dtype=np.float32)).save(file)
            >>> file.read_text()
            '2 2\\na 1 0\\nb 0 1\\n'
            >>> WordVectors.open(file)["b"].tolist()
            [0.0, 1.0]
        """
        words, vectors, parts = read_file(Path(path))
        try:
            return cls(words=words, vectors=vectors, parts=parts)
        except InputError as error:
            raise CheckpointError(f"{path}: {error}") from error

    @cached_property
    def _units(self) -> Floats:
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return (self.vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def _nearest(
        self, vector: npt.NDArray[Any], count: int, *, leave_out: Sequence[str]
    ) -> list[tuple[str, float]]:
        whole("count", count, least=1)
        if vector.shape != self.vectors.shape[1:]:
            raise InputError(
                f"to must be a word, or a vector of {self.vectors.shape[1]}; got shape {vector.shape}."
            )
        cosines = self._units @ _unit(vector).astype(np.float32)
        for word in leave_out:
            if word in self._rows:
                cosines[self._rows[word]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:count]
        return [(self.words[row], float(cosines[row])) for row in best if np.isfinite(cosines[row])]


def _unit(vector: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    wide = vector.astype(np.float64)
    length = float(np.linalg.norm(wide))
    made: npt.NDArray[np.float64] = wide / length if length else wide
    return made
