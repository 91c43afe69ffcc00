"""Texts as numbers of words, the most frequent word first."""

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from regard.checkpoints import SafetensorsFile, write_tensors
from regard.core.errors import InputError
from regard.data import Rows
from regard.text import split_words
from regard.training._word_settings import WordDataSettings

LONGEST = 10_000
"""Words of a text that are learned from together; the rest of it is another."""

_FILE = "corpus.safetensors"

Numbers = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """The words of texts, without those that are too rare.

    Args:
        words: each once; the most frequent first, of equals the one that comes first.
        counts: how often each occurs.
        ids: one text after the other, as places in `words`.
        starts: where each text begins in `ids`, and at last where all end.
    """

    words: Sequence[str]
    counts: Places
    ids: Numbers
    starts: Places

    def save(self, folder: Path) -> None:
        """Write it, so that a run goes on with the same."""
        arrays = {"counts": self.counts, "ids": self.ids, "starts": self.starts}
        tensors = {name: torch.from_numpy(each) for name, each in arrays.items()}
        write_tensors(tensors, folder / _FILE, metadata={"words": json.dumps(list(self.words))})

    @classmethod
    def made(
        cls, folder: Path, settings: WordDataSettings, min_count: int, say: Callable[[str], None]
    ) -> "Corpus":
        """That of the folder; made from the texts if there is none.

        Raises:
            InputError: the texts cannot be used.
        """
        if not (folder / _FILE).exists():
            say("reading the texts")
            read_corpus(settings, min_count).save(folder)
        file = SafetensorsFile(folder / _FILE)
        arrays = {name: file.read(name).numpy() for name in ("counts", "ids", "starts")}
        return cls(words=json.loads(file.metadata()["words"]), **arrays)


def read_corpus(settings: WordDataSettings, min_count: int) -> Corpus:
    """The words of the texts, read once.

    Raises:
        InputError: a text cannot be read, or fewer than two words are frequent enough.
    """
    numbers: dict[str, int] = {}
    ids, ends = array("i"), array("q")
    unit, csv, encoding = settings.unit, settings.csv, settings.encoding
    for row in Rows(settings.train, (settings.text,), unit=unit, csv=csv, encoding=encoding):
        text = row.text(settings.text)
        for word in _words(text.lower() if settings.lowercase else text, settings.words):
            ids.append(numbers.setdefault(word, len(numbers)))
        ends.append(len(ids))
    found = np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32)
    counts = np.bincount(found, minlength=len(numbers))
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    if len(order) < 2:
        raise InputError(
            f"data.train must hold at least two words that occur {min_count} times (min_count); of "
            f"{len(numbers):,} words {len(order)} does."
        )
    place = np.full(len(numbers), -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    placed = place[found]
    is_kept = placed >= 0
    kept_before = np.concatenate([[0], np.cumsum(is_kept)])
    spelled = list(numbers)
    return Corpus(
        words=[spelled[each] for each in order.tolist()],
        counts=counts[order].astype(np.int64),
        ids=placed[is_kept],
        starts=_cut(kept_before[np.concatenate([[0], np.frombuffer(ends, np.int64)])]),
    )


def _words(text: str, how: str) -> Iterator[str]:
    if how == "blanks":
        yield from text.split()
    else:
        for start, end in split_words(text):
            yield text[start:end]


def _cut(starts: Places) -> Places:
    """Where texts begin, longer ones in several parts."""
    parts = [np.arange(start, end, LONGEST) for start, end in pairwise(starts)]
    return np.concatenate([*parts, starts[-1:]]).astype(np.int64)
