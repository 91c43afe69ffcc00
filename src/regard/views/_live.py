"""What makes a page live: the model itself with its tokenizer, a server that runs it, a notebook's kernel.

The weights of a model are matrices in the blocks of GGUF files and vectors in float32, with checksums. Of a
matrix that does not come in such blocks, every 32 numbers of a row are rounded to 8 bits with a scale of
their own: the largest of them is 127 (Q8_0). Rows are filled up with zeros to a multiple of 32 numbers, and
there are rows of zeros up to a multiple of 4: then the loops of static/live/kernel.js need no rests.
"""

import base64
import zlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views import _assets
from regard.views._blocks import as_json, block, plain
from regard.views._budget import largest_norms
from regard.views._layer_record import LayerRecord
from regard.views._records import AttentionRecord, HeadStatistics, MeasureName, MeasureRecord, RecordKind

GROUP = 32
"""Numbers of a block. With one scale a row, the default model's file is 2 MB smaller, and the largest
difference of an attention weight over seven sentences 0.048 in the place of 0.030."""

STORED = ("Q8_0", "Q4_1")
"""The types of blocks that static/live/kernel.js reads: those are packed as they are in a file."""

_LARGEST = 127
_ROWS = 4

Floats = npt.NDArray[np.float32]


@dataclass(kw_only=True, slots=True)
class LiveWeights:
    """Packed tensors, in blocks.

    Attributes:
        blocks: The bytes of each, by name.
        tensors: Where each tensor is, for JSON: {block, at, rows, columns, type}; a vector has 0 rows.
    """

    blocks: dict[str, bytearray] = field(default_factory=dict)
    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, block: str, name: str, values: npt.ArrayLike) -> Floats:
        """Packs a vector or a matrix.

        Returns:
            The numbers that a reader of the packed ones computes with, to the bit.

        Example:
            >>> LiveWeights().add("layer-0", "w", [[127.0, 0.6, -3.4]]).tolist()
            [[127.0, 1.0, -3.0]]
        """
        array = np.asarray(values, dtype=np.float32)
        if array.ndim == 1:
            self._put(block, name, _filled(array, _ROWS).astype("<f4"), (0, len(array)), "F32")
            return array
        # Filled up to whole blocks of GROUP numbers.
        rows, columns = array.shape
        integers, scales = _rounded(_filled(array, _ROWS, GROUP))
        packed = np.empty(scales.shape, [("scale", "<f2"), ("integers", "i1", GROUP)])
        packed["scale"], packed["integers"] = scales, integers
        self._put(block, name, packed, (rows, columns), "Q8_0")
        read = integers.astype(np.float32) * scales.astype(np.float32)[..., None]
        return np.ascontiguousarray(read.reshape(len(packed), -1)[:rows, :columns])

    def add_stored(
        self, block: str, name: str, stored: npt.NDArray[np.uint8], shape: tuple[int, int], kind: str
    ) -> None:
        """Packs a matrix of that shape as it is stored: its rows' bytes, in blocks of a type of `STORED`."""
        self._put(block, name, _filled(stored, _ROWS, 1), shape, kind)

    def _put(self, block: str, name: str, array: npt.NDArray[Any], shape: tuple[int, int], kind: str) -> None:
        data = self.blocks.setdefault(block, bytearray())
        rows, columns = shape
        # Where it begins in its block, for the page's JavaScript.
        self.tensors[name] = {"block": block, "at": len(data), "rows": rows, "columns": columns, "type": kind}
        data += array.tobytes()

    def sums(self) -> dict[str, dict[str, int]]:
        """What a reader checks of each block before it is used."""
        return {name: {"bytes": len(data), "crc": zlib.crc32(data)} for name, data in self.blocks.items()}


def _filled(array: npt.NDArray[Any], *multiples: int) -> npt.NDArray[Any]:
    return np.pad(array, [(0, -size % to) for size, to in zip(array.shape, multiples, strict=True)])


def _rounded(array: Floats) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """Integers, (rows, blocks, GROUP), and their scales, (rows, blocks)."""
    rows, columns = array.shape
    grouped = array.reshape(rows, columns // GROUP, GROUP)
    # The largest number of a block becomes 127.
    scales = (np.abs(grouped).max(axis=2) / np.float32(_LARGEST)).astype(np.float16)
    divisors = np.where(scales > 0, scales, np.float16(1)).astype(np.float32)[..., None]
    integers = np.clip(np.rint(grouped / divisors), -_LARGEST, _LARGEST).astype(np.int8)
    return integers, scales


NO_REQUEST = "It makes no network request."
"""What a page that asks nobody says of itself."""

LivePooling = Literal["mean", "cls", "last"]
"""How a page can make one vector of a text's."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LiveRecord:
    """A model that runs in the page.

    Attributes:
        description: Its sizes and where its tensors are: see static/live/model.js.
        weights: Its packed tensors.
        tokenizer: What gives the tokens of a text: see static/live/tokenizer.js.
        stored: The types of blocks, where all matrices are those of the model's file.
        texts: Texts over which it was compared with Python.
        weight: The largest difference of an attention weight in them.
        embedding: The smallest cosine of a contextual embedding in them.
        pooling: How one vector of a text is made; None where regard does not know it.
        sentences: Of some words, in which they mean something else; under "*" one for any other.
        beside: The file beside the page that holds the weights; None for the page itself.
        against: Another text, with which the page opens; None for that of a ready sentence.
        chat: What stands around questions and answers of a chat; None for no chat.
    """

    description: dict[str, Any]
    weights: LiveWeights
    tokenizer: dict[str, Any]
    stored: Sequence[str]
    texts: int
    weight: float
    embedding: float
    pooling: LivePooling | None = None
    sentences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    beside: str | None = None
    against: str | None = None
    chat: Mapping[str, str] | None = None

    @property
    def asks(self) -> str:
        """Whom it asks, in words."""
        if self.beside:
            return "It asks its server for the weights beside it, and makes no other network request."
        return NO_REQUEST

    @property
    def policy(self) -> str:
        """It compiles the module that it has put together, and starts its own worker."""
        return " 'wasm-unsafe-eval'; worker-src blob:" + ("; connect-src 'self'" if self.beside else "")

    def binary(self) -> bytes:
        """The blocks, one after the other."""
        return b"".join(self.weights.blocks.values())

    def script(self) -> str:
        """The page's JavaScript."""
        return _assets.script(live=True)

    def facts(self) -> dict[str, Any]:
        """What the page's facts say of the model, but for its weights."""
        beside = None
        if self.beside is not None:
            binary = self.binary()
            beside = {"name": self.beside, "bytes": len(binary), "crc": zlib.crc32(binary)}
        return {
            "description": self.description | {"pooling": self.pooling},
            "beside": beside,
            "against": self.against,
            "stored": self.stored,
            "texts": self.texts,
            "weight": self.weight,
            "embedding": self.embedding,
            "head": self.description["head"],
            "chat": self.chat,
            "pooling": self.pooling,
            "sentences": self.sentences,
        }

    def html(self) -> str:
        """What follows the page's script, which can so run before all of it is there: worker and model."""
        parts = [
            block("live-worker", "text/plain", _assets.worker()),
            block("live-tokenizer", "application/json", as_json(self.tokenizer)),
            *(
                block(f"live-{name}", "text/plain", base64.b64encode(data).decode("ascii"))
                for name, data in self.weights.blocks.items()
                if self.beside is None
            ),
            block("live-end", "text/plain", "end"),
        ]
        return "\n" + "\n".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRecord:
    """A model that a server runs for the page.

    Attributes:
        model: Its name, by which the page asks for it.
        models: The names of all models that can be chosen.
        head: What its head says: the "next" token, the "masked" ones, or None.
        pooling: How one vector of a text is made; None where regard does not know it.
        chat: What stands around questions and answers, where they are written: see static/live/writer.js.
        usages: Whether there is a concordance too.
        sentences: As in `LiveRecord`.
    """

    model: str
    models: tuple[str, ...] = ()
    head: Literal["next", "masked"] | None = None
    pooling: LivePooling | None = None
    chat: Mapping[str, str] | None = None
    usages: bool = False
    sentences: Mapping[str, Sequence[str]] = field(default_factory=dict)

    policy: ClassVar[str] = "; connect-src 'self'"
    asks: ClassVar[str] = "It asks the server that it came from, and no other."

    def script(self) -> str:
        """The page's JavaScript."""
        return _assets.served()

    def facts(self) -> dict[str, Any]:
        """What the page's facts say of the model and its server: see static/live/served.js."""
        served = {"model": self.model, "models": list(self.models), "usages": self.usages}
        told = {"served": served, "head": self.head, "pooling": self.pooling, "chat": self.chat}
        return told | {"sentences": self.sentences}

    def html(self) -> str:
        """Nothing follows the page's script."""
        return ""


Statistics = Callable[[RecordKind], HeadStatistics]
"""The statistics of a kind, on demand."""

Check = Callable[[RecordKind, Mapping[str, int]], Mapping[str, Any]]
"""What becomes of the run without a head (`layer`, `head`), or where no other word looks at that of the token
`unseen`; with `pairs`, what wrote the keys of a head: as plain values.
"""

Work = Generator[float, None, MeasureRecord]
"""One layer of a measure in pieces of a part of a second: yields how much is done, from 0 to 1."""

_SLICE = 0.25
"""Seconds of a measure that are worked out for one question: then others get their answer."""

_MOST_KEPT = 1 << 30
"""Bytes of measures that are kept; beyond them the oldest layer is dropped, and computed again on demand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveMeasures:
    """Measures that are computed layer by layer, on demand.

    Attributes:
        names: What there is of each kind of attention.
        left_out: What there is not, each with the reason.
        work: Works out a measure of (kind, name, layer).
    """

    names: Mapping[RecordKind, Sequence[MeasureName]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    work: Callable[[RecordKind, MeasureName, int], Work]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRun:
    """A run, and who is asked for more of it.

    Attributes:
        record: The run.
        statistics: Its statistics by kind; by default the record's own, or what is counted from its weights.
        check: What becomes of it without a head; None where no model stands behind it.
        measures: What can be drawn in the place of the weights; by default what the record has.
        again: The run of another text; None where no model stands behind it.
        writes: What a decoder says after a text, or after the word that it writes first; None for no decoder.
        chat: As in `LiveRecord`.
    """

    record: AttentionRecord
    statistics: Statistics | None = None
    check: Check | None = None
    measures: LiveMeasures | None = None
    again: Callable[[str], "LiveRun"] | None = None
    writes: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None = None
    chat: Mapping[str, str] | None = None

    def layer(self, kind: RecordKind, number: int) -> LayerRecord:
        """The layer of a number."""
        return next(each for each in self.record.layers[kind] if each.layer == number)

    def offered(self, kind: RecordKind) -> list[dict[str, Any]]:
        """The measures of a kind, as a widget knows them before they are worked out."""
        if self.measures is not None:
            return [{"name": name, "of": ""} for name in self.measures.names.get(kind, ())]
        return [{"name": each.name, "of": each.of} for each in self.record.measures.get(kind, ())]

    def left_out(self) -> list[dict[str, str]] | None:
        """What it does not have, each with the reason; None if unknown, as for given arrays."""
        found = self.record.left_out if self.measures is None else self.measures.left_out
        asked = self.measures is not None or bool(self.record.measures) or bool(found)
        return [{"name": name, "reason": reason} for name, reason in found.items()] if asked else None


class NotKept(InputError):
    """The numbers of a measure are not there: not yet, or no longer."""


_Name = tuple[RecordKind, MeasureName, int]


class Measured:
    """The measures of one run as far as they are worked out."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._working: dict[_Name, tuple[Work, list[float]]] = {}
        self._kept: OrderedDict[_Name, MeasureRecord] = OrderedDict()

    def go_on(self, kind: RecordKind, name: MeasureName, number: int) -> dict[str, Any]:
        """Work on one layer for a part of a second.

        `done` is the share that is worked out, and `seconds` what it took; with 1, `most` is what a full line
        of each head stands for, and `of` what a gradient is of. An InputError where it cannot be had.
        """
        asked = (kind, name, number)
        began, spent, done = perf_counter(), [0.0], 1.0
        # Not worked out yet: go on with it.
        if asked not in self._kept and self._run.measures is not None:
            if asked not in self._working:
                self._working[asked] = (self._run.measures.work(kind, name, number), [0.0])
            work, spent = self._working[asked]
            try:
                while True:
                    done = next(work)
                    # A slice of time, so that other questions are answered too.
                    if perf_counter() - began > _SLICE or done == 0:
                        break
            except StopIteration as end:
                done = 1.0
                del self._working[asked]
                self._keep(asked, end.value)
            except BaseException:
                del self._working[asked]
                raise
            else:
                # 1 means that the values are there.
                done = min(done, 0.999)
        spent[0] += perf_counter() - began
        if done < 1:
            return {"done": done, "seconds": spent[0]}
        record, layer = self._known(asked)
        of_layer = self._run.layer(kind, number)
        if name == "norm":
            # How strong the strongest line is, for the scale of the drawing.
            most = largest_norms(of_layer, range(of_layer.heads), layer)
        else:
            most = np.abs(layer).max(axis=(1, 2))
        return {
            "done": 1,
            "seconds": spent[0],
            "most": plain(most),
            "of": record.of,
        }

    def rows(
        self,
        asked: _Name,
        head: int,
        queries: npt.NDArray[np.int64],
        weights: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.floating[Any]]],
    ) -> npt.NDArray[np.floating[Any]]:
        """Rows of some queries of a head, (len(queries), keys); `weights` gives theirs. NotKept where they
        are not worked out.
        """
        _, layer = self._known(asked)
        rows: npt.NDArray[np.floating[Any]]
        if asked[1] == "norm":
            rows = weights(queries)[:, : layer.shape[1]] * layer[head]
        else:
            rows = layer[min(head, len(layer) - 1)][queries]  # one for all heads, or one each
        return rows

    def _known(self, asked: _Name) -> tuple[MeasureRecord, npt.NDArray[np.float32]]:
        kind, name, number = asked
        # A record that came with its measures.
        if self._run.measures is None:
            place = [each.layer for each in self._run.record.layers[kind]].index(number)
            for record in self._run.record.measures.get(kind, ()):
                if record.name == name:
                    return record, record.layers[place]
        if asked not in self._kept:
            raise NotKept(f"{name} of layer {number} is not worked out; ask for the measure first")
        self._kept.move_to_end(asked)
        return self._kept[asked], self._kept[asked].layers[0]

    def _keep(self, asked: _Name, record: MeasureRecord) -> None:
        self._kept[asked] = record
        sizes = [sum(layer.nbytes for layer in each.layers) for each in self._kept.values()]
        # The one that was used longest ago goes first.
        while len(sizes) > 1 and sum(sizes) > _MOST_KEPT:
            self._kept.popitem(last=False)
            del sizes[0]
