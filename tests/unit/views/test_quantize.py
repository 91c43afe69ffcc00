"""16 bits keep the weights, the stated difference is the real one, and float32 steps in where they do not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regard.views import AttentionRecord, LayerRecord, MaskRecord, PageToken, Side, render_page, weight_rows
from regard.views._page import pack_records
from regard.views._quantize import TOLERANCE, Packed, dequantize, largest_changes, quantize
from unit.views.conftest import facts_of

MakeRecord = Callable[..., AttentionRecord]


def pack(record: AttentionRecord) -> Packed:
    """A record with all of its heads, as `render_page` packs it."""
    return pack_records([record])[1][0]


def _weights(layer: LayerRecord, dtype: Any) -> Any:
    """Softmax rows, written out apart from the code under test: one query at a time, by the definition."""
    sinks = layer.sinks is not None
    out = np.zeros((layer.heads, layer.queries, layer.keys + sinks), dtype)
    group = layer.heads // len(layer.k)
    for head, query in np.ndindex(layer.heads, layer.queries):
        scores = dtype(layer.scale) * (
            layer.k[head // group].astype(dtype) @ layer.q[head, query].astype(dtype)
        )
        if layer.softcap is not None:
            scores = dtype(layer.softcap) * np.tanh(scores / dtype(layer.softcap))
        for key in range(layer.keys):
            if layer.bias is not None:
                bias = layer.bias[min(head, len(layer.bias) - 1)]
                scores[key] += bias[query, key] if bias.ndim == 2 else bias[key - query + layer.queries - 1]
            if layer.mask is not None and not _may(layer.mask, head, query, key):
                scores[key] = -np.inf
        if layer.sinks is not None:
            scores = np.append(scores, dtype(layer.sinks[head]))
        if np.isfinite(scores).any():
            powers = np.exp(scores - scores.max())
            out[head, query] = powers / powers.sum()
    return out


def _may(mask: MaskRecord, head: int, query: int, key: int) -> bool:
    if mask.low is not None and key - query < mask.low:
        return False
    if mask.high is not None and key - query > mask.high:
        return False
    if mask.keys is not None and not mask.keys[key]:
        return False
    if mask.segments is not None and mask.segments[0][query] != mask.segments[1][key]:
        return False
    return mask.bits is None or bool(mask.bits[min(head, len(mask.bits) - 1), query, key])


def _bits(*shape: int) -> Any:
    return np.random.default_rng(17).random(shape) < 0.6


LINE = np.random.default_rng(19).standard_normal((6, 13), dtype=np.float32)
DENSE = np.random.default_rng(23).standard_normal((6, 7, 7), dtype=np.float32)
EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": MaskRecord(high=0)},
    "window": {"mask": MaskRecord(low=-2, high=1)},
    "padding": {"mask": MaskRecord(keys=np.arange(7) < 5)},
    "segments": {
        "mask": MaskRecord(segments=(np.array([4, 4, 4, 9, 9, 9, 9]), np.array([4, 4, 9, 9, 9, 9, 5])))
    },
    "bits": {"mask": MaskRecord(bits=_bits(1, 7, 7))},
    "bits of heads": {"mask": MaskRecord(bits=_bits(6, 7, 7))},
    "nothing allowed": {"mask": MaskRecord(high=0, bits=np.arange(7)[None, :, None] > np.zeros((1, 1, 7)))},
    "all of it": {"mask": MaskRecord(low=-5, high=0, keys=np.arange(7) != 1), "softcap": 3.0, "bias": LINE},
    "one line": {"bias": LINE[:1]},
    "dense": {"bias": 9 * DENSE},
    "one dense": {"bias": DENSE[:1]},
    "cap": {"softcap": 1.5},
    "sinks": {"sinks": np.arange(6, dtype=np.float32), "mask": MaskRecord(high=0)},
}


def _layer(kv_heads: int = 6, **fields: Any) -> LayerRecord:
    rng = np.random.default_rng(3)
    usual: dict[str, Any] = {
        "layer": 0,
        "q": rng.standard_normal((6, 7, 5), dtype=np.float32),
        "k": 4 * rng.standard_normal((kv_heads, 7, 5), dtype=np.float32),
        "scale": 5**-0.5,
    }
    return LayerRecord(**(usual | fields))


def _record_of(*layers: LayerRecord) -> AttentionRecord:
    tokens = tuple(PageToken(text=str(i), sequence=0) for i in range(layers[0].keys))
    return AttentionRecord(model="m", encoder=Side(text="t", tokens=tokens), layers={"encoder": layers})


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("extra", EXTRAS)
def test_stated_difference_is_the_largest_one(kv_heads: int, extra: str) -> None:
    layer = _layer(kv_heads, **EXTRAS[extra])
    packed = pack(_record_of(layer))
    assert (packed.encoding, packed.every) == ("int16", 1)
    shown = packed.layers["encoder"][0].shown
    real = float(np.abs(_weights(shown, np.float64) - _weights(layer, np.float32)).max())
    assert real > 0
    assert packed.largest_difference == pytest.approx(real, abs=3e-7)
    assert render_page(_record_of(layer)).largest_difference >= real


@pytest.mark.parametrize("extra", EXTRAS)
def test_weights_are_those_of_the_definition(extra: str) -> None:
    layer = _layer(2, **EXTRAS[extra])
    wanted = _weights(layer, np.float64)
    for head in range(6):
        np.testing.assert_allclose(weight_rows(layer, head, np.arange(7)), wanted[head], atol=1e-12)
        np.testing.assert_allclose(
            weight_rows(layer, head, np.array([5, 1])), wanted[head, [5, 1]], atol=1e-12
        )


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_largest_change_at_each_key(extra: str) -> None:
    layer = _layer(2, **EXTRAS[extra])
    rng = np.random.default_rng(29)
    other = replace(layer, q=layer.q + 0.3 * rng.standard_normal(layer.q.shape, dtype=np.float32))
    wanted = np.abs(_weights(other, np.float64) - _weights(layer, np.float64)).max(axis=1)
    found = largest_changes(layer, other)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-9)


def test_each_head_is_compared_with_its_own_keys() -> None:
    layer = _layer(2)
    python = _weights(layer, np.float32)
    for head in range(6):
        q = layer.q.copy()
        q[head] += 1  # so that the largest difference is this head's
        other = replace(layer, q=q)
        real = np.abs(_weights(other, np.float64) - python).max()
        assert largest_changes(layer, other).max() == pytest.approx(real, rel=3e-4)


def test_every_layer_of_every_kind_is_compared() -> None:
    tokens = tuple(PageToken(text=str(i), sequence=0) for i in range(7))
    side = Side(text="t", tokens=tokens)
    rough = _layer(k=(1000 + np.random.default_rng(7).standard_normal((6, 7, 5))).astype(np.float32))
    for kind in ("encoder", "decoder", "cross"):
        for place in range(2):
            layers: Any = {each: (_layer(), _layer(layer=1)) for each in ("encoder", "decoder", "cross")}
            changed = list(layers[kind])
            changed[place] = replace(rough, layer=place, q=rough.q * 100)
            layers[kind] = tuple(changed)
            record = AttentionRecord(model="m", encoder=side, decoder=side, layers=layers)
            assert pack(record).encoding == "float32"


def test_a_long_text_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    record = _record_of(_layer(), _layer(layer=1))
    whole = pack(record).largest_difference
    monkeypatch.setattr("regard.views._quantize._MOST_WEIGHTS", 2 * 6 * 7 * 7 // 3)
    packed = pack(record)
    assert packed.every == 3
    assert 0 < packed.largest_difference <= whole
    assert facts_of(render_page(record))["every"] == 3
    # The last query is always among them: in a decoder it sees the most keys.
    moved = _layer().q.copy()
    moved[:, 6] += 1
    assert largest_changes(_layer(), _layer(q=moved), 3).max() > 0.01


def test_rounding_is_within_half_a_step() -> None:
    values = np.random.default_rng(5).standard_normal((3, 11, 5), dtype=np.float32)
    values[:, :, 2] *= 1000  # one large dimension takes nothing from the others
    integers, steps = quantize(values)
    assert steps.shape == (3, 5)
    error = np.abs(dequantize(integers, steps).astype(np.float64) - values)
    assert (error <= 0.5001 * steps[:, None, :]).all()
    assert (steps[:, 2] > 100 * steps[:, 0]).all()
    largest = np.abs(integers).max(axis=1)
    assert ((largest > 32767 * (1 - 2**-7)) & (largest <= 32767)).all()
    assert not (steps.view(np.uint32) & 0xFFFF).any()  # a page holds the other half


def test_zero_dimension_stays_zero() -> None:
    values = np.zeros((1, 3, 2), np.float32)
    integers, steps = quantize(values)
    assert not integers.any()
    assert not dequantize(integers, steps).any()


def test_smallest_numbers_do_not_overflow() -> None:
    values = np.full((1, 3, 2), np.finfo(np.float32).smallest_subnormal, np.float32)
    integers, steps = quantize(values)
    assert np.abs(dequantize(integers, steps)).max() <= values.max()


def test_float32_where_16_bits_are_too_few() -> None:
    # Two keys that differ by less than a step of the large one, told apart by a large query: rounding moves
    # the scores by whole units.
    rng = np.random.default_rng(7)
    k = (1000 + rng.standard_normal((6, 7, 5))).astype(np.float32)
    layer = _layer(q=100 * rng.standard_normal((6, 7, 5), dtype=np.float32), k=k, bias=DENSE)
    rounded = replace(layer, q=dequantize(*quantize(layer.q)), k=dequantize(*quantize(layer.k)))
    assert largest_changes(layer, rounded).max() > TOLERANCE
    packed = pack(_record_of(layer))
    assert packed.encoding == "float32"
    stored = packed.layers["encoder"][0]
    assert stored.bias is not None
    assert (stored.q.stored is layer.q, stored.k.stored is layer.k, stored.bias.stored is layer.bias) == (
        True,
    ) * 3
    assert packed.largest_difference == 0


def test_float32_where_a_bias_takes_too_many_bits() -> None:
    dense = DENSE.copy()
    dense[:, :, 0] = -1e9  # as some models write a mask
    packed = pack(_record_of(_layer(bias=dense)))
    assert packed.encoding == "float32"


def test_blocks_see_every_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    q, k = (rng.standard_normal((3, 37, 5), dtype=np.float32) for _ in range(2))
    layer = LayerRecord(layer=0, q=q, k=k, scale=5**-0.5)
    whole = pack(_record_of(layer)).largest_difference
    monkeypatch.setattr("regard.views._quantize._BLOCK_WEIGHTS", 1)  # queries by 16, 16 and 5
    monkeypatch.setattr("regard.views._layer_record._BLOCK_PRODUCTS", 16 * 5 * 11)  # keys by 11, 11, 11 and 4
    assert pack(_record_of(layer)).largest_difference == pytest.approx(whole, abs=3e-7)
    for name in ("q", "k"):
        moved = {"q": q.copy(), "k": k.copy()}
        moved[name][2, 36] += 10  # only the last token of the last head differs
        assert largest_changes(layer, replace(layer, **moved)).max() > 0.01


def test_scores_beyond_float32(make_record: MakeRecord) -> None:
    huge = np.full((2, 3, 7, 5), 1e30, np.float32)
    packed = pack(make_record(q=huge, k=huge))  # equal scores of 2e60: every weight is 1/7
    assert packed.largest_difference < 1e-12
