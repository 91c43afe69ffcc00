"""The parameters of word2vec and FastText, two tables, and the steps that change them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from regard.checkpoints import SafetensorsFile, write_tensors
from regard.core.extras import missing
from regard.training._settings import WordSettings
from regard.training.words._corpus import Corpus, Numbers, Places, WordExamples
from regard.words import Parts, WordVectors

_FILE = "checkpoint.safetensors"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """The parameters.

    Args:
        read: rows of the words, then of the buckets of n-grams; float32 (rows, width), zeros beyond the size.
        predicted: rows of the words.
        pieces: of word w, the rows [first[w], first[w + 1]) of the second array: its own, and its n-grams'.
        buckets: of n-grams that words of the texts have, rising; none of word2vec.
    """

    read: Floats
    predicted: Floats
    pieces: tuple[Places, Numbers]
    buckets: Places

    def save(self, folder: Path, step: int) -> None:
        """Write them as the checkpoint of a step, in place of the one before."""
        tensors = {"read": torch.from_numpy(self.read), "predicted": torch.from_numpy(self.predicted)}
        write_tensors(tensors, folder / _FILE, metadata={"step": str(step)})

    def load(self, folder: Path) -> int:
        """Take up the checkpoint of a folder, if there is one."""
        step = last_step(folder)
        if step:
            file = SafetensorsFile(folder / _FILE)
            self.read[:] = file.read("read").numpy()
            self.predicted[:] = file.read("predicted").numpy()
        return step

    def vectors(self, corpus: Corpus, settings: WordSettings) -> WordVectors:
        """The learned vectors: of each word the mean of its pieces."""
        first, pieces = self.pieces
        rows = np.ascontiguousarray(self.read[:, : settings.size])
        if not len(self.buckets):
            return WordVectors(words=corpus.words, vectors=rows)
        parts = Parts(ngrams=settings.ngrams, buckets=self.buckets, vectors=rows[len(corpus.words) :].copy())
        means = (np.add.reduceat(rows[pieces], first[:-1]) / np.diff(first)[:, None]).astype(np.float32)
        return WordVectors(words=corpus.words, vectors=means, parts=parts)


def last_step(folder: Path) -> int:
    """The step of the checkpoint in a folder; 0 where there is none."""
    path = folder / _FILE
    return int(SafetensorsFile(path).metadata()["step"]) if path.exists() else 0


def new_tables(corpus: Corpus, settings: WordSettings, width: int) -> Tables:
    """Tables before the first step: `read` is uniform within 1 / (2 size) of 0, `predicted` is 0.

    For FastText it is within 1 / size, as in its authors' program.
    """
    count, is_parted = len(corpus.words), settings.objective == "fasttext"
    found = [settings.ngrams.buckets_of(word) for word in corpus.words] if is_parted else []
    flat = np.array([each for buckets in found for each in buckets], np.int64)
    buckets, places = np.unique(flat, return_inverse=True)
    lengths = np.array([len(each) for each in found] if is_parted else np.zeros(count), np.int64)
    first = np.concatenate([[0], np.cumsum(lengths + 1)])
    pieces = np.empty(first[-1], np.int32)
    is_own = np.zeros(len(pieces), bool)
    is_own[first[:-1]] = True
    pieces[is_own], pieces[~is_own] = np.arange(count), count + places
    # Of n-grams only those that occur have rows: a table of all two million buckets would be mostly empty.
    read = np.zeros((count + len(buckets), width), np.float32)
    reach = (1.0 if is_parted else 0.5) / settings.size
    read[:, : settings.size] = np.random.default_rng(settings.seed).uniform(
        -reach, reach, (len(read), settings.size)
    )
    predicted = np.zeros((count, width), np.float32)
    return Tables(read=read, predicted=predicted, pieces=(first, pieces), buckets=buckets)


class Learner:
    """Takes steps with the compiled kernel of `regard.kernels`."""

    def __init__(self, settings: WordSettings) -> None:
        try:
            from regard.kernels import NegativeSampling
        except ImportError as error:
            raise missing(f"{settings.objective} needs", error, "llvmlite") from error
        whole = settings.objective == "fasttext"
        self._kernel: Any = NegativeSampling(settings.size, settings.negatives, is_whole=whole)
        self.width: int = self._kernel.width

    def step(self, tables: Tables, examples: WordExamples, rate: float) -> float:
        """Change the tables; returns the mean loss of the examples."""
        both, words = (tables.read, tables.predicted), (examples.first, examples.words)
        total: float = self._kernel(both, tables.pieces, words, examples.targets, rate)
        return total / max(1, len(examples.targets))
