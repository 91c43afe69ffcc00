"""Traces through the lens: kept in part, forecast, saved and opened, beside one that keeps everything."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lens_models import FAMILIES, inputs
from regard.foreign import lens
from regard.tracing import KeepPolicy, Trace, forecast, kept_bytes, trace_ids

KEEPINGS = (
    KeepPolicy(),
    KeepPolicy(keep="qk"),
    KeepPolicy(keep="qkv", layers=[-1]),
    KeepPolicy(keep="residual", dtype=torch.bfloat16),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_kept_forecast_and_read_back(tmp_path: Path, name: str) -> None:
    hf_model = FAMILIES[name]()
    loaded = lens(hf_model, None)
    given: dict[str, Any] = inputs(hf_model, padding="none")
    ids, target = given["input_ids"][:1], given.get("decoder_input_ids")
    target = None if target is None else target[:1]
    whole = trace_ids(loaded, ids, target)
    for keeping in KEEPINGS:
        trace = trace_ids(loaded, ids, target, keeping=keeping)
        target_tokens = None if target is None else target.shape[1]
        assert forecast(loaded, ids.shape[1], target_tokens, keeping).kept == kept_bytes(trace)
        again = Trace.open(trace.save(tmp_path / "trace"), loaded)
        for kind in whole.kinds:
            assert again.layers_of(kind) == trace.layers_of(kind)
            for layer in trace.layers_of(kind):
                assert torch.equal(again.weights(layer, kind=kind), whole.weights(layer, kind=kind))
                if keeping.values:
                    assert torch.equal(again.context(layer, kind=kind), whole.context(layer, kind=kind))
            if kind != "cross" and keeping.hidden and whole.stack(kind).hidden:
                ours, theirs = again.embeddings(kind=kind), whole.embeddings(kind=kind)
                assert torch.equal(ours, theirs.to(keeping.dtype or theirs.dtype).float())


def test_no_logits_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    hf_model = FAMILIES["gpt2"]()
    loaded = lens(hf_model, None)
    made: list[torch.Size] = []
    hook = hf_model.lm_head.register_forward_hook(lambda *args: made.append(args[2].shape))
    trace_ids(loaded, [3, 1, 4, 1, 5])
    hook.remove()
    # transformers makes those of one position at the least.
    assert [shape[1] for shape in made] == [1]


def test_nothing_around_what_is_kept_stays() -> None:
    """ModernBERT makes q, k and v in one piece: values are a view of it, queries and keys rotated copies."""
    trace = trace_ids(lens(FAMILIES["modernbert"](), None), [3, 1, 4, 1, 5])
    v = trace.attention_of(0).inputs.v
    assert v.untyped_storage().nbytes() == v.numel() * v.element_size()
