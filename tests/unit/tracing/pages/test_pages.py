"""What a notebook is offered of a trace: measures in pieces, differences, and memory given back."""

import gc
import json
import weakref
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import comm
import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.tracing import Trace, difference, trace_text
from regard.tracing.pages import page_record, writing_bundle
from regard.tracing.pages._page_measures import live_measures, measures_of
from regard.views import AttentionRecord, MeasureRecord
from unit.tracing.conftest import TEXT, make_loaded
from unit.tracing.measured import NETWORKS, traced


def _finished(work: Generator[float, None, MeasureRecord]) -> tuple[list[float], MeasureRecord]:
    """The shares that were told, and what came; nobody's gradients are switched off between two pieces."""
    shares = []
    while True:
        try:
            shares.append(next(work))
        except StopIteration as end:
            return shares, end.value
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("name", ["encoder", "decoder", "both", "deberta-v2"])
def test_in_pieces_the_numbers_are_those_of_the_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.tracing.measures import _values

    monkeypatch.setattr(_values, "_FEW", 1)  # a key at a time
    trace = traced(NETWORKS[name]())
    live = live_measures(trace)
    wanted, left = measures_of(trace, ["value_zeroing", "rollout", "gradient"])
    assert set(live.left_out) == set(left)
    for kind in trace.kinds:
        assert list(live.names[kind]) == [each.name for each in wanted[kind]]
        keys = len(trace.sides(kind)[1].encoding.tokens)
        for record in wanted[kind]:
            for place, layer in enumerate(trace.layers_of(kind)):
                shares, found = _finished(live.work(kind, record.name, layer))
                [values] = found.layers
                # Smaller batches of the same rows: the processor adds in another order.
                np.testing.assert_allclose(values, record.layers[place], rtol=1e-6, atol=1e-12)
                assert found.of == record.of
                assert shares[0] == 0
                assert shares == sorted(shares)
                assert all(share <= 1 for share in shares)
                if record.name == "value_zeroing":
                    assert len(shares) == 1 + keys
                if record.name == "rollout":
                    assert len(shares) == 2 + layer


def test_what_cannot_be_had_is_known_from_the_start() -> None:
    trace = trace_text(make_loaded(), TEXT)
    live = live_measures(trace)
    assert live.names["encoder"] == ("norm", "value_zeroing", "rollout")
    assert "trace.widget(of=lambda" in live.left_out["gradient"]
    bare = live_measures(replace(trace, loaded=None))
    assert bare.names["encoder"] == ("rollout",)
    assert all("came without the model" in bare.left_out[name] for name in ("norm", "value_zeroing"))


def test_what_a_gradient_is_of_can_be_said() -> None:
    trace = trace_text(make_loaded(), TEXT)

    def of(output: Any) -> Any:
        return output.last_hidden_state[0, 0, 0]

    _, found = _finished(live_measures(trace, of).work("encoder", "gradient", 1))
    np.testing.assert_array_equal(found.layers[0], trace.attention_gradients(1, of=of))
    assert found.of == "of the number that was given"


def _answer(widget: Any, **asked: Any) -> Any:
    [said], buffers = widget.kernel.answers(asked.pop("run", 0), [{"kind": "encoder"} | asked])
    return said, [np.frombuffer(each, "<f4") for each in buffers]


def test_a_widget_of_two_traces_knows_how_they_differ() -> None:
    loaded = make_loaded()
    one, other = trace_text(loaded, TEXT), trace_text(loaded, "the money bank .")
    widget = one.widget(against=other)
    first, second = json.loads(widget.facts)["runs"]
    found = difference(one, other).kinds["encoder"]
    assert first["facts"]["compared"]["kinds"]["encoder"]["queries"] == [list(pair) for pair in found.queries]
    assert (
        first["facts"]["compared"]
        == json.loads(one.difference_page(other).widget().facts)["runs"][0]["facts"]["compared"]
    )
    assert [len(each["facts"]["sides"]["encoder"]["tokens"]) for each in (first, second)] == [9, 6]
    for run, trace in enumerate((one, other)):
        _, [row] = _answer(widget, run=run, what="row", layer=1, head=2, query=1)
        np.testing.assert_allclose(row, trace.weights(1, 2)[1], atol=1e-6)
    said, _ = _answer(widget, run=1, what="check", layer=0, head=0)
    assert len(said["check"]["tokens"]) == 6
    said, _ = _answer(widget, run=1, what="check", unseen=1)
    assert len(said["check"]["cosine"]) == 6
    said, _ = _answer(widget, run=1, what="check", layer=1, head=2, pairs=1)
    assert {"parts", "pairs", "feeds"} <= set(said["check"])
    with pytest.raises(InputError, match="against must be a trace"):
        one.widget(against="the money bank")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tokens in common"):
        one.widget(against=trace_text(loaded, "money"))


def test_a_head_is_left_out_in_one_pass_beside_another_with_it() -> None:
    loaded = make_loaded()
    trace = trace_text(loaded, TEXT)
    passes: list[None] = []
    loaded.network.encoder.register_forward_hook(lambda *_: passes.append(None))
    widget = trace.widget()
    # The words beside themselves, and other words in the place of one: what a head and a word leave is asked.
    assert len(passes) == 2
    [run] = json.loads(widget.facts)["runs"]
    assert run["facts"]["without"] == []
    passes.clear()
    said, _ = _answer(widget, what="check", layer=1, head=2)
    assert len(passes) == 2
    found = trace_text(loaded, TEXT).ablation(1, 2)
    assert said["check"]["moved"] == found.moved.tolist()
    assert (said["check"]["before"], said["check"]["after"]) == (None, None)
    assert "next" not in said["check"]


def test_no_measure_is_worked_out_before_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("nobody has asked")

    monkeypatch.setattr("regard.tracing.pages._page_measures._norms", refuse)
    widget = trace_text(make_loaded(), TEXT).widget()
    [run] = json.loads(widget.facts)["runs"]
    names = [each["name"] for each in run["facts"]["kinds"]["encoder"]["measures"]]
    assert names == ["norm", "value_zeroing", "rollout"]
    assert run["facts"]["leftOut"][0]["name"] == "gradient"


def test_what_a_notebook_shows_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Trace] = []

    def record(trace: Trace, *rest: Any, **options: Any) -> AttentionRecord:
        made.append(trace)
        return page_record(trace, *rest, **options)

    monkeypatch.setattr("regard.tracing.pages._pages.page_record", record)
    monkeypatch.setattr(comm, "create_comm", lambda *args, **options: comm.DummyComm(*args, **options))
    trace = trace_text(make_loaded(), TEXT)
    for shown in (trace._repr_mimebundle_(), writing_bundle(trace, {"first": 1}, "written")):
        data, _ = shown
        assert "application/vnd.jupyter.widget-view+json" in data
        assert "layer 0, head 0" in data["text/html"]
    assert made == [trace, trace]


def test_a_closed_widget_gives_the_trace_back() -> None:
    trace: Trace | None = trace_text(make_loaded(), TEXT)
    assert trace is not None
    gone = weakref.ref(trace)
    widget = trace.widget()
    _answer(widget, what="measure", of="value_zeroing", layer=0)  # begun, and never finished
    del trace
    gc.collect()
    assert gone() is not None
    widget.close()
    gc.collect()
    assert gone() is None
