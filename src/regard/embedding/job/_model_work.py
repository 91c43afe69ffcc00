"""The work of a job: a model's sentence vectors, or those of its words or tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.core.heap import give_back
from regard.core.marks import mark
from regard.embedding._embedder import Embedder, Sentences
from regard.embedding._embeddings import Embeddings, Report
from regard.embedding._request import Request
from regard.embedding._settings import read_sentence_settings
from regard.embedding.job._work import Piece
from regard.models import Loaded

# What vectors may take of memory before they are written, about: of words four bytes of text give one.
_VECTORS = 1 << 27
# Sentence vectors take less: of most texts, the tokens' are gone before the next are computed.
_SENTENCES = 3 * _VECTORS


class ModelWork:
    """A `Work` of a model.

    Args:
        loaded: the model.
        request: which vectors.
        earlier: what was settled when the job was begun, which is obeyed where `request` leaves it open.

    Raises:
        InputError: what the model cannot do, or layers that are named twice.
    """

    def __init__(self, loaded: Loaded, request: Request, earlier: Mapping[str, Any] | None = None) -> None:
        self._embedder = Embedder(loaded, request)
        self._of_sentences = request.level == "sentence"
        settled = self._embedder.settled
        layers = settled["layers"]
        self._suffixes = [""] if request.is_single else [f"_{layer}" for layer in layers]
        width = loaded.network.config.d_model * len(self._suffixes) * np.dtype(np.float32).itemsize
        room = 4 * (_SENTENCES if self._of_sentences else _VECTORS) // width
        self.characters = int((earlier or {}).get("bytes_at_a_time", max(room, 1 << 14)))
        self.settled = {
            "model": loaded.mark(),
            "tokenizer": loaded.require_tokenizer().mark(),
            "after_pooling": _steps(loaded) if self._of_sentences else None,
            **settled,
            "bytes_at_a_time": self.characters,
            "versions": {"torch": torch.__version__, "tokenizers": tokenizers.__version__},
        }
        loss = self._embedder.computed.loss
        self.about: dict[str, Any] = {
            "model": loaded.source.name,
            "processor": torch.backends.cpu.get_cpu_capability(),
            # Not among what is settled: another processor measures the loss anew, in its own last digits.
            "computed": str(self._embedder.computed),
            "loss": None if loss is None else loss._asdict(),
        }
        self.fields = self._fields()

    def embed(self, texts: Sequence[str]) -> Piece:
        """The vectors of some texts, which are Unicode and not blank; see `Work`."""
        # What the texts before these took lies free in small pieces, more with every call.
        give_back()
        good, rejected = list(range(len(texts))), {}
        try:
            found = self._compute(texts)
        except InputError:
            rejected = self._refused(texts)
            if not rejected:
                raise
            good = [place for place in good if place not in rejected]
            found = self._compute([texts[place] for place in good])
        rows = np.arange(len(good)) if isinstance(found, Sentences) else found.rows
        for place in np.setdiff1d(np.arange(len(good)), rows):
            rejected[good[place]] = "no word of the text has a vector"
        return Piece(
            rows=np.array(good, np.int64)[rows],
            columns=self._columns(found),
            rejected=rejected,
            counts=_counts(found.report),
        )

    def _compute(self, texts: Sequence[str]) -> Sentences | Embeddings:
        return self._embedder.sentences(texts) if self._of_sentences else self._embedder.spans(texts)

    def _refused(self, texts: Sequence[str]) -> dict[int, str]:
        found = {}
        for place, text in enumerate(texts):
            try:
                self._embedder.check(text)
            except InputError as error:
                found[place] = str(error).removeprefix("texts[0] ")
        return found

    def _fields(self) -> list[Any]:
        """Of one word's vectors, since that has all columns."""
        pa, _ = pyarrow()
        columns = self._columns(self._compute(["a"]))
        return [pa.field(name, column.type) for name, column in zip(self._names(), columns, strict=True)]

    def _names(self) -> list[str]:
        names = ["tokens", "windows", "cut"] if self._of_sentences else ["index", "text", "start", "end"]
        for suffix in self._suffixes:
            names.append(f"vector{suffix}")
            if self._embedder.settled["storage"] == "int8":
                names.append(f"scale{suffix}")
        return names

    def _columns(self, found: Sentences | Embeddings) -> list[Any]:
        """In the order of `_names`."""
        pa, _ = pyarrow()
        if isinstance(found, Sentences):
            report = found.report
            columns = [pa.array(each, pa.int32()) for each in (report.tokens, report.windows, report.cut)]
        else:
            columns = [
                pa.array(_index(found.rows), pa.int32()),
                pa.array(found.texts, pa.string()),
                pa.array(found.spans[:, 0], pa.int32()),
                pa.array(found.spans[:, 1], pa.int32()),
            ]
        for place in range(len(self._suffixes)):
            vectors = found.vectors if found.vectors.ndim == 2 else found.vectors[:, place]
            flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]))
            if found.scales is not None:
                scales = found.scales if found.scales.ndim == 1 else found.scales[:, place]
                columns.append(pa.array(np.ascontiguousarray(scales)))
        return columns


def _index(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row of the result its number among those of its text."""
    places = np.arange(len(rows))
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    return places - np.repeat(begins, np.diff(begins, append=len(rows)))


def _counts(report: Report) -> dict[str, int]:
    return {
        "tokens": int(report.tokens.sum()),
        "windowed": int((report.windows > 1).sum()),
        "cut": int((report.cut > 0).sum()),
        "cut_tokens": int(report.cut.sum()),
        "without_vector": int(report.without_vector.sum()),
    }


def _steps(loaded: Loaded) -> str | None:
    """A mark of what the checkpoint does to a pooled vector; None where that is nothing."""
    settings = read_sentence_settings(loaded.source.folder)
    if not settings.steps:
        return None
    about, tensors = [], []
    for place, step in enumerate(settings.steps):
        for name, value in vars(step).items():
            if isinstance(value, torch.Tensor):
                tensors.append((f"{place}.{name}", value))
            else:
                about.append((place, name, value))
    return mark(repr([*map(type, settings.steps), about]), tensors)
