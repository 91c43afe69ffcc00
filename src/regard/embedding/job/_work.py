"""What a job asks of the model, a few columns for a few texts, and how a model answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray

from regard import foreign
from regard.core.errors import InputError
from regard.core.memory import trim_malloc
from regard.core.tensors import fingerprint
from regard.embedding._embedder import Embedder, Sentences
from regard.embedding._embeddings import Embeddings, Report, by_layer
from regard.embedding._passages import Truncate, Window, Windows
from regard.embedding._request import Mix, Request
from regard.embedding._settings import SentenceSettings
from regard.embedding._steps import NotFiniteError
from regard.models import Loaded
from regard.text import Words

Column = NDArray[Any] | Sequence[str]
"""Values for n rows: numbers (n,), vectors (n, width), or n strings."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """What was computed of some texts.

    Args:
        rows: (n,), for each row of the result which of the texts it is of; ascending.
        columns: for each column of the work's sample, by name and in the same order, n values.
        rejected: by place, why a text has no row.
        counts: whole numbers that the manifest adds up, such as tokens.
    """

    rows: NDArray[np.int64]
    columns: Mapping[str, Column]
    rejected: Mapping[int, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


class Work(Protocol):
    """From texts to columns. The same texts give the same bytes, whatever was computed before."""

    @property
    def settled(self) -> Mapping[str, Any]:
        """All that the bytes depend on, as JSON. The manifest keeps it; a job goes on with the same."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """What else the manifest is to say, as JSON, such as the model's name; it may change."""
        ...

    @property
    def sample(self) -> Mapping[str, Column]:
        """The result's columns, by name: as of a `Piece`, of any text."""
        ...

    @property
    def threads(self) -> int:
        """How many cores it takes. The bytes do not depend on it."""
        ...

    @property
    def characters(self) -> int:
        """How many bytes of text are embedded at a time, about: the memory that is taken follows from it."""
        ...

    def embed(self, texts: Sequence[str]) -> Piece:
        """The columns of some texts, which are Unicode and not blank."""
        ...


# What vectors may take of memory before they are written, about: of words four bytes of text give one.
_VECTORS = 1 << 27
# Sentence vectors take less: of most texts, the tokens' are gone before the next are computed.
_SENTENCES = 3 * _VECTORS
_NOT_FINITE = "a vector of the text has numbers that are not finite: the model's layers overflow"


class ModelWork:
    """A `Work` of a model.

    Args:
        loaded: the model.
        request: which vectors.
        earlier: what was settled when the job was begun, of which the size of blocks is obeyed.

    Raises:
        InputError: what the model cannot do, or layers that are named twice.
    """

    def __init__(self, loaded: Loaded, request: Request, earlier: Mapping[str, Any] | None = None) -> None:
        self._embedder = Embedder(loaded, request)
        # The other level is tokens.
        self._of_sentences, self._of_words = request.level == "sentence", request.level == "word"
        settled = dict(self._embedder.settled)
        # Not what bytes depend on: a job may go on with more cores, or fewer.
        self.threads = int(settled.pop("threads"))
        # Numbers of a vector: width times layers.
        layers = 1 if request.is_single else len(settled["layers"])
        width = loaded.network.config.d_model * layers * np.dtype(np.float32).itemsize
        # Bytes of text whose vectors fill the memory set aside.
        room = 4 * (_SENTENCES if self._of_sentences else _VECTORS) // width
        self.characters = int((earlier or {}).get("bytes_at_a_time", max(room, 1 << 14)))
        # The manifest keeps it: other values would give other bytes.
        self.settled = {
            "model": loaded.mark(),
            "tokenizer": loaded.require_tokenizer().mark(),
            "after_pooling": _steps(self._embedder.sentence) if self._of_sentences else None,
            **settled,
            "bytes_at_a_time": self.characters,
            "versions": {"torch": torch.__version__, "tokenizers": tokenizers.__version__},
        }
        loss = self._embedder.computed.loss
        self.about: dict[str, Any] = {
            "model": loaded.source.name,
            "processor": torch.backends.cpu.get_cpu_capability(),
            "threads": self.threads,
            # Not among what is settled: another processor measures the loss anew, in its own last digits.
            "computed": str(self._embedder.computed),
            "loss": None if loss is None else loss._asdict(),
            "notes": list(loaded.notes),
        }
        # One word is enough: it has all columns.
        self.sample = self._columns(self._compute(["a"]), ["a"])

    def embed(self, texts: Sequence[str]) -> Piece:
        """The vectors of some texts, which are Unicode and not blank; see `Work`."""
        # What the texts before these took lies free in small pieces, more with every call.
        trim_malloc()
        good, rejected = list(range(len(texts))), dict[int, str]()
        infinite = 0
        # Until all that is left can be embedded.
        while True:
            try:
                computed = self._compute([texts[place] for place in good])
                break
            except NotFiniteError as error:
                # Texts whose vectors are no numbers.
                rejected |= dict.fromkeys([good[place] for place in error.places], _NOT_FINITE)
                infinite += len(error.places)
            except InputError:
                # Which texts it was is looked for one by one.
                if not (refused := self._refused([texts[place] for place in good])):
                    raise
                rejected |= {good[place]: why for place, why in refused.items()}
            good = [place for place in good if place not in rejected]
        rows = np.arange(len(good)) if isinstance(computed, Sentences) else computed.rows
        # Good texts without any row in the result.
        for place in np.setdiff1d(np.arange(len(good)), rows):
            rejected[good[place]] = "no word of the text has a vector"
        return Piece(
            rows=np.array(good, np.int64)[rows],
            columns=self._columns(computed, [texts[place] for place in good]),
            rejected=rejected,
            counts={**_counts(computed.report), "infinite": infinite},
        )

    def _compute(self, texts: Sequence[str]) -> Sentences | Embeddings:
        return self._embedder.sentences(texts) if self._of_sentences else self._embedder.spans(texts)

    def _refused(self, texts: Sequence[str]) -> dict[int, str]:
        reasons = {}
        for place, text in enumerate(texts):
            try:
                self._embedder.read([text])
            except InputError as error:
                reasons[place] = str(error).removeprefix("texts[0] ")
        return reasons

    def _columns(self, found: Sentences | Embeddings, texts: Sequence[str]) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        if isinstance(found, Sentences):
            for name in ("tokens", "windows", "cut", "unknown"):
                columns[name] = getattr(found.report, name).astype(np.int32)
        else:
            columns["index"] = index = _index(found.rows).astype(np.int32)
            for row, text in enumerate(texts) if self._of_words else ():
                if isinstance(text, Words):  # of which some may have no vector
                    here = slice(*np.searchsorted(found.rows, [row, row + 1]))
                    index[here] = np.searchsorted([start for start, _ in text.spans], found.spans[here, 0])
            columns["text"] = found.texts
            columns["start"], columns["end"] = found.spans.astype(np.int32).T
            columns["unknown"] = found.unknown
        return columns | dict(by_layer(found.vectors, found.scales, found.layers))


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
        "unknown": int(report.unknown.sum()),
        "zero": int(report.zero.sum()),
    }


def _steps(settings: SentenceSettings) -> str | None:
    """A mark of what the checkpoint does to a pooled vector; None where that is nothing."""
    if not settings.steps:
        return None
    about, tensors = [], []
    for place, step in enumerate(settings.steps):
        for name, value in vars(step).items():
            if isinstance(value, torch.Tensor):
                tensors.append((f"{place}.{name}", value))
            else:
                about.append((place, name, value))
    return fingerprint(repr([*map(type, settings.steps), about]), tensors)


def open_model(name: str, wanted: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> ModelWork:
    """Loads a model for a job.

    Args:
        name: as in `regard.load`.
        wanted: by name, what is not left open by None: the fields of `Request`, but `layer` and `mix` lists
            of numbers, `window` and `overlap` numbers and `truncate` a bool; and `device`, as `regard.load`
            takes it. Other names are passed over.
        earlier: what was settled when the job was begun. Its packs and its device hold where no others are
            wanted, and it says what "fast" was.

    Raises:
        InputError: values that do not fit, or that the model cannot do.
        CheckpointError: as `regard.load`.
    """
    earlier = earlier or {}
    settings = {each: earlier[each] for each in ("batch_tokens", "threads", "device") if each in earlier}
    settings |= {each: value for each, value in wanted.items() if value is not None}
    if settings.get("precision") == "fast":
        settings["precision"] = earlier.get("precision", "fast")
    settings["layer"] = _layer(settings)
    settings["window"] = _window(settings)
    request = Request(**{each.name: settings[each.name] for each in fields(Request) if each.name in settings})
    return ModelWork(foreign.load(name, device=settings.get("device")), request, earlier)


def _layer(given: Mapping[str, Any]) -> int | list[int] | Mix:
    if "mix" in given:
        return Mix(given["mix"])
    layers: list[int] = given.get("layer", [-1])
    return layers[0] if len(layers) == 1 else layers


def _window(given: Mapping[str, Any]) -> Window:
    size = given.get("window")
    return Truncate(size) if given.get("truncate") else Windows(size, given.get("overlap"))
