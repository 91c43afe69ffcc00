"""16 bits keep the weights, the stated difference is the real one, and float32 steps in where they do not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.views import AttentionRecord, PageToken, render_page
from regard.views._quantize import TOLERANCE, dequantize, largest_difference, pack, quantize

MakeRecord = Callable[..., AttentionRecord]


def _weights(q: Any, k: Any, scale: float, dtype: Any) -> Any:
    """Softmax rows, written out apart from the code under test: one head at a time, by the definition."""
    out = np.empty((*q.shape[:3], k.shape[2]), dtype)
    group = q.shape[1] // k.shape[1]
    for layer, head, query in np.ndindex(q.shape[:3]):
        scores = dtype(scale) * (k[layer, head // group].astype(dtype) @ q[layer, head, query].astype(dtype))
        powers = np.exp(scores - scores.max())
        out[layer, head, query] = powers / powers.sum()
    return out


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_stated_difference_is_the_largest_one(make_record: MakeRecord, kv_heads: int) -> None:
    rng = np.random.default_rng(3)
    record = make_record(
        q=rng.standard_normal((2, 6, 7, 5), dtype=np.float32),
        k=4 * rng.standard_normal((2, kv_heads, 7, 5), dtype=np.float32),
    )
    packed = pack(record)
    assert packed.encoding == "int16"
    integers: Any = (packed.q, packed.k)
    q, k = dequantize(integers[0], packed.q_steps), dequantize(integers[1], packed.k_steps)
    page = _weights(q, k, record.scale, np.float64)
    python = _weights(record.q, record.k, record.scale, np.float32)
    real = float(np.abs(page - python).max())
    assert real > 0
    assert packed.largest_difference == pytest.approx(real, abs=3e-7)
    assert render_page(record).largest_difference >= real


def test_each_head_is_compared_with_its_own_keys(make_record: MakeRecord) -> None:
    rng = np.random.default_rng(13)
    record = make_record(
        q=rng.standard_normal((2, 6, 7, 5), dtype=np.float32),
        k=rng.standard_normal((2, 2, 7, 5), dtype=np.float32),
    )
    python = _weights(record.q, record.k, record.scale, np.float32)
    for layer, head in np.ndindex(2, 6):
        q = record.q.copy()
        q[layer, head] += 1  # so that the largest difference is this head's
        real = np.abs(_weights(q, record.k, record.scale, np.float64) - python).max()
        assert largest_difference(record, q, record.k) == pytest.approx(real, abs=1e-6)


def test_rounding_is_within_half_a_step() -> None:
    values = np.random.default_rng(5).standard_normal((2, 3, 11, 5), dtype=np.float32)
    values[:, :, :, 2] *= 1000  # one large dimension takes nothing from the others
    integers, steps = quantize(values)
    assert steps.shape == (2, 3, 5)
    error = np.abs(dequantize(integers, steps).astype(np.float64) - values)
    assert (error <= 0.5001 * steps[:, :, None, :]).all()
    assert (steps[:, :, 2] > 100 * steps[:, :, 0]).all()
    assert (np.abs(integers).max(axis=2) == 32767).all()


def test_zero_dimension_stays_zero() -> None:
    values = np.zeros((1, 1, 3, 2), np.float32)
    integers, steps = quantize(values)
    assert not integers.any()
    assert not dequantize(integers, steps).any()


def test_smallest_numbers_do_not_overflow() -> None:
    values = np.full((1, 1, 3, 2), np.finfo(np.float32).smallest_subnormal, np.float32)
    integers, steps = quantize(values)
    assert np.abs(dequantize(integers, steps)).max() <= values.max()


def test_float32_where_16_bits_are_too_few(make_record: MakeRecord) -> None:
    # Two keys that differ by less than a step of the large one, told apart by a large query: rounding moves
    # the scores by whole units.
    rng = np.random.default_rng(7)
    k = (1000 + rng.standard_normal((2, 3, 7, 5))).astype(np.float32)
    record = make_record(q=100 * rng.standard_normal((2, 3, 7, 5), dtype=np.float32), k=k)
    rounded = largest_difference(record, dequantize(*quantize(record.q)), dequantize(*quantize(record.k)))
    assert rounded > TOLERANCE
    packed = pack(record)
    assert packed.encoding == "float32"
    assert packed.q is record.q
    assert packed.k is record.k
    assert packed.largest_difference < rounded


def test_blocks_see_every_weight(make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (2, 3, 37, 5)
    rng = np.random.default_rng(9)
    record = make_record(
        tokens=tuple(PageToken(text=str(i), sequence=0) for i in range(37)),
        q=rng.standard_normal(shape, dtype=np.float32),
        k=rng.standard_normal(shape, dtype=np.float32),
    )
    whole = pack(record).largest_difference
    monkeypatch.setattr("regard.views._quantize._BLOCK_WEIGHTS", 1)  # queries by 16, 16 and 5
    monkeypatch.setattr("regard.views._quantize._BLOCK_PRODUCTS", 16 * 5 * 11)  # keys by 11, 11, 11 and 4
    assert pack(record).largest_difference == pytest.approx(whole, abs=3e-7)
    for name in ("q", "k"):
        moved = {"q": record.q.copy(), "k": record.k.copy()}
        moved[name][1, 2, 36] += 10  # only the last token of the last head differs
        assert largest_difference(record, moved["q"], moved["k"]) > 0.01


def test_scores_beyond_float32(make_record: MakeRecord) -> None:
    huge = np.full((2, 3, 7, 5), 1e30, np.float32)
    packed = pack(make_record(q=huge, k=huge))  # equal scores of 2e60: every weight is 1/7
    assert packed.largest_difference < 1e-12
