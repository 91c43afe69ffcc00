"""Values are held while they fit, else of the heads asked for; the stated difference is the real one."""

from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import AttentionRecord, LayerRecord, Page, PageToken, Side, render_page, value_contexts
from unit.views.conftest import block_of, facts_of, steps_of

HEADS, KV, TOKENS, DIM, V_DIM = 6, 3, 7, 5, 11


def _record(*, spread: float = 1.0, layers: int = 2, **fields: Any) -> AttentionRecord:
    rng = np.random.default_rng(7)
    made = []
    for layer in range(layers):
        q = 3 * rng.standard_normal((HEADS, TOKENS, DIM), dtype=np.float32)
        k = rng.standard_normal((KV, TOKENS, DIM), dtype=np.float32)
        v = spread * rng.standard_normal((KV, TOKENS, V_DIM), dtype=np.float32)
        made.append(LayerRecord(layer=layer, q=q, k=k, scale=0.4, **({"v": v} | fields)))
    side = Side(text="t", tokens=tuple(PageToken(text=f"t{i}", sequence=0) for i in range(TOKENS)))
    return AttentionRecord(model="m", encoder=side, layers={"encoder": tuple(made)})


def _read(page: Page, layer: int) -> tuple[list[int], Any]:
    facts = facts_of(page)["kinds"]["encoder"]["layers"][layer]["v"]
    if facts["steps"] is None:
        return facts["heads"], block_of(page, facts["values"], "<f4").reshape(-1, TOKENS, V_DIM)
    integers = block_of(page, facts["values"], "<i2").reshape(-1, TOKENS, V_DIM).astype(np.float32)
    return facts["heads"], integers * steps_of(page, facts["steps"]).reshape(-1, 1, V_DIM)


def test_holds_all_while_they_fit() -> None:
    record = _record()
    page = render_page(record)
    facts = facts_of(page)
    assert (page.values, facts["values"]["held"], facts["values"]["every"]) == ("all", "all", 1)
    for layer in range(2):
        heads, read = _read(page, layer)
        assert heads == [0, 1, 2]
        v = record.layers["encoder"][layer].v
        assert v is not None
        assert 0 < np.abs(read - v).max() < 1e-3
    assert 1e-7 < facts["values"]["difference"] < 1e-3


def test_the_stated_difference_is_that_of_the_results() -> None:
    record = _record()
    page = render_page(record)
    stated, largest = facts_of(page)["values"]["difference"], 0.0
    for number, layer in enumerate(record.layers["encoder"]):
        _, v = _read(page, number)
        facts = facts_of(page)["kinds"]["encoder"]["layers"][number]
        q, k = (
            block_of(page, facts[name]["values"], "<i2").reshape(-1, TOKENS, DIM).astype(np.float32)
            * steps_of(page, facts[name]["steps"]).reshape(-1, 1, DIM)
            for name in "qk"
        )
        for head in range(HEADS):
            scores = 0.4 * q[head].astype(float) @ k[head // 2].astype(float).T
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            shown = powers / powers.sum(axis=1, keepdims=True) @ v[head // 2]
            assert layer.v is not None
            wanted = value_contexts(layer, layer.v, head, np.arange(TOKENS))
            largest = max(largest, float(np.abs(shown - wanted).max()))
    assert largest <= stated <= 1.1 * largest + 3e-7


def test_holds_what_is_asked_for_where_all_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(render_page(_record()).html)
    monkeypatch.setattr("regard.views._page.MOST_BYTES", size - 200)
    record = _record()
    assert render_page(record).values == "none"
    page = render_page(record, values=[("encoder", 1, 5), ("encoder", 1, 4), ("encoder", 1, 0)])
    assert page.values == "some"
    heads, read = _read(page, 1)
    assert heads == [0, 2]
    v = record.layers["encoder"][1].v
    assert v is not None
    np.testing.assert_allclose(read, v[[0, 2]], atol=1e-3)
    assert facts_of(page)["kinds"]["encoder"]["layers"][0]["v"] == {"dim": V_DIM, "heads": []}
    monkeypatch.setattr("regard.views._page.MOST_BYTES", size + 2000)
    assert render_page(record).values == "all"


def test_a_page_with_all_values_stays_within_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    record = _record()
    least = len(render_page(record).html)
    for most in range(least - 3000, least + 3000, 500):
        monkeypatch.setattr("regard.views._page.MOST_BYTES", most)
        page = render_page(record)
        assert page.values == "none" or len(page.html.encode()) <= most


def test_keeps_float32_where_rounding_would_show() -> None:
    v = np.full((KV, TOKENS, V_DIM), 0.01, np.float32)
    v[:, 0] = 900.0
    page = render_page(_record(v=v, layers=1))
    heads, read = _read(page, 0)
    assert facts_of(page)["kinds"]["encoder"]["layers"][0]["v"]["steps"] is None
    assert facts_of(page)["encoding"] == "int16"
    np.testing.assert_array_equal(read, v[heads])


def test_says_that_a_layer_has_none() -> None:
    page = render_page(_record(v=None))
    assert page.values == "none"
    assert "v" not in facts_of(page)["kinds"]["encoder"]["layers"][0]


@pytest.mark.parametrize(
    ("values", "fields", "message"),
    [
        ([("encoder", 2, 0)], {}, "values must be heads of the model; got head 0 of encoder layer 2"),
        ([("encoder", 0, 6)], {}, "got head 6 of encoder layer 0"),
        ([("decoder", 0, 0)], {}, "got head 0 of decoder layer 0"),
        ([("encoder", 0, 0)], {"v": None}, "values must be of a layer that has some"),
    ],
)
def test_refuses_heads_that_are_not_there(values: Any, fields: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        render_page(_record(**fields), values=values)
