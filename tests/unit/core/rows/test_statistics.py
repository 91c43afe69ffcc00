"""Statistics of rows against loops over the weights that plain Python makes, and against dense formulas."""

import math
from typing import Any

import pytest
import torch

from regard.core import (
    AttentionInputs,
    Causal,
    Groups,
    Padding,
    Predicate,
    RowStatistics,
    Window,
    attention_weights,
    row_statistics,
)
from regard.core.errors import InputError
from regard.core.rows import _blocks, _statistics
from tolerances import FP32_OF_LARGEST, FP64, VARIANCE_OF_DISTANCE, assert_close_to_largest
from unit.core.cases import BIASES, MASKS, Case, Made

TOP, COLUMNS = 3, 5


class Asked:
    """Something to ask of a number of queries and keys: drawn, and different for every row."""

    def __init__(self, queries: int, keys: int) -> None:
        draw = torch.Generator().manual_seed(queries * keys)
        self.values = torch.randn(keys, COLUMNS, generator=draw)
        self.places = torch.randint(-1, keys, (queries, 2), generator=draw)
        self.positions = torch.randint(0, keys, (queries,), generator=draw)
        self.group = torch.randint(-1, 3, (keys,), generator=draw)
        self.unit = torch.randint(0, 5, (keys,), generator=draw)
        self.square = queries == keys

    def of(self, inputs: AttentionInputs) -> RowStatistics:
        groups = [Groups(self.group, self.unit), Groups(self.group)] if self.square else []
        return row_statistics(
            inputs,
            values=self.values.to(inputs.q.dtype),
            places=self.places,
            positions=self.positions,
            groups=groups,
            top_k=min(TOP, inputs.k_len),
        )


def by_loops(asked: Asked, scores: list[float], weights: list[float], i: int, sinks: bool) -> dict[str, Any]:
    """Every statistic of one row, from its weights one by one."""
    keys = len(asked.values)
    weight = weights[:keys]
    total = math.fsum(weight)
    ranked = sorted(range(keys), key=lambda j: -weight[j])
    seen = [j for j in ranked if scores[j] != -math.inf]
    distance = [abs(int(asked.positions[i]) - j) for j in range(keys)]
    mean = math.fsum(w * d for w, d in zip(weight, distance, strict=True)) / total if total else 0.0
    squares = math.fsum(w * (d - mean) ** 2 for w, d in zip(weight, distance, strict=True))
    most = max(scores)
    told: dict[str, Any] = {
        "entropy": -math.fsum(w * math.log(w) for w in weights if w > 0),
        "largest": max(weight),
        "largest_at": ranked[0] if seen else -1,
        "lse": -math.inf
        if most == -math.inf
        else most + math.log(math.fsum(math.exp(s - most) for s in scores)),
        "mass": [
            math.fsum(w * float(asked.values[j, c]) for j, w in enumerate(weight)) for c in range(COLUMNS)
        ],
        "at_places": [0.0 if j < 0 else weight[j] for j in asked.places[i].tolist()],
        "distance": mean,
        "spread": squares / total if total else 0.0,
        "top_weights": ([weight[j] for j in seen] + [0.0] * TOP)[: min(TOP, keys)],
        "top_keys": (seen + [-1] * TOP)[: min(TOP, keys)],
    }
    if sinks:
        told["sink"] = weights[keys]
    if asked.square:
        group, unit = asked.group.tolist(), asked.unit.tolist()
        mine = [j for j in range(keys) if group[j] == group[i] >= 0]
        told["at_groups"] = [
            math.fsum(weight[j] for j in mine if unit[j] != unit[i]),
            math.fsum(weight[j] for j in mine if j != i),
        ]
    return told


def compare(found: RowStatistics, wanted: dict[str, Any], tolerance: float, variance: float) -> None:
    """Every statistic there is, and none where none is wanted."""
    for name, values in wanted.items():
        actual = getattr(found, name)
        assert actual is not None, name
        expected = torch.tensor(values, dtype=torch.float64)
        if actual.dtype == torch.int64:
            assert torch.equal(actual, expected.long()), name
        elif name == "spread":
            apart = (actual.double().square() - expected).abs().max()
            assert apart < variance + tolerance * expected.max()
        else:
            assert_close_to_largest(actual, expected, tolerance)
    for name in ("mass", "at_places", "at_groups", "distance", "spread", "top_weights", "top_keys", "sink"):
        assert (getattr(found, name) is None) == (name not in wanted), name


def check(case: Case, dtype: torch.dtype) -> None:
    """One mixture, every row by loops."""
    made = Made(case)
    asked = Asked(case.queries, case.keys)
    result = made.expected()
    inputs, _ = made.record(dtype)
    wanted: dict[str, Any] = {}
    for scores_b, weights_b in zip(result.masked_scores, result.weights, strict=True):
        of_heads: dict[str, Any] = {}
        for scores_h, weights_h in zip(scores_b, weights_b, strict=True):
            rows = [
                by_loops(asked, s, w, i, case.sinks)
                for i, (s, w) in enumerate(zip(scores_h, weights_h, strict=True))
            ]
            for name in rows[0]:
                of_heads.setdefault(name, []).append([row[name] for row in rows])
            received = [math.fsum(w[j] for w in weights_h) for j in range(case.keys)]
            of_heads.setdefault("received", []).append(received)
        for name, values in of_heads.items():
            wanted.setdefault(name, []).append(values)
    exact = dtype == torch.float64
    found = asked.of(inputs)
    compare(found, wanted, 5 * FP64 if exact else FP32_OF_LARGEST, 1e-9 if exact else VARIANCE_OF_DISTANCE)
    assert found.entropy.dtype == found.received.dtype == dtype
    assert not found.entropy.requires_grad


EVERYTHING = Case(
    mask="nested", bias="computed", softcap=2.0, scale=0.7, kv_heads=2, sinks=True, layout="projected"
)
CASES = [
    *(Case(mask=mask) for mask in MASKS),
    *(
        Case(mask=mask, sinks=True)
        for mask in ("none", "causal empty", "padded item", "predicate items", "nested")
    ),
    *(Case(mask=mask, bias=bias) for mask in ("none", "causal", "padded item") for bias in BIASES),
    *(Case(mask=mask, queries=11, keys=11) for mask in ("causal", "window & causal", "causal & padding")),
    Case(softcap=1.5),
    Case(softcap=1.5, sinks=True, mask="causal", kv_heads=3),
    Case(scale=1.7, kv_heads=1),
    Case(mask="causal", kv_heads=3, dropped=True),
    Case(bias="minus infinity", sinks=True),
    Case(queries=1, keys=1),
    Case(queries=11, keys=2, mask="causal empty"),
    EVERYTHING,
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_loops(case: Case) -> None:
    check(case, torch.float64)


@pytest.mark.parametrize("case", [Case(), Case(mask="causal & padding", sinks=True), EVERYTHING], ids=str)
def test_in_single_precision(case: Case) -> None:
    check(case, torch.float32)


@pytest.mark.parametrize(("entries", "portion"), [(1, 4), (40, 1), (40, 4), (200, 1)])
@pytest.mark.parametrize(
    "case",
    [
        Case(mask="causal", queries=13, keys=13),
        Case(mask="window & causal", kv_heads=2, queries=13, keys=13, sinks=True),
        Case(mask="nested", bias="computed", kv_heads=3, queries=13, keys=17),
    ],
    ids=str,
)
def test_any_blocks(case: Case, portion: int, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocks, "PORTION", portion)
    monkeypatch.setattr(_statistics, "_AT_ONCE", entries)
    monkeypatch.setattr(_statistics, "_OF_ONE_HEAD", max(1, entries // 3))
    monkeypatch.setattr(_statistics, "_ROWS", 1)
    check(case, torch.float64)


@pytest.mark.parametrize("case", [Case(mask="causal", queries=13, keys=13), EVERYTHING], ids=str)
def test_without_a_look_at_the_mask(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than on the CPU nobody looks which columns are hidden: all of them are written."""
    monkeypatch.setattr(_blocks, "_hidden_columns", lambda allowed, count: slice(0, count))
    check(case, torch.float64)


def dense(inputs: AttentionInputs, asked: Asked) -> dict[str, Any]:
    """The formulas over whole matrices in float64."""
    everything = attention_weights(inputs).double()
    weights = everything[..., : inputs.k_len]
    distance = (asked.positions[:, None] - torch.arange(inputs.k_len)).abs().double()
    total = weights.sum(3)
    mean = (weights * distance).sum(3) / total
    variance = (weights * (distance - mean[..., None]) ** 2).sum(3) / total
    group, unit = asked.group, asked.unit
    same = (group[:, None] == group) & (group >= 0)
    return {
        "entropy": torch.special.entr(everything).sum(3),
        "largest": weights.amax(3),
        "mass": weights @ asked.values.double(),
        "received": weights.sum(2),
        "distance": mean,
        "spread": variance,
        "at_places": weights.gather(3, asked.places.clamp(min=0).expand(*weights.shape[:2], -1, -1))
        * (asked.places >= 0),
        "at_groups": torch.stack(
            [
                (weights * each).sum(3)
                for each in (same & (unit[:, None] != unit), same & ~torch.eye(len(unit)).bool())
            ],
            dim=3,
        ),
        "top_weights": weights.topk(TOP, dim=3).values,
    }


@pytest.mark.parametrize(
    "mask",
    [None, Causal(), Window(left=61) & Causal(), Window(left=43, right=19), Predicate(lambda i, j: j != 5)],
)
@pytest.mark.parametrize("sharpness", [0.3, 6.0])
def test_longer_than_a_portion(mask: Any, sharpness: float) -> None:
    """In single precision, with the blocks and portions of every day."""
    q, k, v = torch.randn(3, 2, 3, 307, 5)
    inputs = AttentionInputs(q=q * sharpness, k=k, v=v, mask=mask, sinks=torch.randn(3))
    asked = Asked(307, 307)
    found = asked.of(inputs)
    wanted = dense(inputs, asked)
    # Scores of some 80 have their last place at 8e-6, and weights are as wrong as their scores.
    tolerance = FP32_OF_LARGEST * max(1.0, sharpness)
    for name, values in wanted.items():
        actual = getattr(found, name)
        if name == "spread":
            apart = (actual.double().square() - values).abs().max()
            assert apart < VARIANCE_OF_DISTANCE + tolerance * values.max()
        else:
            assert_close_to_largest(actual, values, tolerance)
    assert found.top_keys is not None
    there = found.top_keys >= 0
    picked = attention_weights(inputs).double().gather(3, found.top_keys.clamp(min=0)) * there
    assert_close_to_largest(picked, wanted["top_weights"], tolerance)
    assert there[..., 0].all()
    assert there.all() == (mask is None or isinstance(mask, Predicate | Window))


def test_a_row_by_hand() -> None:
    """Scores log 1, log 2, log 5 and a sink of log 2: weights 0.1, 0.2, 0.5, 0.2."""
    k = torch.tensor([1.0, 2.0, 5.0]).log()[None, None, :, None]
    inputs = AttentionInputs(q=torch.ones(1, 1, 1, 1), k=k, v=k, scale=1.0, sinks=torch.tensor([2.0]).log())
    found = row_statistics(
        inputs,
        values=torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        places=torch.tensor([[2, -1]]),
        positions=torch.tensor([0]),
        top_k=3,
    )
    entropy = -(0.1 * math.log(0.1) + 2 * 0.2 * math.log(0.2) + 0.5 * math.log(0.5))
    told = {
        "entropy": entropy,
        "largest": 0.5,
        "lse": math.log(10.0),
        "mass": [0.3, 0.5],
        "at_places": [0.5, 0.0],
        "distance": (0.2 + 1.0) / 0.8,
        "spread": math.sqrt((0.1 * 1.5**2 + 0.2 * 0.5**2 + 0.5 * 0.5**2) / 0.8),
        "top_weights": [0.5, 0.2, 0.1],
        "sink": 0.2,
    }
    for name, wanted in told.items():
        assert_close_to_largest(getattr(found, name)[0, 0, 0], wanted, FP32_OF_LARGEST)
    assert found.largest_at.item() == 2
    assert found.top_keys is not None
    assert found.top_keys.tolist() == [[[[2, 1, 0]]]]
    assert_close_to_largest(found.received[0, 0], [0.1, 0.2, 0.5], FP32_OF_LARGEST)


def test_a_row_that_sees_nothing() -> None:
    q = torch.randn(1, 2, 3, 5)
    real = torch.zeros(1, 3, dtype=torch.bool)
    inputs = AttentionInputs(q=q, k=q, v=q, mask=Padding(real))
    at = torch.arange(3)
    found = row_statistics(
        inputs, values=torch.ones(3, 1), places=at[:, None], positions=at, groups=[Groups(at * 0)], top_k=2
    )
    for name in ("entropy", "largest", "received", "mass", "at_places", "at_groups", "distance", "spread"):
        assert not getattr(found, name).any(), name
    assert found.top_weights is not None
    assert found.top_keys is not None
    assert not found.top_weights.any()
    assert (found.top_keys == -1).all()
    assert (found.largest_at == -1).all()
    assert (found.lse == -math.inf).all()


def test_equal_weights_give_the_first_key() -> None:
    zeros = torch.zeros(1, 1, 300, 2)
    found = row_statistics(AttentionInputs(q=zeros, k=zeros, v=zeros, mask=Window(left=7, right=None)))
    assert found.largest_at[0, 0].tolist() == [max(0, i - 7) for i in range(300)]


def test_a_sharp_row_has_no_entropy() -> None:
    """A score 200 above all others: every other weight is zero, and nothing is NaN."""
    k = torch.zeros(1, 1, 131, 1)
    k[0, 0, 130] = 200.0
    at = torch.tensor([0])
    inputs = AttentionInputs(q=torch.ones(1, 1, 1, 1), k=k, v=k, scale=1.0)
    found = row_statistics(inputs, positions=at)
    assert found.entropy.item() == 0.0
    assert (found.largest.item(), found.largest_at.item(), found.lse.item()) == (1.0, 130, 200.0)
    assert found.distance is not None
    assert found.spread is not None
    assert (found.distance.item(), found.spread.item()) == (130.0, 0.0)


@pytest.mark.parametrize("damage", [math.nan, math.inf, 1e30])
def test_what_padding_holds_reaches_nothing(damage: float) -> None:
    q, k, v = torch.randn(3, 1, 2, 7, 5)
    real = torch.arange(7)[None] < 4
    clean = row_statistics(AttentionInputs(q=q, k=k, v=v, mask=Padding(real)), positions=torch.arange(7))
    k = torch.where(real[:, None, :, None], k, damage)
    found = row_statistics(AttentionInputs(q=q, k=k, v=v, mask=Padding(real)), positions=torch.arange(7))
    for name in ("entropy", "largest", "lse", "received", "distance", "spread"):
        assert torch.equal(getattr(found, name), getattr(clean, name))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_first(dtype: torch.dtype) -> None:
    q, k, v = torch.randn(3, 1, 4, 9, 5).to(dtype)
    half = row_statistics(AttentionInputs(q=q, k=k[:, :2], v=v[:, :2], sinks=torch.randn(4).to(dtype)))
    assert half.entropy.dtype == half.received.dtype == torch.float32
    plain = row_statistics(AttentionInputs(q=q, k=k[:, :2], v=v[:, :2]))
    wide = row_statistics(AttentionInputs(q=q.float(), k=k[:, :2].float(), v=v[:, :2].float()))
    for name in ("entropy", "largest", "lse", "received"):
        assert torch.equal(getattr(plain, name), getattr(wide, name))


def test_groups_count_who_belongs() -> None:
    groups = Groups(torch.tensor([4, 4, -1, 4, 7, -1]), torch.tensor([0, 1, 2, 1, 1, 2]))
    assert groups.others().tolist() == [2, 1, 0, 1, 0, 0]
    assert Groups(groups.group).others().tolist() == [2, 2, 0, 2, 0, 0]


SMALL = AttentionInputs(q=torch.zeros(1, 2, 3, 5), k=torch.zeros(1, 2, 7, 5), v=torch.zeros(1, 2, 7, 5))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"values": torch.zeros(3, 2)}, r"values must be floating point of shape \(keys, C\) = \(7, C\)"),
        ({"values": torch.zeros(7)}, "values must be"),
        ({"values": torch.zeros(7, 2).long()}, "values must be .* got torch.int64"),
        ({"places": torch.zeros(7, 2).long()}, r"places must be int64 of shape \(queries, m\) = \(3"),
        ({"places": torch.zeros(3, 2)}, "places must be int64"),
        ({"places": torch.full((3, 1), 7)}, "places must be keys from 0 to 6, or -1 for none; got 7 to 7"),
        ({"places": torch.full((3, 1), -2)}, "places must be keys from 0 to 6"),
        ({"positions": torch.zeros(7).long()}, r"positions must be int64 of shape \(queries,\)"),
        ({"positions": torch.zeros(3)}, "positions must be int64"),
        ({"groups": [Groups(torch.zeros(3).long())]}, "the same positions, of which there are 3 and 7"),
        ({"top_k": 8}, "top_k must be from 0 to 7, the number of keys; got 8"),
        ({"top_k": -1}, "top_k must be"),
    ],
)
def test_wrong_arguments(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        row_statistics(SMALL, **asked)


def test_wrong_groups() -> None:
    right = torch.zeros(3).long()
    for groups in ((right.float(),), (right[None],), (right, torch.zeros(4).long()), (right, right.float())):
        with pytest.raises(InputError, match=r"(group|unit) must be int64 of shape \(positions,\)"):
            Groups(*groups)
