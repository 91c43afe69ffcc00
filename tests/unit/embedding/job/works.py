"""Works that need no model: vectors that follow from the texts alone, fast."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from regard.embedding.job import Piece

WIDTH = 7


def vector(text: str) -> np.ndarray[Any, Any]:
    """Seven numbers that follow from a text."""
    data = hashlib.sha256(text.encode()).digest()[: 4 * WIDTH]
    return (np.frombuffer(data, np.uint32) / np.float64(2**32)).astype(np.float32)


class Hashed:
    """One vector a text; the first number is also of the block's first text, so that packing shows."""

    def __init__(self, settled: Mapping[str, Any] | None = None, *, characters: int = 500, slow: float = 0.0):
        self.settled = dict(settled or {"layer": -1, "engine": {"dtype": "float32"}})
        self.about = {"model": "hashed"}
        self.fields = [pa.field("vector", pa.list_(pa.float32(), WIDTH))]
        self.characters = characters
        self.slow = slow

    def embed(self, texts: Sequence[str]) -> Piece:
        time.sleep(self.slow)
        good = [place for place, text in enumerate(texts) if "refuse" not in text]
        vectors = np.array([vector(texts[place]) for place in good], np.float32).reshape(-1, WIDTH)
        vectors[:, 0] = vector(texts[0])[0]
        array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
        return Piece(
            rows=np.array(good, np.int64),
            columns=[array],
            rejected={n: "no token is left" for n, text in enumerate(texts) if "refuse" in text},
            counts={"tokens": sum(map(len, texts))},
        )


class Worded(Hashed):
    """One vector a word."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.fields = [pa.field("text", pa.string()), pa.field("vector", pa.list_(pa.float32(), WIDTH))]

    def embed(self, texts: Sequence[str]) -> Piece:
        words = [(place, word) for place, text in enumerate(texts) for word in text.split()]
        vectors = np.array([vector(word) for _, word in words], np.float32)
        array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
        rows = np.array([place for place, _ in words], np.int64)
        return Piece(rows=rows, columns=[pa.array([word for _, word in words]), array])
