"""Which heads a page holds where not all fit: by which rule, within its size, and what of the others."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import regard
from regard.core.errors import InputError
from regard.tracing import Trace, trace_ids
from regard.views import (
    AttentionRecord,
    LayerRecord,
    MaskRecord,
    MeasureRecord,
    Page,
    PageToken,
    RecordKind,
    Side,
    Subject,
    check_measures,
    matrix_bytes,
    render_page,
    weight_rows,
)
from tolerances import PAGE
from unit.models import tiny
from unit.tracing.stacks import loaded as of_network
from unit.views.conftest import block_of, encoder_record, facts_of, steps_of

LAYERS, HEADS, TOKENS, DIM = 3, 6, 41, 64
# Of one head: q or k in 16 bits, a step for each dimension, in base64.
HEAD = (2 * TOKENS * DIM + 2 * DIM) * 4 / 3


def _record(
    *kinds: RecordKind, kv_heads: int = HEADS, layers: int = LAYERS, **fields: Any
) -> AttentionRecord:
    rng = np.random.default_rng(5)
    tokens = tuple(PageToken(text=f"t{i}", special=i in (0, TOKENS - 1), sequence=0) for i in range(TOKENS))
    side = Side(text="t", tokens=tokens)
    made: dict[RecordKind, tuple[LayerRecord, ...]] = {}
    for kind in kinds or ("encoder",):
        of_kind = []
        for layer in range(layers):
            q = 2 * rng.standard_normal((HEADS, TOKENS, DIM), dtype=np.float32)
            k = rng.standard_normal((kv_heads, TOKENS, DIM), dtype=np.float32)
            of_kind.append(LayerRecord(layer=layer, q=q, k=k, scale=0.1, **fields))
        made[kind] = tuple(of_kind)
    return AttentionRecord(model="m", encoder=side, decoder=side if len(kinds) > 1 else None, layers=made)


def _size(page: Page) -> float:
    return len(page.html.encode()) / 1e6


def _less(record: AttentionRecord, heads: float) -> float:
    """Room for so many heads less than there are."""
    pictures = 2 * 1370 * LAYERS * HEADS
    layer = record.layers["encoder"][0]
    each = HEAD * (1 + 1 / layer.group)
    return _size(render_page(record, max_mb=None)) + (pictures - heads * each) / 1e6


def test_holds_all_that_fit_and_then_says_nothing() -> None:
    page = render_page(_record())
    assert page.heads == "all"
    assert page.held == {("encoder", layer): tuple(range(HEADS)) for layer in range(LAYERS)}
    facts = facts_of(page)
    assert "held" not in facts
    assert "pictures" not in facts["kinds"]["encoder"]
    assert all("held" not in layer for layer in facts["kinds"]["encoder"]["layers"])


def test_takes_the_first_heads_of_every_layer() -> None:
    record = _record()
    page = render_page(record, max_mb=_less(record, 7))
    assert page.heads == "some"
    counts = [len(page.held["encoder", layer]) for layer in range(LAYERS)]
    assert counts == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1
    assert LAYERS * HEADS - 12 <= sum(counts) <= LAYERS * HEADS - 7
    assert all(heads == tuple(range(len(heads))) for heads in page.held.values())


def test_takes_what_is_asked_for_first() -> None:
    record = _record()
    asked: list[Any] = [("encoder", 2, 5), ("encoder", 0, 4), ("encoder", 2, 5)]
    page = render_page(record, heads=asked, max_mb=_less(record, 14))
    assert 2 <= sum(map(len, page.held.values())) <= 4
    assert 5 in page.held["encoder", 2]
    assert 4 in page.held["encoder", 0]


def test_values_are_of_heads_that_it_holds() -> None:
    v = np.random.default_rng(3).standard_normal((2, TOKENS, 7), dtype=np.float32)
    record = _record(kv_heads=2, v=v)
    page = render_page(record, values=[("encoder", 1, 5)], max_mb=_less(record, 14))
    assert 5 in page.held["encoder", 1]
    assert (page.heads, page.values) == ("some", "some")
    layers = facts_of(page)["kinds"]["encoder"]["layers"]
    assert [layer["v"]["heads"] for layer in layers] == [[], [1], []]
    assert facts_of(page)["values"]["difference"] < 1e-3


EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"kv_heads": 2},
    "one k": {"kv_heads": 1},
    "sinks": {"sinks": np.arange(HEADS, dtype=np.float32)},
    "dense": {"bias": np.random.default_rng(7).standard_normal((HEADS, TOKENS, TOKENS), dtype=np.float32)},
    "one dense": {"bias": np.random.default_rng(7).standard_normal((1, TOKENS, TOKENS), dtype=np.float32)},
    "a line": {
        "bias": np.random.default_rng(7).standard_normal((HEADS, 2 * TOKENS - 1), dtype=np.float32),
        "mask": MaskRecord(high=0),
    },
}


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("size", [1.0, 1000.0])  # of the keys; large ones are not rounded
def test_stays_within_any_size(extra: str, size: float) -> None:
    record = _record(**EXTRAS[extra])
    for kind in record.kinds:
        for layer in record.layers[kind]:
            layer.k[:] += size - 1
    whole = _size(render_page(record, max_mb=None))
    counts = []
    for part in (1.05, 1.0, 0.95, 0.9, 0.86):
        page = render_page(record, max_mb=part * whole)
        assert page.encoding == ("int16" if size == 1 else "float32")
        assert _size(page) <= part * whole
        counts.append(sum(map(len, page.held.values())))
    assert counts[0] == LAYERS * HEADS
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]


def test_every_kind_has_a_head() -> None:
    record = _record("encoder", "decoder", "cross")
    whole = _size(render_page(record, max_mb=None))
    page = render_page(record, heads=[("cross", 1, 3)], max_mb=whole - 76 * HEAD / 1e6)
    assert page.heads == "some"
    assert {kind for kind, _ in page.held} == {"encoder", "decoder", "cross"}
    assert 3 in page.held["cross", 1]


def test_what_it_holds_is_whole_and_exact() -> None:
    record = _record(kv_heads=3)
    page = render_page(record, heads=[("encoder", 1, 5)], max_mb=_less(record, 10))
    for number, layer in enumerate(record.layers["encoder"]):
        facts = facts_of(page)["kinds"]["encoder"]["layers"][number]
        held = facts["held"]
        assert tuple(held) == page.held["encoder", number]
        assert facts["heads"] == HEADS
        of_keys = list(dict.fromkeys(head // 2 for head in held))
        for name, array, heads in (("q", layer.q, held), ("k", layer.k, of_keys)):
            integers = block_of(page, facts[name]["values"], "<i2").reshape(len(heads), TOKENS, DIM)
            steps = steps_of(page, facts[name]["steps"]).reshape(len(heads), 1, DIM)
            np.testing.assert_allclose(integers * steps, array[heads], atol=5e-4)
    assert page.largest_difference < 1e-3


def test_statistics_are_of_all_heads() -> None:
    record = _record()
    part, whole = render_page(record, max_mb=_less(record, 9)), render_page(record)
    told = [facts_of(page)["kinds"]["encoder"]["statistics"] for page in (part, whole)]
    assert told[0] == told[1]


def _levels(layer: LayerRecord, head: int, places: list[int]) -> list[list[int]]:
    """A head's picture by its definition: of evenly spaced queries, the largest weight in each bin."""
    weights = weight_rows(layer, head, np.arange(TOKENS))
    side = min(32, len(places))
    picture = np.zeros((side, side))
    for y in range(side):
        query = places[math.floor((y + 0.5) * len(places) / side)]
        for i, key in enumerate(places):
            x = i * side // len(places)
            picture[y, x] = max(picture[y, x], weights[query, key])
    levels: list[list[int]] = (255 * np.sqrt(picture / picture.max())).astype(int).tolist()
    return levels


def test_pictures_of_the_others_are_those_that_a_page_would_draw() -> None:
    record = _record()
    page = render_page(record, heads=[("encoder", 1, 3)], max_mb=_less(record, 12))
    facts = facts_of(page)["kinds"]["encoder"]
    missing = [
        (layer, head)
        for layer in record.layers["encoder"]
        for head in range(HEADS)
        if head not in page.held["encoder", layer.layer]
    ]
    assert len(missing) > 12
    for name, places in (("all", list(range(TOKENS))), ("plain", list(range(1, TOKENS - 1)))):
        pictures = block_of(page, facts["pictures"][name], "u1").reshape(len(missing), 32, 32)
        for (layer, head), found in zip(missing, pictures, strict=True):
            np.testing.assert_array_equal(found, _levels(layer, head, places))


def test_norms_are_checked_of_what_is_held() -> None:
    record = _record(layers=2)
    norms = np.random.default_rng(9).random((2, HEADS, TOKENS), dtype=np.float32)
    measure = MeasureRecord(name="norm", layers=tuple(norms))
    record = AttentionRecord(
        model="m", encoder=record.encoder, layers=record.layers, measures={"encoder": (measure,)}
    )
    whole = _size(render_page(record, max_mb=None))
    page = render_page(record, max_mb=whole - 8 * HEAD / 1e6)
    (known,) = facts_of(page)["kinds"]["encoder"]["measures"]
    assert 0 < known["difference"] < 1e-3
    assert (page.heads, page.left_out) == ("some", {})


def test_says_what_all_would_take() -> None:
    record = _record()
    page = render_page(record, max_mb=_less(record, 7))
    held = facts_of(page)["held"]
    assert held["most"] == pytest.approx(_less(record, 7))
    assert held["all"] == pytest.approx(_size(render_page(record, max_mb=None)), rel=0.05)


def test_what_does_not_fit_is_refused() -> None:
    record = _record()
    everything: list[Any] = [("encoder", layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    with pytest.raises(InputError, match=r"room for the 18 heads that are asked for.*give a larger max_mb"):
        render_page(record, heads=everything, max_mb=_less(record, 5))
    with pytest.raises(InputError, match="room for one head of each kind"):
        render_page(record, max_mb=0.1)
    for most in (0, -1.0, float("nan")):
        with pytest.raises(InputError, match="max_mb must be millions of bytes"):
            render_page(record, max_mb=most)
    for name in (("encoder", 3, 0), ("encoder", 0, HEADS), ("decoder", 0, 0)):
        with pytest.raises(InputError, match=f"heads must be heads of the model; got head {name[2]}"):
            render_page(record, heads=[name])  # type: ignore[list-item]


def test_both_runs_of_a_difference_hold_the_same() -> None:
    one = _record()
    other = AttentionRecord(model="n", encoder=one.encoder, layers=_record(kv_heads=3).layers)
    nothing = np.zeros((LAYERS, HEADS)).tolist()
    pairs = [[i, i] for i in range(TOKENS)]
    of_kind = {"queries": pairs, "keys": pairs, "divergence": nothing, "compared": nothing, "most": nothing}
    compared = {"between": "models", "names": ["m", "n"], "kinds": {"encoder": of_kind}}
    difference = Subject("compared", compared | {"likeness": None, "leftOut": []})
    whole = render_page(one, other, subject=difference, max_mb=None)
    most = _size(whole) - 12 * HEAD / 1e6
    page = render_page(one, other, subject=difference, heads=[("encoder", 1, 5)], max_mb=most)
    assert _size(page) <= most
    for facts in (facts_of(page), facts_of(page, "run1-")):
        assert facts["held"]["most"] == most
        for number, layer in enumerate(facts["kinds"]["encoder"]["layers"]):
            assert tuple(layer["held"]) == page.held["encoder", number]
    assert 5 in page.held["encoder", 1]


TEXT = "Write a poem about a man fishing on a river bank."


def _data(page: Page) -> dict[str, int]:
    """How many characters each block takes, but for the page's own script and style."""
    found = re.findall(r'id="regard-([\w-]+)">(.*?)</script>', page.html, re.DOTALL)
    return {name: len(text) for name, text in found if name not in ("script", "style")}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return regard.load().trace(TEXT)


def test_holds_one_head_in_a_few_kb(trace: Trace) -> None:
    page = trace.page(only=[(5, 11)])
    data, facts = _data(page), facts_of(page)
    assert sum(data.values()) < 10_000
    assert set(data) == {
        "facts",
        *(f"encoder-5-{each}" for each in ("q", "k", "v", "q-steps", "k-steps", "v-steps")),
    }
    assert (page.held, page.heads, page.values) == ({("encoder", 5): (11,)}, "some", "some")
    [layer] = facts["kinds"]["encoder"]["layers"]
    assert (layer["layer"], layer["heads"], layer["held"], layer["v"]["heads"]) == (5, 12, [11], [11])
    assert facts["held"] == {"only": 72}
    assert {name: facts["start"][name] for name in ("layer", "head")} == {"layer": 5, "head": 11}
    for name, [values] in facts["kinds"]["encoder"]["statistics"].items():
        assert [place for place, value in enumerate(values) if value is not None] == [11], name
    [names] = facts["kinds"]["encoder"]["names"]
    assert names[:11] == [[]] * 11
    assert "story" not in facts
    assert facts["kinds"]["encoder"]["measures"] == []
    steps = steps_of(page, layer["q"]["steps"])
    q = block_of(page, layer["q"]["values"], "<i2").reshape(14, 32) * steps
    assert np.abs(q - trace.q(5, 11).numpy()).max() < 1e-3


def test_numbers_of_other_layers_and_kinds_stay_what_they_are() -> None:
    trace = trace_ids(of_network(tiny.both(), tokenizer=False), [3, 5, 7], [4, 6, 1, 2])
    facts = facts_of(trace.page(only=[("cross", 1, 0), ("decoder", 2, 4), ("cross", 1, 3)]))
    held = {
        kind: [(each["layer"], each.get("held")) for each in of["layers"]]
        for kind, of in facts["kinds"].items()
    }
    assert held == {"decoder": [(2, [4])], "cross": [(1, [0, 3])]}
    assert facts["kinds"]["decoder"]["names"] == [[[]] * 5]
    # A layer, with all its heads; and one of every kind that has it.
    assert [each.get("held") for each in facts_of(trace.page(only=[0]))["kinds"]["decoder"]["layers"]] == [
        None
    ]
    assert set(facts_of(trace.page(only=[(0, 1)]))["kinds"]) == {"encoder", "decoder", "cross"}


@pytest.mark.parametrize(
    ("only", "options", "said"),
    [
        ([], {}, "only must be at least one head, such as .5, 11.; got none"),
        ([(6, 0)], {}, "only: layer must be"),
        (["x"], {}, "only must be .layer, head., .kind, layer, head. or a layer; got 'x'"),
        ([(5, 11)], {"heads": [(0, 0)]}, "only must be given alone: a page of chosen heads"),
        ([(5, 11)], {"measures": ["rollout"]}, "only must be given alone: a page of chosen heads"),
        ([(5, 11)], {"all_positions": True}, "only must be given alone: a page of chosen heads"),
        ([5], {"max_mb": 0.01}, "max_mb must leave room for the 12 heads that are asked for"),
    ],
)
def test_says_what_is_wrong(trace: Trace, only: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        trace.page(only=only, **options)


FEW_LAYERS, FEW_HEADS, FEW_TOKENS, NARROW = 2, 3, 7, 5


def _measured(*measures: MeasureRecord, **left_out: str) -> AttentionRecord:
    q, k = np.random.default_rng(3).standard_normal(
        (2, FEW_LAYERS, FEW_HEADS, FEW_TOKENS, NARROW), dtype=np.float32
    )
    tokens = tuple(PageToken(text=f"w{i}", sequence=0) for i in range(FEW_TOKENS))
    made = encoder_record(text="w", model="m", tokens=tokens, q=q, k=k, scale=NARROW**-0.5)
    return replace(made, measures={"encoder": measures}, left_out=left_out)


def _matrices(heads: int, size: float = 1.0) -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    return tuple(
        size * rng.standard_normal((heads, FEW_TOKENS, FEW_TOKENS), dtype=np.float32)
        for _ in range(FEW_LAYERS)
    )


def _norms(size: float) -> tuple[Any, ...]:
    rng = np.random.default_rng(7)
    return tuple(size * rng.random((FEW_HEADS, FEW_TOKENS), dtype=np.float32) for _ in range(FEW_LAYERS))


def _read(page: Page, known: dict[str, Any], shape: tuple[int, ...]) -> Any:
    if known["steps"] is None:
        return block_of(page, known["values"], "<f4").reshape(shape)
    steps = steps_of(page, known["steps"])
    return block_of(page, known["values"], "<i2").reshape(shape) * steps.reshape(*shape[:-1], 1)


@pytest.mark.parametrize(("name", "heads"), [("gradient", FEW_HEADS), ("rollout", 1), ("value_zeroing", 1)])
def test_matrices_are_read_back(name: Any, heads: int) -> None:
    for size in (1.0, 1e-6, 1e4):  # large ones are kept as they are
        given = _matrices(heads, size)
        page = render_page(_measured(MeasureRecord(name=name, layers=given, of="of x")))
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
    record = _measured(MeasureRecord(name="norm", layers=given))
    page = render_page(record)
    (measure,) = facts_of(page)["kinds"]["encoder"]["measures"]
    assert page.left_out == {}
    assert 0 < measure["difference"] <= PAGE
    for layer, norms, known in zip(record.layers["encoder"], given, measure["layers"], strict=True):
        raw = block_of(page, known["values"], "<i2")
        steps = steps_of(page, known["steps"])
        read = raw.reshape(FEW_HEADS, FEW_TOKENS) * steps.reshape(FEW_HEADS, 1)
        np.testing.assert_allclose(read, norms, rtol=0, atol=3.0 / 32767)
        for head in range(FEW_HEADS):
            rows = weight_rows(layer, head, np.arange(FEW_TOKENS)) * norms[head]
            assert known["most"][head] == pytest.approx(rows.max(), abs=PAGE)


def test_norms_that_the_page_could_not_show_are_left_out() -> None:
    page = render_page(_measured(MeasureRecord(name="norm", layers=_norms(1e4)), rollout="too long"))
    assert list(page.left_out) == ["rollout", "norm"]
    facts = facts_of(page)
    assert facts["kinds"]["encoder"]["measures"] == []
    assert {each["name"]: each["reason"] for each in facts["leftOut"]} == page.left_out
    assert "would differ by" in page.left_out["norm"]


def test_arrays_without_a_model_say_nothing_of_measures() -> None:
    plain = replace(_measured(), measures={})
    assert facts_of(render_page(plain))["leftOut"] is None


def test_the_forecast_is_what_they_take() -> None:
    given = _matrices(FEW_HEADS)
    before = len(render_page(_measured()).html)
    after = len(render_page(_measured(MeasureRecord(name="gradient", layers=given))).html)
    forecast = matrix_bytes(FEW_LAYERS * FEW_HEADS, FEW_TOKENS, FEW_TOKENS)
    assert 0 < after - before - forecast < 1500  # names and facts


def test_asking() -> None:
    assert check_measures(["gradient", "norm", "norm"]) == ["norm", "gradient"]
    with pytest.raises(InputError, match="must be a list"):
        check_measures("norm")
