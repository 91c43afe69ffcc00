"""Training of static embeddings, from texts to a file of vectors."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from regard.checkpoints import SafetensorsFile, write_tensors
from regard.core.arguments import one_of, path_of
from regard.core.errors import InputError, TrainingError
from regard.core.extras import missing
from regard.core.files import locked
from regard.training._folder import DATA, MODEL, in_words, lock_settings, make_folder
from regard.training._journal import Journal
from regard.training._ranks import Ranks
from regard.training._result import Result, word_card_of
from regard.training._settings import WORD_OBJECTIVES, WordSettings, check_word_limits
from regard.training.words._corpus import Corpus, Draws, Numbers, Places, WordExamples
from regard.words import Parts, WordVectors, check_words

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
        step = words_step(folder)
        if step:
            file = SafetensorsFile(folder / _FILE)
            self.read[:] = file.read("read").numpy()
            self.predicted[:] = file.read("predicted").numpy()
        return step

    def vectors(self, corpus: Corpus, settings: WordSettings) -> WordVectors:
        """The learned vectors: of each word the mean of its pieces."""
        # Which rows of `read` a word is made of.
        first, pieces = self.pieces
        rows = np.ascontiguousarray(self.read[:, : settings.size])
        if not len(self.buckets):
            return WordVectors(words=corpus.words, vectors=rows)
        parts = Parts(ngrams=settings.ngrams, buckets=self.buckets, vectors=rows[len(corpus.words) :].copy())
        # FastText: the word's own row and those of its n-grams.
        means = (np.add.reduceat(rows[pieces], first[:-1]) / np.diff(first)[:, None]).astype(np.float32)
        return WordVectors(words=corpus.words, vectors=means, parts=parts)


def words_step(folder: str | Path) -> int:
    """The step from which a run in a folder goes on; 0 where it begins."""
    path = Path(folder) / _FILE
    return int(SafetensorsFile(path).metadata()["step"]) if path.exists() else 0


def _new_tables(corpus: Corpus, settings: WordSettings, width: int) -> Tables:
    """Tables before the first step: `read` is uniform within 1 / (2 size) of 0, `predicted` is 0.

    For FastText it is within 1 / size, as in its authors' program.
    """
    count, is_parted = len(corpus.words), settings.objective == "fasttext"
    word_buckets = [settings.ngrams.buckets_of(word) for word in corpus.words] if is_parted else []
    # Buckets of all words, one after the other; each gets one row.
    flat = np.array([each for buckets in word_buckets for each in buckets], np.int64)
    buckets, places = np.unique(flat, return_inverse=True)
    # Own row and n-grams of each word, in one list with starts.
    lengths = np.array([len(each) for each in word_buckets] if is_parted else np.zeros(count), np.int64)
    first = np.concatenate([[0], np.cumsum(lengths + 1)])
    pieces = np.empty(first[-1], np.int32)
    is_own = np.zeros(len(pieces), bool)
    is_own[first[:-1]] = True
    # Rows of words first, then those of buckets.
    pieces[is_own], pieces[~is_own] = np.arange(count), count + places
    # Only n-grams that occur have rows: a table of all two million buckets would be mostly empty.
    read = np.zeros((count + len(buckets), width), np.float32)
    # fastText draws from a range twice as wide.
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
        # Passed on to the kernel: FastText changes every piece of a word.
        whole = settings.objective == "fasttext"
        self._kernel: Any = NegativeSampling(settings.size, settings.negatives, is_whole=whole)
        self.width: int = self._kernel.width

    def step(self, tables: Tables, examples: WordExamples, rate: float) -> float:
        """Change the tables; returns the mean loss of the examples."""
        both, words = (tables.read, tables.predicted), (examples.first, examples.words)
        total: float = self._kernel(both, tables.pieces, words, examples.targets, rate)
        return total / max(1, len(examples.targets))


def train_words(
    settings: WordSettings,
    folder: str | Path,
    *,
    on_report: Callable[[Mapping[str, Any]], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Result:
    """Train static embeddings, or go on where the run in that folder stopped.

    For each word c of a text and each word o of its window, one step of gradient descent on

        -log sigmoid(v_c . u_o) - sum over K words w drawn at random of log sigmoid(-v_c . u_w)

    With "cbow" the mean of the v of a window stands for v_c, and the word in its middle for o. With FastText
    v_c is the mean of the vectors of the word and of its n-grams, and each of these gets the whole gradient
    of v_c, as in the authors' program, not its share. What is kept in the end is v.

    Steps are taken one after the other, and all that is random is a function of the seed and the place in the
    run: so the same command gives the same vectors, bit for bit on the same machine, also when it was
    stopped. Meanwhile a second thread draws what the next step needs.

    Args:
        settings: what is trained, on what, and how.
        folder: of the run: a new one, or one in which a run with these settings stopped.
        on_report: gets the report of each step.
        on_message: gets what is being done, in words.

    Returns:
        Where the vectors are: `vectors.txt` in word2vec's text format, and `vectors.safetensors`.

    Raises:
        InputError: settings that cannot be, or data that cannot be used.
        MissingExtraError: llvmlite is not installed.
        TrainingError: the loss or a vector is no finite number any more, or memory ran out.
        OutputError: a file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> from regard.words import WordVectors
        >>> from regard.training import read_word_settings, train_words
        >>> place = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (place / "text.txt").write_text("the cat sat on the mat\\n" * 50)
        >>> settings = read_word_settings("word2vec", data={"train": [str(place / "text.txt")]}, size=7)
        >>> result = train_words(settings, place / "run")
        >>> WordVectors.open(result.model / "vectors.txt")
        WordVectors(5 words of 7)

    Source: Mikolov et al. 2013, arXiv 1310.4546, equation 4, and arXiv 1301.3781, section 3; n-grams:
    Bojanowski et al. 2017, arXiv 1607.04606, section 3.2.
    """
    folder = path_of("folder", folder)
    _check(settings)
    learner = Learner(settings)
    make_folder(folder)
    with (
        in_words("Begin in another folder with a lower size or a higher min_count."),
        locked(folder, ".lock"),
    ):
        # 0 where there is no checkpoint.
        step = words_step(folder)
        lock_settings(folder, settings, on_message, step=step, free=lambda _: ("save_every",), made=(DATA,))
        return _train(settings, folder, learner, on_report, on_message)


def _train(
    settings: WordSettings,
    folder: Path,
    learner: Learner,
    on_report: Callable[[Mapping[str, Any]], None],
    on_message: Callable[[str], None],
) -> Result:
    (folder / DATA).mkdir(exist_ok=True)
    corpus = Corpus.in_folder(folder / DATA, settings.data, settings.min_count, on_message)
    check_words(corpus.words)
    draws = Draws(corpus=corpus, settings=settings)
    tables = _new_tables(corpus, settings, learner.width)
    steps, done = draws.steps * settings.epochs, tables.load(folder)
    is_word2vec = settings.objective == "word2vec"
    is_mean = is_word2vec and settings.architecture == "cbow"
    # The defaults of each kind, where no rate is given.
    rate = settings.rate or (0.2 if is_mean else 0.025 if is_word2vec else 0.05)
    on_message(
        f"{settings.architecture}: {len(corpus.words):,} words, vectors of {settings.size} numbers"
        + (f" and {len(tables.buckets):,} buckets of n-grams" if len(tables.buckets) else "")
        + f"; {len(corpus.ids):,} words to learn from, {settings.epochs} epoch"
        + f"{'s' if settings.epochs > 1 else ''}, {steps:,} step{'s' if steps > 1 else ''}"
    )
    if done:
        on_message(f"going on from step {done:,} of {steps:,}")
    with Journal(folder, step=done, on_report=on_report, ranks=Ranks(), say=on_message) as journal:
        began = time.perf_counter()
        for step, examples in enumerate(_ahead(draws, done, steps), done + 1):
            # Linearly to the floor.
            now = settings.floor + (rate - settings.floor) * (1 - (step - 1) / steps)
            loss = learner.step(tables, examples, now)
            # Before a checkpoint of it is written.
            if not math.isfinite(loss):
                raise _diverged(f"the loss is {loss} at step {step}")
            report = {"step": step, "steps": steps, "loss": loss, "lr": now, "step_tokens": examples.read}
            journal.write(report | {"seconds": time.perf_counter() - began})
            began = time.perf_counter()
            if step % settings.save_every == 0 or step == steps:
                tables.save(folder, step)
    return _finish(settings, folder, tables, corpus, steps)


def _ahead(draws: Draws, done: int, steps: int) -> Iterator[WordExamples]:
    """The examples of each step that is left, drawn while the step before is taken."""
    with ThreadPoolExecutor(1) as thread:
        # A generator: only one step is drawn ahead.
        begun = (thread.submit(draws.examples, *divmod(step, draws.steps)) for step in range(done, steps))
        coming = next(begun, None)
        while coming is not None:
            now, coming = coming, next(begun, None)
            yield now.result()


def _finish(settings: WordSettings, folder: Path, tables: Tables, corpus: Corpus, steps: int) -> Result:
    if not np.isfinite(tables.read).all():
        raise _diverged("the vectors are not finite numbers after the last step")
    model, vectors = folder / MODEL, tables.vectors(corpus, settings)
    model.mkdir(exist_ok=True)
    # The exact file first: it is whole, should the disk be full before the text is.
    vectors.save(model / "vectors.safetensors")
    vectors.save(model / "vectors.txt")
    card = word_card_of(settings, folder, words=len(corpus.words), read=len(corpus.ids))
    (model / "README.md").write_text(card, encoding="utf-8")
    return Result(folder=folder, model=model, step=steps)


def _diverged(what: str) -> TrainingError:
    return TrainingError(f"{what}; begin in another folder with a lower rate.")


def _check(settings: WordSettings) -> None:
    one_of("objective", settings.objective, WORD_OBJECTIVES)
    check_word_limits(settings)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(f"{settings.objective} trains in one process; start it without torchrun.")
