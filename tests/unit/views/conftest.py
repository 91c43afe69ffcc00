"""Records made of random numbers, each axis with a prime size of its own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.views import AttentionRecord, PageToken, encoder_record

LAYERS, HEADS, TOKENS, HEAD_DIM = 2, 3, 7, 5

MakeRecord = Callable[..., AttentionRecord]


@pytest.fixture
def make_record() -> MakeRecord:
    """A function that makes a valid record and takes any field to replace."""

    def make(seed: int = 0, **fields: Any) -> AttentionRecord:
        rng = np.random.default_rng(seed)
        shape = (LAYERS, HEADS, TOKENS, HEAD_DIM)
        usual: dict[str, Any] = {
            "text": "one text",
            "pair": None,
            "model": "random",
            "tokens": tuple(PageToken(text=f"t{i}", sequence=0, word=i) for i in range(TOKENS)),
            "q": rng.standard_normal(shape, dtype=np.float32),
            "k": rng.standard_normal(shape, dtype=np.float32),
            "scale": HEAD_DIM**-0.5,
        }
        return encoder_record(**(usual | fields))

    return make
