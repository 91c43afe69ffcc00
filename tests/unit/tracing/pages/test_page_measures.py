"""The measures of a page: every family's numbers are the trace's, and what cannot be had is named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.tracing import Trace, page_record, rerun, trace_text
from regard.tracing.pages._page_measures import measures_of
from regard.views import MeasureRecord, matrix_bytes
from tolerances import WEIGHTS, assert_close_to_largest
from unit.tracing.conftest import LAYERS, TEXT, make_loaded
from unit.tracing.measured import NETWORKS, traced


def _by_name(records: tuple[MeasureRecord, ...]) -> dict[str, MeasureRecord]:
    return {record.name: record for record in records}


@pytest.mark.parametrize("name", ["decoder", "both", "bart", "gemma2"])
def test_every_kind_has_the_numbers_of_the_trace(name: str) -> None:
    trace = traced(NETWORKS[name]())
    found, left = measures_of(trace, ["gradient", "rollout", "value_zeroing"])
    assert left == {}
    logits = torch.stack(_logits(trace))
    best = int(logits[-1].argmax())

    def of(output: Any) -> Any:
        return output.logits[0, -1, best]

    for kind in trace.kinds:
        records = _by_name(found[kind])
        wanted = {"norm", "value_zeroing", "gradient"} | (set() if kind == "cross" else {"rollout"})
        assert set(records) == wanted
        for place, layer in enumerate(trace.layers_of(kind)):
            keys = len(trace.sides(kind)[1].encoding.tokens)
            weights = trace.weights(layer, kind=kind)[..., :keys].numpy()
            norms = records["norm"].layers[place]
            assert_close_to_largest(
                weights * norms[:, None], trace.norm_weighted(layer, kind=kind).numpy(), WEIGHTS
            )
            assert np.array_equal(
                records["value_zeroing"].layers[place][0], trace.value_zeroing(layer, kind=kind)
            )
            gradients = trace.attention_gradients(layer, kind=kind, of=of)[..., :keys].numpy()
            assert np.array_equal(records["gradient"].layers[place], gradients)
            if "rollout" in wanted:
                assert np.array_equal(
                    records["rollout"].layers[place][0], trace.rollout(kind=kind, layer=layer)
                )
        assert f"of the logit of '{best}'" in records["gradient"].of


def _logits(trace: Trace) -> list[torch.Tensor]:
    with torch.no_grad():
        logits = rerun(trace, trace.require_model().network, logits=True).logits
    assert logits is not None
    return list(logits[0])


def test_what_cannot_be_had_is_named_and_the_rest_is_there() -> None:
    trace = trace_text(make_loaded(), TEXT)
    found, left = measures_of(trace, ["value_zeroing", "gradient", "rollout"])
    assert list(_by_name(found["encoder"])) == ["norm", "value_zeroing", "rollout"]
    assert list(left) == ["gradient"]
    assert "predicts no next token" in left["gradient"]
    found, left = measures_of(replace(trace, loaded=None), ["value_zeroing", "rollout", "gradient"])
    assert list(_by_name(found["encoder"])) == ["rollout"]
    assert all("came without the model" in left[name] for name in ("norm", "value_zeroing", "gradient"))


def test_nothing_is_worked_out_that_nobody_asks_for() -> None:
    found, left = measures_of(trace_text(make_loaded(), TEXT))
    assert list(_by_name(found["encoder"])) == ["norm"]
    assert left == {}


def test_what_does_not_fit_is_left_out_before_it_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_text(make_loaded(), TEXT)
    monkeypatch.setattr("regard.tracing.pages._page_measures.MOST_MEASURES", matrix_bytes(LAYERS, 9, 9) + 60)
    monkeypatch.setattr(Trace, "rollout", None)
    found, left = measures_of(trace, ["rollout", "value_zeroing"])
    assert list(_by_name(found["encoder"])) == ["norm", "value_zeroing"]
    assert list(left) == ["rollout"]
    assert "MB of the page" in left["rollout"]


def test_bad_asking_is_refused() -> None:
    trace = trace_text(make_loaded(), TEXT)
    for bad in (["weights"], ["rollout", "x"], "rollout"):
        with pytest.raises(InputError, match="measures must be a list of norm, value_zeroing"):
            trace.page(measures=bad)
    with pytest.raises(InputError, match='of goes with measures=\\["gradient"\\]'):
        trace.page(of=lambda output: output.last_hidden_state.sum())
    with pytest.raises(InputError, match="must be a list of"):
        page_record(trace, ["nothing"])
