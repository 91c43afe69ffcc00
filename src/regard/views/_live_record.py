"""What makes a page live: the model itself with its tokenizer, or a server that runs one.

The weights of a model are matrices in 8 bits and vectors in float32, with checksums. Of a matrix every 32
numbers of a row share a scale, a float32: the largest of them is 127. Rows are filled up with zeros to a
multiple of 32 numbers, and there are rows of zeros up to a multiple of 4: then the loops of
static/live/kernel.js need no rests. First the integers of all rows, then the scales of all rows.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from regard.views import _assets
from regard.views._blocks import as_json, block

GROUP = 32
"""Numbers that share a scale. With one scale a row, the default model's file is 3 MB smaller, and the largest
difference of an attention weight over seven sentences 0.048 in the place of 0.030."""

_LARGEST = 127
_ROWS = 4

Floats = npt.NDArray[np.float32]


@dataclass(kw_only=True, slots=True)
class LiveWeights:
    """Packed tensors, in blocks.

    Attributes:
        blocks: The bytes of each, by name.
        tensors: Where each tensor is, for JSON: {block, at, rows, columns}; a vector has 0 rows.
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
        data = self.blocks.setdefault(block, bytearray())
        rows, columns = array.shape if array.ndim == 2 else (0, len(array))
        self.tensors[name] = {"block": block, "at": len(data), "rows": rows, "columns": columns}
        if not rows:
            data += _filled(array, _ROWS).astype("<f4").tobytes()
            return array
        integers, scales = _rounded(_filled(array, _ROWS, GROUP))
        data += integers.tobytes() + scales.astype("<f4").tobytes()
        read = integers.astype(np.float32) * scales.repeat(GROUP, axis=1)
        return np.ascontiguousarray(read[:rows, :columns])

    def sums(self) -> dict[str, dict[str, int]]:
        """What a reader checks of each block before it is used."""
        return {name: {"bytes": len(data), "crc": zlib.crc32(data)} for name, data in self.blocks.items()}


def _filled(array: Floats, *multiples: int) -> Floats:
    return np.pad(array, [(0, -size % to) for size, to in zip(array.shape, multiples, strict=True)])


def _rounded(array: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    rows, columns = array.shape
    grouped = array.reshape(rows, columns // GROUP, GROUP)
    scales = (np.abs(grouped).max(axis=2) / np.float32(_LARGEST)).astype(np.float32)
    divisors = np.where(scales > 0, scales, np.float32(1))[..., None]
    integers = np.clip(np.rint(grouped / divisors), -_LARGEST, _LARGEST).astype(np.int8)
    return integers.reshape(rows, columns), scales


LivePooling = Literal["mean", "cls", "last"]
"""How a page can make one vector of a text's."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LiveRecord:
    """A model that runs in the page.

    Attributes:
        description: Its sizes and where its tensors are: see static/live/model.js.
        weights: Its packed tensors.
        tokenizer: What gives the tokens of a text: see static/live/tokenizer.js.
        texts: Texts over which it was compared with Python.
        weight: The largest difference of an attention weight in them.
        embedding: The smallest cosine of a contextual embedding in them.
        pooling: How one vector of a text is made; None where regard does not know it.
        sentences: Of some words, in which they mean something else; under "*" one for any other.
    """

    description: dict[str, Any]
    weights: LiveWeights
    tokenizer: dict[str, Any]
    texts: int
    weight: float
    embedding: float
    pooling: LivePooling | None = None
    sentences: Mapping[str, Sequence[str]] = field(default_factory=dict)

    # It compiles the module that it has put together, and starts its own worker.
    policy: ClassVar[str] = " 'wasm-unsafe-eval'; worker-src blob:"
    asks: ClassVar[str] = "It makes no network request."

    def script(self) -> str:
        """The page's JavaScript."""
        return _assets.script(live=True)

    def facts(self) -> dict[str, Any]:
        """What the page's facts say of the model, but for its weights."""
        return {
            "description": self.description | {"pooling": self.pooling},
            "texts": self.texts,
            "weight": self.weight,
            "embedding": self.embedding,
            "head": self.description["head"],
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
        usages: Whether there is a concordance too.
        sentences: As in `LiveRecord`.
    """

    model: str
    models: tuple[str, ...] = ()
    head: Literal["next", "masked"] | None = None
    pooling: LivePooling | None = None
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
        return {"served": served, "head": self.head, "pooling": self.pooling, "sentences": self.sentences}

    def html(self) -> str:
        """Nothing follows the page's script."""
        return ""
