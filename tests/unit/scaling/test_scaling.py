"""What is told of attention's cost: slopes, crossings, forecasts, closeness, and what is refused."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli._app import app
from regard.core import Causal
from regard.core.errors import InputError
from regard.scaling import CASES, Shape, case_named, closeness, names_of, scaling
from regard.scaling._memory import peaks
from regard.scaling._scaling import Scaling, between, costs_of, crossing, exponent
from tolerances import FP32_OF_LARGEST, assert_close_to_largest

LENGTHS = (64, 128, 256, 512)


def test_exponents_are_those_of_power_laws() -> None:
    for power in (1.0, 1.5, 2.0):
        values = [3e-5 * n**power for n in LENGTHS]
        assert exponent(LENGTHS, values) == pytest.approx((power, 0.0))
        assert between(LENGTHS, values, 181) == pytest.approx(3e-5 * 181**power)
    # A constant before the law does not count, nor what is below the least.
    assert exponent(LENGTHS, [7.0, 7.0, 14.0, 28.0]) == pytest.approx((1.0, 0.0))
    # One length in a slow spell of the machine shows.
    assert exponent(LENGTHS, [7.0, 7.0, 28.0, 28.0]) == pytest.approx((1.0, 1.0))
    assert exponent(LENGTHS, [7.0, 7.0, 14.0, 28.0], least=14.0) is None
    assert exponent([64, 128], [1.0, 2.0]) == pytest.approx((1.0, None))
    assert exponent([64], [1.0]) is None


def test_a_crossing_is_where_two_laws_meet() -> None:
    linear, square = [n * 100.0 for n in LENGTHS], [n * n * 1.0 for n in LENGTHS]
    assert crossing(LENGTHS, linear, square) == pytest.approx(100.0)
    assert crossing(LENGTHS, square, linear) is None
    assert crossing(LENGTHS, [n * 1.0 for n in LENGTHS], square) == 0
    # Faster in between only is not faster from there on.
    late = crossing(LENGTHS, [2.0, 1.0, 3.0, 1.0], [1.5, 1.5, 1.5, 1.5])
    assert late == pytest.approx(256 * 2**0.63, 0.01)


def example() -> Scaling:
    seconds = {"softmax": [n * n * 1e-8 for n in LENGTHS], "linear": [n * 1e-6 for n in LENGTHS]}
    peak = {"softmax": [n * 10**4 for n in LENGTHS], "linear": [n * 10**5 for n in LENGTHS]}
    costs = costs_of(LENGTHS, seconds, peak, {"softmax": 0.0, "linear": 0.74}, "softmax")
    return Scaling(lengths=LENGTHS, heads=3, head_dim=5, causal=False, threads=2, tokens=64, costs=costs)


def test_the_picture_has_both_panels_and_the_crossing() -> None:
    found = example()
    assert found.costs[1].crossing == pytest.approx(100)
    assert found.costs[0].crossing is None
    assert found.costs[1].memory_exponent == pytest.approx((1.0, 0.0))
    svg = found.picture().svg()
    assert "<title>crosses softmax: 100, 0.1</title>" in svg
    assert "MiB at the peak" in svg
    # On logarithmic axes equal factors are equal distances: the four lengths, and the ticks of both panels.
    marks = [
        float(part.split('x="')[1].split('"')[0])
        for part in svg.split("<rect")[1:]
        if "<title>linear: " in part
    ][:4]
    steps = [b - a for a, b in itertools.pairwise(marks)]
    assert max(steps) - min(steps) < 0.11
    assert json.loads(json.dumps(found.to_dict()))["costs"][1]["name"] == "linear"


def test_forecasts_are_above_what_is_measured() -> None:
    heads, size, length = 3, 16, 1024
    done: list[None] = []
    asked = [(name, length, heads, size, bool(case.causal)) for name, case in CASES.items()]
    found = peaks(asked, lambda: done.append(None))
    assert len(done) == len(CASES)
    matrix = 4 * heads * length**2
    for (name, case), peak in zip(CASES.items(), found, strict=True):
        assert peak is not None
        shape = Shape(length=length, heads=heads, head_dim=size, causal=bool(case.causal))
        assert peak <= shape.record_bytes + 4 * case.numbers(shape), name
        assert (peak > 2 * matrix) == (name == "matrix"), name


@pytest.mark.parametrize("name", CASES)
def test_causal_cases_do_not_look_ahead(name: str) -> None:
    case = case_named(name)
    if case.causal is False:
        with pytest.raises(InputError, match=rf"causal form, as softmax, matrix, .* have; got {name}"):
            case.check(causal=True)
        return
    if case.causal:
        with pytest.raises(InputError, match=rf"sees all keys, as softmax, .* have; got {name}"):
            case.check(causal=False)
    shape = Shape(length=150, heads=2, head_dim=8, causal=True)
    inputs = shape.record()
    assert inputs.mask == Causal()
    v = inputs.v.clone()
    v[:, :, 80:] += 9.0
    before, after = case.context(inputs), case.context(inputs.changed(v=v))
    assert_close_to_largest(after[:, :, :80], before[:, :, :80], FP32_OF_LARGEST)
    assert not torch.allclose(after[:, :, 80:], before[:, :, 80:])


@pytest.mark.parametrize("name", ["window", "expire-span"])
def test_keys_out_of_reach_are_not_read(name: str) -> None:
    inputs = Shape(length=700, heads=2, head_dim=5, causal=True).record()
    inputs.v[:, :, :7] = torch.nan  # a weight of zero would not hide it
    assert case_named(name).context(inputs)[:, :, 300:].isfinite().all()


def test_closeness_is_a_relative_error() -> None:
    for causal in (False, True):
        errors = closeness(names_of(causal=causal), tokens=64, causal=causal)
        # A window of 64 on both sides holds all of 64 tokens.
        assert max(errors["softmax"], errors["matrix"], errors["window"]) < 1e-5
        for name in ("performer", "linear", "expire-span" if causal else "linformer"):
            assert 0.05 < errors[name] < 6, name
    with pytest.raises(InputError, match="tokens must be from 2 to 512"):
        closeness(["softmax"], tokens=513)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"names": ["reformer"]},
            "attention must be one of softmax, matrix, perf.*; got 'reformer'. Did you mean 'performer'",
        ),
        ({"lengths": [1]}, "lengths must be whole numbers from 2 on"),
        ({"lengths": []}, "lengths must be whole numbers from 2 on"),
        ({"heads": 0}, "heads must be a whole number, at least 1"),
        ({"head_dim": 1}, "head_dim must be a whole number, at least 2"),
        ({"names": ["linformer"], "causal": True}, "attention must have a causal form"),
        (
            {"lengths": [512, 10**7]},
            r"softmax at 10,000,000 tokens needs .* are free; give lengths up to 512\.$",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scaling(**arguments)  # type: ignore[arg-type]


def test_the_command_tells_a_table_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        InputError, match=r"--attention must be one of .*; got 'liner'. Did you mean 'linear'"
    ):
        CliRunner().invoke(app, ["scaling", "-a", "liner"], catch_exceptions=False)
    asked: list[object] = []

    def measured(names: list[str] | None, lengths: tuple[int, ...], **others: object) -> Scaling:
        asked.extend((names, lengths, others["causal"]))
        return example()

    monkeypatch.setattr("regard.scaling.scaling", measured, raising=False)
    picture = tmp_path / "cost.svg"
    shown = CliRunner().invoke(app, ["scaling", "-a", "linear", "--lengths", "64, 1_28", "-o", str(picture)])
    assert shown.exit_code == 0, shown.output
    assert asked == [["linear"], [64, 128], False]
    rows = [line.split() for line in shown.stdout.splitlines()]
    power = ["1.0", "±0.0"]
    assert ["linear", "0.064", "0.128", "0.256", "0.512", *power, *power, "48.8", "100", "0.74"] in rows
    assert "<svg" in picture.read_text()
    told = CliRunner().invoke(app, ["scaling", "--causal", "--json"])
    assert json.loads(told.stdout)["costs"][0]["exponent"] == pytest.approx([2.0, 0.0])
    assert asked[3] is None
    for arguments, message in (
        (["--lengths", "64;128"], "whole numbers with commas"),
        (["-o", "a.gif"], "gif"),
    ):
        with pytest.raises(InputError, match=message):
            CliRunner().invoke(app, ["scaling", *arguments], catch_exceptions=False)
