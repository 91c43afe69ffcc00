"""What the page is given is the trace's own, and what it could not draw exactly is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.core import Causal
from regard.core.errors import InputError, OutputError
from regard.models import Loaded
from regard.tracing import Trace, page_record, trace_text


def test_holds_q_k_and_tokens(trace: Trace) -> None:
    record = page_record(trace)
    assert (record.text, record.pair, record.model) == ("the fishing bank by the river", None, "tiny")
    assert record.q.shape == record.k.shape == (2, 3, 9, 5)
    for layer, inputs in enumerate(each.inputs for each in trace.attention()):
        assert np.array_equal(record.q[layer], inputs.q[0].numpy())
        assert np.array_equal(record.k[layer], inputs.k[0].numpy())
    assert record.scale == pytest.approx(5**-0.5)
    assert [token.text for token in record.tokens] == trace.tokens
    assert [token.special for token in record.tokens] == [True] + [False] * 7 + [True]
    assert [token.word for token in record.tokens] == [None, 0, 1, 1, 2, 3, 4, 5, None]


def test_holds_both_texts(loaded: Loaded) -> None:
    record = page_record(trace_text(loaded, "the bank", "the river"))
    assert (record.text, record.pair) == ("the bank", "the river")
    assert [token.sequence for token in record.tokens] == [None, 0, 0, None, 1, 1, None]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mask": Causal()}, "it has a mask"),
        ({"bias": torch.zeros(1, 1, 1, 1)}, "it has a bias"),
        ({"softcap": 7.0}, "it has a soft cap"),
        ({"scale": 0.3}, "it has a scale or sizes of its own"),
        ({"mask": Causal(), "softcap": 7.0}, "it has a mask and a soft cap"),
    ],
)
def test_refuses_what_the_page_would_draw_wrong(
    trace: Trace, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    first, second = trace.attention()
    second = replace(second, inputs=replace(second.inputs, **fields))
    changed = replace(trace, encoder=replace(trace.source, attention=(first, second)))
    for look in (page_record, Trace.page, lambda each: each.write_page(tmp_path / "page.html")):
        with pytest.raises(InputError, match=f"cannot draw layer 1 exactly: {message}"):
            look(changed)
    assert list(tmp_path.iterdir()) == []


def test_writes_the_page_that_it_renders(trace: Trace, tmp_path: Path) -> None:
    page = trace.write_page(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html == trace.page().html
    with pytest.raises(OutputError, match="No such file or directory"):
        trace.write_page(tmp_path / "missing" / "page.html")
