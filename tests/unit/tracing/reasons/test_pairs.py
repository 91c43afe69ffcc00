"""What a page has of one head, pair by pair, against `trace.why`."""

from typing import Any

import pytest

from regard.core.errors import InputError
from regard.tracing import trace_text
from regard.tracing.pages import page_record
from regard.tracing.reasons import pairs_of_head
from regard.views import AttentionRecord
from unit.tracing.conftest import make_loaded
from unit.tracing.measured import of_family, traced


@pytest.mark.parametrize(("name", "kind"), [("bert", "encoder"), ("gemma2", "decoder"), ("t5", "cross")])
def test_each_pair_is_that_of_why(name: str, kind: Any) -> None:
    trace = traced(of_family(name))
    found = pairs_of_head(trace, 1, 2, kind)
    weights = trace.weights(1, 2, kind=kind)
    assert [(query, key) for query, key, *_ in found["pairs"]] == [
        (query, key) for query, key in (weights >= 0.05).nonzero().tolist()
    ]
    for query, key, total, told, same_way in found["pairs"]:
        why = trace.why(1, 2, query, key, kind=kind)
        assert total == pytest.approx(why.value, abs=0.0051)
        sign = 1 if why.value >= 0 else -1
        values = {str(part.writer): part.value for part in why.key_parts} | {"their distance": why.bias}
        best = sorted(values.values(), key=lambda value: -sign * value)[:3]
        assert same_way == pytest.approx(sum(each for each in values.values() if sign * each > 0), abs=0.0051)
        assert [value for _, _, value in told] == pytest.approx(best, abs=0.0051)
        for place, source, value in told:
            assert value == pytest.approx(values[found["parts"][place]], abs=0.0051)
            parts = {str(part.writer): part for part in why.key_parts}
            # The token that trace.why names; their distance is no part of its own.
            assert source == getattr(parts.get(found["parts"][place]), "source", None)


def test_the_page_has_it_of_the_head_that_it_opens_on() -> None:
    trace = trace_text(make_loaded(), "the fishing bank by the river")
    record: AttentionRecord = page_record(trace, story=True)
    assert record.why is not None
    head = {name: record.why[name] for name in ("kind", "layer", "head")}
    assert head == {name: record.without[0][name] for name in head}
    assert record.why["pairs"] == pairs_of_head(trace, head["layer"], head["head"], "encoder")["pairs"]
    assert page_record(trace, story=True, check=False).why is None


def test_a_model_whose_scores_are_no_sums_has_a_page_without_it() -> None:
    assert page_record(traced(of_family("deberta-v2")), story=True).why is None


def test_a_long_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.tracing.reasons._pairs._LONGEST", 6)
    with pytest.raises(InputError, match=r"of at most 6 tokens; ask trace\.why of one pair"):
        pairs_of_head(traced(of_family("bert")), 1, 2, "encoder")
