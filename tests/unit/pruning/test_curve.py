"""In which order heads go, and the curve of what is left."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.core.errors import InputError, OutputError
from regard.models import Loaded, attentions, load_checkpoint
from regard.pruning import CurvePoint, PruningCurve, prune, pruning_curve, removal_order, weakest_heads
from unit.models.folders import network, write


def test_one_by_one_is_the_order_of_the_whole_network() -> None:
    importance = torch.tensor([[0.5, 0.1, 0.4], [0.3, 0.2, 0.0]])
    order = removal_order(network("bert"), importance)
    # 0.0, 0.1, 0.2, then 0.3 is the last of layer 1 and stays; 0.4, and 0.5 stays.
    assert order == [
        (("encoder", 1, (2,)),),
        (("encoder", 0, (1,)),),
        (("encoder", 1, (1,)),),
        (("encoder", 0, (2,)),),
    ]


def test_groups_go_whole() -> None:
    # Sums of the three groups of two: 5, 3, 4 and 1, 9, 2.
    importance = torch.tensor([[5.0, 0.0, 1.0, 2.0, 0.0, 4.0], [0.5, 0.5, 9.0, 0.0, 1.0, 1.0]])
    llama = network("llama")
    assert removal_order(llama, importance, evenly=False) == [
        (("decoder", 1, (0, 1)),),
        (("decoder", 1, (4, 5)),),
        (("decoder", 0, (2, 3)),),
        (("decoder", 0, (4, 5)),),
    ]
    assert removal_order(llama, importance) == [
        (("decoder", 0, (2, 3)), ("decoder", 1, (0, 1))),
        (("decoder", 0, (4, 5)), ("decoder", 1, (4, 5))),
    ]


def test_layers_with_a_table_lose_the_same_heads() -> None:
    importance = {
        "encoder": torch.tensor([[1.0, 2.0, 9.0], [9.0, 1.0, 5.0]]),  # sums 10, 3, 14
        "decoder": torch.tensor([[1.0, 2.0, 3.0]] * 2 + [[9.0, 0.0, 0.0]]),  # sums 11, 4, 6
        "cross": torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [3.0, 2.0, 1.0]]),
    }
    order = removal_order(network("t5"), importance)  # type: ignore[arg-type]
    assert len(order) == 2
    assert order[0] == (
        *(("encoder", layer, (1,)) for layer in range(2)),
        *(("decoder", layer, (1,)) for layer in range(3)),
        *(("cross", layer, (layer,)) for layer in range(3)),
    )


def test_all_kinds_of_attention_compete() -> None:
    t5 = network("t5")
    importance = {
        part: torch.arange(3.0 * len(layers)).view(-1, 3) + 100 * place
        for place, (part, layers) in enumerate(attentions(t5).items())
    }
    order = removal_order(t5, importance, evenly=False)
    assert len(order) == 2 * (2 + 3 + 3)
    assert [step[0][0] for step in order] == ["encoder"] * 4 + ["decoder"] * 6 + ["cross"] * 6


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_weakest_are_the_first_of_the_order(number: int) -> None:
    importance = torch.tensor([[0.5, 0.1, 0.4], [0.3, 0.2, 0.0]])
    bert = network("bert")
    wanted = [(1, 2), (0, 1), (1, 1), (0, 2)][:number]
    found = weakest_heads(bert, importance, number)
    assert {(layer, head) for layer, heads in found["encoder"].items() for head in heads} == set(wanted)


def test_whole_steps_only(tmp_path: Path) -> None:
    full = load_checkpoint(write(tmp_path, "llama"))
    importance = torch.rand(2, 6)
    for number in (4, 5, 6, 7):
        found = weakest_heads(full.network, importance, number)
        assert sum(len(heads) for heads in found["decoder"].values()) == 4
        prune(full, found)
    with pytest.raises(InputError, match="number must be at least 4, the heads that go at once; got 3"):
        weakest_heads(full.network, importance, 3)


@pytest.mark.parametrize(
    ("family", "importance", "message"),
    [
        (
            "bert",
            torch.rand(3, 2),
            r"floating point \(layers, heads\) = \(2, 3\); got torch.float32 \(3, 2\)",
        ),
        ("bert", torch.ones(2, 3, dtype=torch.int64), r"floating point .* got torch.int64 \(2, 3\)"),
        ("bert", torch.full((2, 3), torch.nan), "importance must be finite"),
        ("bert", [[1.0]], "a tensor for each of encoder; got list"),
        ("bert", {"cross": torch.rand(2, 3)}, "a tensor for each of encoder"),
        ("bert", {"encoder": [[1.0]]}, r"floating point .* got list"),
        ("t5", torch.rand(2, 3), "must map each of encoder, decoder, cross to a tensor; got one tensor"),
    ],
)
def test_importances_that_do_not_fit(family: str, importance: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        removal_order(network(family), importance)


def test_a_network_that_lost_heads_already(tmp_path: Path) -> None:
    """Layers have unlike numbers, and a row of importances is as long as the largest, NaN after its end."""
    smaller = prune(load_checkpoint(write(tmp_path, "bert")), {0: [1]})
    importance = torch.tensor([[0.1, 0.2, torch.nan], [0.5, 0.4, 0.3]])
    assert [step[0][1:] for step in removal_order(smaller.network, importance)] == [
        (0, (0,)),
        (1, (2,)),
        (1, (1,)),
    ]
    with pytest.raises(InputError, match=r"evenly must be False: .* unlike numbers of heads, 2, 3"):
        removal_order(smaller.network, importance, evenly=True)


# --- the curve


def num_heads(loaded: Loaded) -> float:
    return sum(each.num_heads for layers in attentions(loaded.network).values() for each in layers)


def test_the_curve(tmp_path: Path) -> None:
    full = load_checkpoint(write(tmp_path, "bert"))
    importance = torch.tensor([[0.5, 0.1, 0.4], [0.3, 0.2, 0.0]])
    told: list[tuple[int, int]] = []
    curve = pruning_curve(full, importance, num_heads, progress=lambda *args: told.append(args))
    assert [point.heads_removed for point in curve.points] == [0, 1, 2, 3, 4]
    assert [point.metric for point in curve.points] == [6, 5, 4, 3, 2]
    assert told == [(done, 5) for done in range(1, 6)]
    assert curve.points[3].removed == {"encoder": {0: (1,), 1: (1, 2)}}
    whole = sum(parameter.numel() for parameter in full.network.parameters())
    # A head is 4 matrices of 5 x 15 numbers and 3 biases of 5.
    assert [point.parameters for point in curve.points] == [whole - 315 * n for n in range(5)]
    assert all(point.bytes == 4 * point.parameters for point in curve.points)
    assert [point.loads_in[0] for point in curve.points] == [
        "everything that takes sizes from config.json",
        *["regard"] * 4,
    ]


def test_every_few_steps_and_the_last(tmp_path: Path) -> None:
    full = load_checkpoint(write(tmp_path, "bert"))
    curve = pruning_curve(full, torch.rand(2, 3), num_heads, every=3)
    assert [point.heads_removed for point in curve.points] == [0, 3, 4]


def test_evenly_stays_in_the_fields(tmp_path: Path) -> None:
    full = load_checkpoint(write(tmp_path, "qwen3"))
    curve = pruning_curve(full, torch.rand(2, 6), num_heads)
    assert [point.heads_removed for point in curve.points] == [0, 4, 8]
    assert {point.loads_in for point in curve.points} == {("everything that takes sizes from config.json",)}


EVEN = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *(
            (lambda full, n=n: weakest_heads(full.network, EVEN, n), "from 1 to 4, which leaves each layer a")
            for n in (0, 5, True, 1.0)
        ),
        *(
            (lambda full, x=x: pruning_curve(full, EVEN, lambda _: x), r"metric must return a (finite )?num")
            for x in ("much", None, float("nan"), torch.tensor(torch.inf))
        ),
        (lambda full: pruning_curve(full, EVEN, num_heads, every=0), "every must be a whole number, at"),
    ],
)
def test_what_is_refused(tmp_path: Path, ask: Callable[[Loaded], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(load_checkpoint(write(tmp_path, "bert")))


def a_point(**fields: Any) -> CurvePoint:
    made = {
        "heads_removed": 3,
        "parameters": 11,
        "bytes": 44,
        "metric": 1 / 3,
        "loads_in": ("regard", "transformers 4"),
        "removed": {"encoder": {0: (1, 2)}, "cross": {1: (0,)}},
    }
    return CurvePoint(**made | fields)


def test_written_as_json_and_csv(tmp_path: Path) -> None:
    curve = PruningCurve((a_point(heads_removed=0, removed={}), a_point()))
    curve.write(tmp_path / "curve.json")
    rows = json.loads((tmp_path / "curve.json").read_text(encoding="utf-8"))
    assert rows == curve.to_rows()
    assert rows[1]["removed"] == {"encoder": {"0": [1, 2]}, "cross": {"1": [0]}}
    assert rows[1]["metric"] == 1 / 3
    curve.write(tmp_path / "curve.CSV")
    with (tmp_path / "curve.CSV").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert float(lines[1]["metric"]) == 1 / 3
    assert lines[0]["removed"] == ""
    assert lines[1]["removed"] == "encoder.0.1 encoder.0.2 cross.1.0"
    assert lines[1]["loads_in"] == "regard; transformers 4"
    assert [line.split()[:3] for line in str(curve).splitlines()[1:3]] == [
        ["0", "0.00", "M"],
        ["3", "0.00", "M"],
    ]
    PruningCurve((a_point(removed={"encoder": {0: (1, 2)}}),)).write(tmp_path / "one_kind.csv")
    with (tmp_path / "one_kind.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["removed"] == "0.1 0.2"
    with pytest.raises(InputError, match=r"output must end in .csv, .*; got .curve.txt"):
        curve.write(tmp_path / "curve.txt")
    with pytest.raises(OutputError):
        curve.write(tmp_path / "no" / "curve.json")


def test_on_a_model() -> None:
    """The least important heads by what is known of them: those whose output is made to be nothing."""
    model = regard.load()
    importance = torch.ones(6, 12)
    with torch.no_grad():
        for layer, head in ((2, 7), (4, 0)):
            attention = attentions(model.network)["encoder"][layer]
            attention.output.weight[:, head * 32 : (head + 1) * 32] = 0
            importance[layer, head] = 0
    text = "The river burst its banks."

    def embedding(one: regard.Model) -> Tensor:
        return one.trace(text).embedding("river")

    full = embedding(model)
    by_number = {n: model.prune(model.weakest_heads(importance, n)) for n in (2, 3)}
    moved = {number: (embedding(one) - full).abs().max() for number, one in by_number.items()}
    assert moved[2] < 1e-5 < 1e-4 < moved[3]  # the two go first, and nothing changes
    points = model.pruning_curve(importance, lambda one: len(one.trace("a river").token_ids), every=66).points
    assert [(point.heads_removed, point.metric) for point in points] == [(0, 4), (66, 4)]
    heads = model.weakest_heads(importance, 2)
    assert heads == {"encoder": {2: (7,), 4: (0,)}}
    assert "72" in repr(model.prune(heads))
