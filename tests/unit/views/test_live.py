"""Measures that are worked out in pieces, and what the kernel answers of them."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import AttentionRecord, LiveMeasures, LiveRun, MeasureRecord, _live, weight_rows
from regard.views._kernel import Kernel
from tolerances import WEIGHTS
from unit.views.conftest import HEADS, LAYERS, TOKENS, MakeRecord

SHAPES = {"norm": (HEADS, TOKENS), "gradient": (HEADS, TOKENS, TOKENS), "rollout": (1, TOKENS, TOKENS)}


class _Worker:
    """Random numbers in three pieces; counts them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.values = {
            (name, layer): rng.standard_normal(shape, dtype=np.float32)
            for name, shape in SHAPES.items()
            for layer in range(LAYERS)
        }
        self.pieces: list[tuple[str, int]] = []

    def work(self, kind: Any, name: Any, layer: int) -> Generator[float, None, MeasureRecord]:
        for step in range(3):
            self.pieces.append((name, layer))
            yield step / 3
        if (name, layer) == ("rollout", 1):
            raise InputError("rollout cannot be had here")
        yield 1.0
        return MeasureRecord(name=name, layers=(self.values[name, layer],), of="the number")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> _Worker:
    monkeypatch.setattr(_live, "_SLICE", 0.0)
    return _Worker()


def _kernel(record: AttentionRecord, worker: _Worker) -> Kernel:
    live = LiveMeasures(names={"encoder": tuple(SHAPES)}, work=worker.work)  # type: ignore[arg-type]
    return Kernel([LiveRun(record=record, measures=live)])


def _said(kernel: Kernel, what: str = "measure", **asked: Any) -> Any:
    [said], buffers = kernel.answers(0, [{"kind": "encoder", "what": what, **asked}])
    return (said, np.frombuffer(buffers[0], "<f4")) if buffers else said


def _finish(kernel: Kernel, of: str, layer: int) -> Any:
    for _ in range(9):
        said = _said(kernel, of=of, layer=layer)
        if said.get("done") == 1:
            return said
    raise AssertionError(said)


def test_each_question_works_for_a_while(make_record: MakeRecord, worker: _Worker) -> None:
    kernel = _kernel(make_record(), worker)
    shares = [_said(kernel, of="gradient", layer=0)["done"] for _ in range(2)]
    assert shares == [0, pytest.approx(1 / 3)]
    assert _said(kernel, of="gradient", layer=1)["done"] == 0  # another; the first stays as it is
    shares = [_said(kernel, of="gradient", layer=0)["done"] for _ in range(2)]
    assert shares == [pytest.approx(2 / 3), pytest.approx(0.999)]  # not done before the numbers are there
    said = _said(kernel, of="gradient", layer=0)
    np.testing.assert_allclose(said["most"], np.abs(worker.values["gradient", 0]).max(axis=(1, 2)), rtol=1e-5)
    assert (said["done"], said["of"]) == (1, "the number")
    assert _said(kernel, of="gradient", layer=0)["done"] == 1
    assert worker.pieces.count(("gradient", 0)) == 3


@pytest.mark.parametrize("name", list(SHAPES))
def test_rows_columns_thumbnails_and_the_strongest(
    make_record: MakeRecord, worker: _Worker, name: str
) -> None:
    record = make_record()
    kernel = _kernel(record, worker)
    layer, head, values = 0, 2, worker.values[name, 0]
    of_layer = record.layers["encoder"][layer]
    wanted = values[head] if name == "gradient" else values[0]
    if name == "norm":
        wanted = weight_rows(of_layer, head, np.arange(TOKENS)) * values[head]
    said = _finish(kernel, name, layer)
    assert len(said["most"]) == (1 if name == "rollout" else HEADS)
    asked = {"of": name, "layer": layer, "head": head}
    for place in range(TOKENS):
        _, row = _said(kernel, "row", query=place, **asked)
        _, column = _said(kernel, "column", key=place, **asked)
        np.testing.assert_allclose(row, wanted[place], atol=WEIGHTS)
        np.testing.assert_allclose(column, wanted[:, place], atol=WEIGHTS)
    _, sink = _said(kernel, "column", key=TOKENS, **asked)
    assert sink.tolist() == [0.0] * TOKENS
    bins = {"queries": [[0, 6]], "keys": [[0, 6]], "width": 2, "height": 7}
    _, levels = _said(kernel, "picture", **asked, **bins)
    parts = wanted[:, :4], wanted[:, 4:]
    largest = [[part[i][np.abs(part[i]).argmax()] for part in parts] for i in range(TOKENS)]
    np.testing.assert_allclose(levels.reshape(7, 2), largest, atol=WEIGHTS)
    units = [[place, place] for place in range(TOKENS)]
    found = _said(kernel, "strongest", of=name, heads=[[layer, head]], queries=units, keys=units, count=3)
    order = np.argsort(-np.abs(wanted), axis=None)[:3]
    places = [divmod(int(place), TOKENS) for place in order]
    assert [(each["query"], each["key"]) for each in found["strongest"]] == places
    np.testing.assert_allclose(
        [each["weight"] for each in found["strongest"]], [wanted[place] for place in places], atol=WEIGHTS
    )


def test_what_is_not_worked_out_is_no_number(make_record: MakeRecord, worker: _Worker) -> None:
    kernel = _kernel(make_record(), worker)
    asked = {"of": "gradient", "layer": 0, "head": 0, "query": 0}
    assert _said(kernel, "row", **asked) == {"gone": True, "buffers": 0}
    _said(kernel, of="gradient", layer=0)
    assert _said(kernel, "row", **asked) == {"gone": True, "buffers": 0}


def test_what_fails_says_why_and_may_be_asked_again(make_record: MakeRecord, worker: _Worker) -> None:
    kernel = _kernel(make_record(), worker)
    said = [_said(kernel, of="rollout", layer=1) for _ in range(4)]
    assert said[3] == {"error": "rollout cannot be had here", "buffers": 0}
    assert _said(kernel, of="rollout", layer=1)["done"] == 0


def test_of_many_the_oldest_is_let_go(
    make_record: MakeRecord, worker: _Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_live, "_MOST_KEPT", 4 * HEADS * TOKENS * TOKENS)
    kernel = _kernel(make_record(), worker)
    for layer in range(LAYERS):
        _finish(kernel, "gradient", layer)
    asked = {"of": "gradient", "head": 0, "query": 0}
    assert _said(kernel, "row", layer=0, **asked) == {"gone": True, "buffers": 0}
    assert _said(kernel, "row", layer=1, **asked)[1].shape == (TOKENS,)


def test_a_record_has_its_measures_at_once(make_record: MakeRecord, worker: _Worker) -> None:
    values = tuple(worker.values["rollout", layer] for layer in range(LAYERS))
    record = make_record()
    measure = MeasureRecord(name="rollout", layers=values)
    record = AttentionRecord(
        model="m", encoder=record.encoder, layers=record.layers, measures={"encoder": (measure,)}
    )
    run = LiveRun(record=record)
    assert run.offered("encoder") == [{"name": "rollout", "of": ""}]
    kernel = Kernel([run])
    assert _said(kernel, of="rollout", layer=1)["done"] == 1
    _, row = _said(kernel, "row", of="rollout", layer=1, head=2, query=4)
    np.testing.assert_array_equal(row, values[1][0, 4])
