"""Works that need no model: vectors that follow from the texts alone, fast."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
        self.threads = self.settled.pop("threads", 1)
        self.sample: Any = {"vector": np.zeros((1, WIDTH), np.float32)}
        self.characters = characters
        self.slow = slow

    def embed(self, texts: Sequence[str]) -> Piece:
        time.sleep(self.slow)
        good = [place for place, text in enumerate(texts) if "refuse" not in text]
        vectors = np.array([vector(texts[place]) for place in good], np.float32).reshape(-1, WIDTH)
        vectors[:, 0] = vector(texts[0])[0]
        return Piece(
            rows=np.array(good, np.int64),
            columns={"vector": vectors},
            rejected={n: "no token is left" for n, text in enumerate(texts) if "refuse" in text},
            counts={"tokens": sum(map(len, texts))},
        )


class Worded(Hashed):
    """One vector a word."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.sample = {"text": ["a"], **self.sample}

    def embed(self, texts: Sequence[str]) -> Piece:
        words = [(place, word) for place, text in enumerate(texts) for word in text.split()]
        rows = np.array([place for place, _ in words], np.int64)
        vectors = np.array([vector(word) for _, word in words], np.float32)
        return Piece(rows=rows, columns={"text": [word for _, word in words], "vector": vectors})
