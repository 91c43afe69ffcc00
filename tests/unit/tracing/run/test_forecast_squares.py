"""What grows with the square of the length: weights that edits write, masks of windows through the lens."""

from pathlib import Path
from typing import Any

import pytest
import transformers

import lens_models
import regard
from regard._lens import lens
from regard.checkpoints import Source
from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing import Keeping, forecast, kept_bytes, trace_ids
from regard.tracing.run import _forecast
from regard.tracing.run._probes import sample
from unit.models import folders


def _model(family: str, max_seq_len: int) -> regard.Model:
    network = folders.network(family, max_seq_len=max_seq_len)
    source = Source(name="tiny", folder=Path("tiny"), kind="folder")
    return regard.Model(Loaded(network=network, tokenizer=None, source=source, family=family, left_out=()))


@pytest.mark.parametrize("keep", ["all", "qk", "residual"])
@pytest.mark.parametrize("site", ["weights", "scores", "residual"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_a_trace_with_edits(family: str, site: Any, keep: Any) -> None:
    model = _model(family, 401)
    both = {} if family != "bart" else {"target_ids": [4] * 53}
    kind: Any = "decoder" if both else None
    edited = model.edited(regard.Scale(site, layer=1, factor=0.5, kind=kind))
    told = edited.forecast(101, keep=keep, target_tokens=53 if both else None)
    trace = edited.trace(token_ids=[3] * 101, keep=keep, **both)
    assert told.kept == kept_bytes(trace)


def test_by_hand() -> None:
    """Of two layers one has its weights written: heads x N x N of them, beside q and k."""
    model = _model("bert", 401)
    plain = model.forecast(307, keep="qk")
    size = model.network.config.num_heads * next(model.network.parameters()).element_size() * 307 * 307
    edited = model.edited(regard.Zero("weights", layer=1, query=300))  # in no short text
    told = edited.forecast(307, keep="qk")
    edited.trace(token_ids=[3] * 307, keep="qk")
    assert told.kept == plain.kept + size
    # Scores, weights, and what takes their place live at one time, and where they differ.
    assert told.allocated > told.kept + 2 * size


def test_a_trace_with_edits_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model("bert", 20_000)
    plain = model.forecast(15_000).total
    monkeypatch.setattr(_forecast, "free_bytes", lambda device: 2 * plain)
    _forecast.check_fits(model.loaded, Keeping(), 15_000)
    edited = model.edited(regard.Zero("weights", layer=0, key=-1))
    with pytest.raises(InputError, match=r"a trace of 15000 tokens of tiny \(edited\) needs .* GiB"):
        edited.trace(token_ids=[3] * 15_000)
    edited.trace(token_ids=[3] * 5)


def _windowed(kind: str, window: int) -> Loaded:
    sizes = lens_models.GROUPED | {"max_position_embeddings": 500, "sliding_window": window}
    if kind == "gemma2":  # windows in some layers
        fields = {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 11}
        config: Any = transformers.Gemma2Config(**sizes, **fields)
        return lens(lens_models.build(transformers.Gemma2Model, config))
    return lens(lens_models.build(transformers.MistralModel, transformers.MistralConfig(**sizes)))


@pytest.mark.parametrize("window", [5, 31, 150])
@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
def test_windows_through_the_lens(kind: str, window: int) -> None:
    """Within the window, and beyond it: a pass of the length itself, every allocation written down."""
    model = _windowed(kind, window)
    for tokens in (113, 331):
        told = forecast(model, tokens)
        whole = sample(model.network, (tokens,), Keeping())
        measured = max(outside + inside for outside, inside, *_ in whole.course)
        assert told.allocated == pytest.approx(measured, rel=0.02)
        assert told.kept == kept_bytes(trace_ids(model, [3] * tokens))


def test_a_window_is_counted_where_it_begins() -> None:
    model = _windowed("mistral", 150)
    before, after = (forecast(model, tokens).forward for tokens in (149, 150))
    assert after - before > 150 * 150  # a mask of one byte a pair, at least
    assert forecast(model, 149).forward == before
