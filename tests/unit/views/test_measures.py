"""Measures as a page carries them: what is read of the blocks, what it costs, and what is refused."""

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import (
    AttentionRecord,
    MeasureRecord,
    PageToken,
    check_measures,
    matrix_bytes,
    render_page,
    weight_rows,
)
from tolerances import PAGE
from unit.views.conftest import encoder_record

LAYERS, HEADS, TOKENS, DIM = 2, 3, 7, 5


def _record(*measures: MeasureRecord, **left_out: str) -> AttentionRecord:
    q, k = np.random.default_rng(3).standard_normal((2, LAYERS, HEADS, TOKENS, DIM), dtype=np.float32)
    tokens = tuple(PageToken(text=f"w{i}", sequence=0) for i in range(TOKENS))
    made = encoder_record(text="w", model="m", tokens=tokens, q=q, k=k, scale=DIM**-0.5)
    return replace(made, measures={"encoder": measures}, left_out=left_out)


def _matrices(heads: int, size: float = 1.0) -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    return tuple(size * rng.standard_normal((heads, TOKENS, TOKENS), dtype=np.float32) for _ in range(LAYERS))


def _norms(size: float) -> tuple[Any, ...]:
    rng = np.random.default_rng(7)
    return tuple(size * rng.random((HEADS, TOKENS), dtype=np.float32) for _ in range(LAYERS))


def _block(html: str, name: str) -> str:
    found = re.search(f'id="regard-{name}">([^<]*)<', html)
    assert found, name
    return found[1]


def _facts(html: str) -> Any:
    return json.loads(_block(html, "facts"))


def _read(html: str, known: dict[str, Any], shape: tuple[int, ...]) -> Any:
    raw = base64.b64decode(_block(html, known["values"]))
    if known["steps"] is None:
        return np.frombuffer(raw, "<f4").reshape(shape)
    steps = np.frombuffer(base64.b64decode(_block(html, known["steps"])), "<f4")
    return np.frombuffer(raw, "<i2").reshape(shape) * steps.reshape(*shape[:-1], 1)


@pytest.mark.parametrize(("name", "heads"), [("gradient", HEADS), ("rollout", 1), ("value_zeroing", 1)])
def test_matrices_are_read_back(name: Any, heads: int) -> None:
    for size in (1.0, 1e-6, 1e4):  # large ones are kept as they are
        given = _matrices(heads, size)
        html = render_page(_record(MeasureRecord(name=name, layers=given, of="of x"))).html
        (measure,) = _facts(html)["kinds"]["encoder"]["measures"]
        assert (measure["name"], measure["by"], measure["of"]) == (
            name,
            "head" if heads > 1 else "layer",
            "of x",
        )
        for array, known in zip(given, measure["layers"], strict=True):
            read = _read(html, known, array.shape)
            apart = np.abs(read - array).max()
            assert apart <= min(PAGE, measure["difference"], 2e-5 * size * 10)
            np.testing.assert_allclose(known["most"], np.abs(array).max(axis=(1, 2)), rtol=1e-5)
            assert (known["steps"] is None) == (size == 1e4)


def test_norms_come_with_what_they_do_to_the_weights() -> None:
    given = _norms(3.0)
    record = _record(MeasureRecord(name="norm", layers=given))
    page = render_page(record)
    (measure,) = _facts(page.html)["kinds"]["encoder"]["measures"]
    assert page.left_out == {}
    assert 0 < measure["difference"] <= PAGE
    for layer, norms, known in zip(record.layers["encoder"], given, measure["layers"], strict=True):
        raw = np.frombuffer(base64.b64decode(_block(page.html, known["values"])), "<i2")
        steps = np.frombuffer(base64.b64decode(_block(page.html, known["steps"])), "<f4")
        read = raw.reshape(HEADS, TOKENS) * steps.reshape(HEADS, 1)
        np.testing.assert_allclose(read, norms, rtol=0, atol=3.0 / 32767)
        for head in range(HEADS):
            rows = weight_rows(layer, head, np.arange(TOKENS)) * norms[head]
            assert known["most"][head] == pytest.approx(rows.max(), abs=PAGE)


def test_norms_that_the_page_could_not_show_are_left_out() -> None:
    page = render_page(_record(MeasureRecord(name="norm", layers=_norms(1e4)), rollout="too long"))
    assert list(page.left_out) == ["rollout", "norm"]
    facts = _facts(page.html)
    assert facts["kinds"]["encoder"]["measures"] == []
    assert {each["name"]: each["reason"] for each in facts["leftOut"]} == page.left_out
    assert "would differ by" in page.left_out["norm"]


def test_arrays_without_a_model_say_nothing_of_measures() -> None:
    plain = replace(_record(), measures={})
    assert _facts(render_page(plain).html)["leftOut"] is None


def test_the_forecast_is_what_they_take() -> None:
    given = _matrices(HEADS)
    before = len(render_page(_record()).html)
    after = len(render_page(_record(MeasureRecord(name="gradient", layers=given))).html)
    forecast = matrix_bytes(LAYERS * HEADS, TOKENS, TOKENS)
    assert 0 < after - before - forecast < 1500  # names and facts


def test_asking() -> None:
    assert check_measures(["gradient", "norm", "norm"]) == ["norm", "gradient"]
    with pytest.raises(InputError, match="must be a list"):
        check_measures("norm")
