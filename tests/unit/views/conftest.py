"""Records made of random numbers, each axis with a prime size of its own; and what is read out of a page."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.views import AttentionRecord, LayerRecord, Page, PageToken, Side, _assets, render_page

LAYERS, HEADS, TOKENS, HEAD_DIM = 2, 3, 7, 5

MakeRecord = Callable[..., AttentionRecord]


def encoder_record(
    *,
    text: str,
    pair: str | None = None,
    model: str,
    tokens: tuple[PageToken, ...],
    q: Any,
    k: Any,
    scale: float,
) -> AttentionRecord:
    """The record of a plain encoder, of q and k (layers, heads, tokens, head_dim)."""
    layers = tuple(
        LayerRecord(layer=layer, q=of_q, k=of_k, scale=scale)
        for layer, (of_q, of_k) in enumerate(zip(q, k, strict=True))
    )
    side = Side(text=text, pair=pair, tokens=tokens)
    return AttentionRecord(model=model, encoder=side, layers={"encoder": layers})


def write_page(record: AttentionRecord, path: str | Path, **options: Any) -> Page:
    """Renders a record into a file."""
    page = render_page(record, **options)
    page.write(path)
    return page


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


def facts_of(page: Page | str, prefix: str = "") -> Any:
    """The facts of a page, or of its HTML; of a further run, whose blocks begin with a prefix."""
    html = page if isinstance(page, str) else page.html
    found = re.search(f'id="regard-{prefix}facts">(.*?)</script>', html)
    assert found is not None
    return json.loads(_assets.unpacked(found[1]))


def steps_of(page: Page, name: str) -> Any:
    """The value of an integer step, for each array of integers that has one: see `regard.views._quantize`."""
    return (block_of(page, name, "<u2").astype(np.uint32) << 16).view(np.float32)


def block_of(page: Page, name: str, dtype: str) -> Any:
    """The numbers in one of a page's blocks."""
    found = re.search(f'id="regard-{name}">(.*?)</script>', page.html)
    assert found is not None
    return np.frombuffer(base64.b64decode(found[1]), dtype)
