"""Texts as numbers of words, the most frequent word first, and the examples of each step."""

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from regard.checkpoints import SafetensorsFile, write_tensors
from regard.core.errors import InputError
from regard.data import Rows
from regard.text import split_words
from regard.training._settings import WordDataSettings, WordSettings

LONGEST = 10_000
"""Words of a text at most; the rest of a longer one is another text."""

STEP = 1 << 14
"""Words of a step, about: it ends with a text."""

# Mikolov et al. 2013, section 2.2: counts to the power 3/4 for the words drawn as negatives.
_POWER = 0.75
_FILE = "corpus.safetensors"

Numbers = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


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
    def in_folder(
        cls, folder: Path, settings: WordDataSettings, min_count: int, say: Callable[[str], None]
    ) -> "Corpus":
        """The corpus in a folder; made from the texts where there is none."""
        # Read once; a run that goes on has the same numbers.
        if not (folder / _FILE).exists():
            say("reading the texts")
            read_corpus(settings, min_count).save(folder)
        file = SafetensorsFile(folder / _FILE)
        arrays = {name: file.read(name).numpy() for name in ("counts", "ids", "starts")}
        return cls(words=json.loads(file.metadata()["words"]), **arrays)


def read_corpus(settings: WordDataSettings, min_count: int) -> Corpus:
    """The words of the texts, read once."""
    numbers: dict[str, int] = {}
    ids, ends = array("i"), array("q")  # a list would take nine times the memory
    unit, csv, encoding = settings.unit, settings.csv, settings.encoding
    for row in Rows(settings.train, (settings.text,), unit=unit, csv=csv, encoding=encoding):
        text = row.text(settings.text)
        for word in _words(text.lower() if settings.lowercase else text, settings.words):
            # By first appearance; the order by frequency comes after.
            ids.append(numbers.setdefault(word, len(numbers)))
        ends.append(len(ids))
    numbered = np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32)
    counts = np.bincount(numbered, minlength=len(numbers))
    # The most frequent first; of equals the one that came first.
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    if len(order) < 2:
        raise InputError(
            f"data.train must hold at least two words that occur {min_count} times (min_count); of "
            f"{len(numbers):,} words {len(order)} does."
        )
    # The new number of each word; -1 of one that is too rare.
    place = np.full(len(numbers), -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    placed = place[numbered]
    is_kept = placed >= 0
    # How many words are kept before each place: texts begin there now.
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


class WordExamples(NamedTuple):
    """The examples of a step.

    Args:
        first, words: of example i, the words [first[i], first[i + 1]) of `words` are read.
        targets: (examples, 1 + negatives): the word to predict, then words drawn at random.
        read: words of the texts, before any are dropped.
    """

    first: Places
    words: Numbers
    targets: Numbers
    read: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Everything that is random in a run: a function of the seed, the epoch and the step in it.

        kept: with probability (sqrt(f / t) + 1) t / f, f the share of the word of all words
        window: from 1 to `window`, each as likely, on both sides, of the words that are kept
        others: word w with probability count_w^(3/4) / sum over v of count_v^(3/4)

    Args:
        corpus: the words.
        settings: of the run.

    Source: Mikolov et al. 2013, arXiv 1310.4546, sections 2.2 and 2.3; the window: arXiv 1301.3781, section
    3.2. What is kept is as in the authors' program; the paper has sqrt(t / f).
    """

    corpus: Corpus
    settings: WordSettings

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return len(self._edges) - 1

    def examples(self, epoch: int, step: int) -> WordExamples:
        """The examples of one step of an epoch; both begin with 0."""
        # A generator a step: so a run goes on from any step without what was drawn before.
        draw = np.random.default_rng([self.settings.seed, epoch, step])
        # The texts of this step.
        low, high = self._edges[step : step + 2]
        starts = self.corpus.starts[low : high + 1]
        ids = self.corpus.ids[starts[0] : starts[-1]]
        text = np.repeat(np.arange(high - low), np.diff(starts))
        # Frequent words are left out at random, before windows are made.
        stays = draw.random(len(ids)) < self.kept[ids]
        first, words, predicted = self._windows(ids[stays], text[stays], draw)
        # (examples, negatives)
        others = self.others(draw, (len(predicted), self.settings.negatives))
        targets = np.concatenate([predicted[:, None], others], axis=1)
        return WordExamples(first, words, targets, len(ids))

    def _windows(
        self, ids: Numbers, text: Places, draw: np.random.Generator
    ) -> tuple[Places, Numbers, Numbers]:
        """The words to read of each example, and the word to predict."""
        window = self.settings.window
        # A width for each word, from 1 to the window: near words count more often.
        width = draw.integers(1, window, len(ids), endpoint=True)
        apart = np.concatenate([np.arange(-window, 0), np.arange(1, window + 1)])
        # (words, 2 window)
        places = np.arange(len(ids))[:, None] + apart
        inside = places.clip(0, len(ids) - 1)  # so that there is a word to look at; it does not count
        # Within the width, within the step, and of the same text.
        is_near = (np.abs(apart) <= width[:, None]) & (places == inside) & (text[inside] == text[:, None])
        around = ids[inside[is_near]]
        counts = is_near.sum(axis=1)
        # All near words are read together, to predict the word in the middle.
        if self.settings.architecture == "cbow":
            some = counts > 0
            return np.concatenate([[0], np.cumsum(counts[some])]), around, ids[some]
        # Skip-gram: each word is read once for every near word that it predicts.
        return np.arange(len(around) + 1), np.repeat(ids, counts), around

    def others(self, draw: np.random.Generator, shape: tuple[int, int]) -> Numbers:
        """Words drawn by their counts to the power 3/4: a number says which of V bins, and which part of it.

        Source: Walker 1977, "An efficient method for generating discrete random variables with general
        distributions", ACM TOMS 3(3).
        """
        share, other = self._bins
        # One random number: the whole part is the bin, the rest decides within it.
        place = draw.random(shape) * len(share)
        chosen = place.astype(np.int32)
        place -= chosen
        return np.where(place < share[chosen], chosen, other[chosen])

    @cached_property
    def kept(self) -> Reals:
        """For each word the probability that it stays."""
        # sqrt(t / f) + t / f, as in the code of word2vec.
        rare = self.settings.subsample / (self.corpus.counts / self.corpus.counts.sum())
        return np.sqrt(rare) + rare if self.settings.subsample else np.ones(len(self.corpus.counts))

    @cached_property
    def _edges(self) -> Places:
        """At which texts steps begin, and where the last one ends."""
        starts = self.corpus.starts
        # The first text at or after each multiple of STEP.
        begins = np.searchsorted(starts[:-1], np.arange(0, starts[-1], STEP))
        return np.concatenate([np.unique(begins), [len(starts) - 1]])

    @cached_property
    def _bins(self) -> tuple[Reals, Numbers]:
        """For each of V equal bins, the share that its own word has, and the word that has the rest."""
        # Walker's alias method: each bin holds two words at most.
        weights = self.corpus.counts**_POWER
        share = weights / weights.sum() * len(weights)
        other = np.arange(len(share), dtype=np.int32)
        low = np.flatnonzero(share < 1).tolist()
        high = np.flatnonzero(share >= 1).tolist()
        while low and high:
            less, more = low.pop(), high[-1]
            # A word with less than its bin is filled up by one with more.
            other[less] = more
            share[more] -= 1 - share[less]
            if share[more] < 1:
                low.append(high.pop())
        share[low + high] = 1.0  # what is left of rounding
        return share, other
