"""Measures as a page carries them: what is read of the blocks, what it costs, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import (
    AttentionRecord,
    MeasureRecord,
    Page,
    PageToken,
    check_measures,
    matrix_bytes,
    render_page,
    weight_rows,
)
from tolerances import PAGE
from unit.views.conftest import block_of, encoder_record, facts_of, steps_of

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


def _read(page: Page, known: dict[str, Any], shape: tuple[int, ...]) -> Any:
    if known["steps"] is None:
        return block_of(page, known["values"], "<f4").reshape(shape)
    steps = steps_of(page, known["steps"])
    return block_of(page, known["values"], "<i2").reshape(shape) * steps.reshape(*shape[:-1], 1)


@pytest.mark.parametrize(("name", "heads"), [("gradient", HEADS), ("rollout", 1), ("value_zeroing", 1)])
def test_matrices_are_read_back(name: Any, heads: int) -> None:
    for size in (1.0, 1e-6, 1e4):  # large ones are kept as they are
        given = _matrices(heads, size)
        page = render_page(_record(MeasureRecord(name=name, layers=given, of="of x")))
        (measure,) = facts_of(page)["kinds"]["encoder"]["measures"]
        assert (measure["name"], measure["by"], measure["of"]) == (
            name,
            "head" if heads > 1 else "layer",
            "of x",
        )
        for array, known in zip(given, measure["layers"], strict=True):
            read = _read(page, known, array.shape)
            apart = np.abs(read - array).max()
            assert apart <= min(PAGE, measure["difference"], 2e-5 * size * 10)
            np.testing.assert_allclose(known["most"], np.abs(array).max(axis=(1, 2)), rtol=1e-5)
            assert (known["steps"] is None) == (size == 1e4)


def test_norms_come_with_what_they_do_to_the_weights() -> None:
    given = _norms(3.0)
    record = _record(MeasureRecord(name="norm", layers=given))
    page = render_page(record)
    (measure,) = facts_of(page)["kinds"]["encoder"]["measures"]
    assert page.left_out == {}
    assert 0 < measure["difference"] <= PAGE
    for layer, norms, known in zip(record.layers["encoder"], given, measure["layers"], strict=True):
        raw = block_of(page, known["values"], "<i2")
        steps = steps_of(page, known["steps"])
        read = raw.reshape(HEADS, TOKENS) * steps.reshape(HEADS, 1)
        np.testing.assert_allclose(read, norms, rtol=0, atol=3.0 / 32767)
        for head in range(HEADS):
            rows = weight_rows(layer, head, np.arange(TOKENS)) * norms[head]
            assert known["most"][head] == pytest.approx(rows.max(), abs=PAGE)


def test_norms_that_the_page_could_not_show_are_left_out() -> None:
    page = render_page(_record(MeasureRecord(name="norm", layers=_norms(1e4)), rollout="too long"))
    assert list(page.left_out) == ["rollout", "norm"]
    facts = facts_of(page)
    assert facts["kinds"]["encoder"]["measures"] == []
    assert {each["name"]: each["reason"] for each in facts["leftOut"]} == page.left_out
    assert "would differ by" in page.left_out["norm"]


def test_arrays_without_a_model_say_nothing_of_measures() -> None:
    plain = replace(_record(), measures={})
    assert facts_of(render_page(plain))["leftOut"] is None


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
