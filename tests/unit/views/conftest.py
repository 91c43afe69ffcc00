"""Records made of random numbers, each axis with a prime size of its own; and what is read out of a page."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.views import AttentionRecord, Page, PageToken, encoder_record

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


def facts_of(page: Page) -> Any:
    """A page's facts."""
    found = re.search(r'id="regard-facts">(.*?)</script>', page.html)
    assert found is not None
    return json.loads(found[1])


def block_of(page: Page, name: str, dtype: str) -> Any:
    """The numbers in one of a page's blocks."""
    found = re.search(f'id="regard-{name}">(.*?)</script>', page.html)
    assert found is not None
    return np.frombuffer(base64.b64decode(found[1]), dtype)
