"""What a trace will take, told beforehand: against traces themselves."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import regard
from regard.core import memory
from regard.core.errors import InputError
from regard.core.memory import human_bytes
from regard.models import Loaded
from regard.models.families.gpt2 import Gpt2Config, build
from regard.tracing import KeepPolicy, forecast, kept_bytes, trace_ids
from regard.tracing.run import _forecast
from unit.models import folders, tiny

MIB = 2**20


def loaded(network: Any) -> Loaded:
    return tiny.loaded(network.float())


def gpt2(**fields: Any) -> Loaded:
    sizes: dict[str, Any] = {
        "vocab_size": 97, "d_model": 60, "num_layers": 3, "num_heads": 5, "d_ff": 220, "max_seq_len": 70_000
    }  # fmt: skip
    return loaded(build(Gpt2Config(**(sizes | fields))).eval())


def own(family: str) -> Loaded:
    fields = {} if family in ("bahdanau", "t5") else {"max_seq_len": 113}  # these have no table of positions
    return loaded(folders.network(family, **fields))


KEEPINGS = (
    KeepPolicy(),
    KeepPolicy(keep="qkv", layers=[-1]),
    KeepPolicy(keep="qk", layers=[1], dtype=torch.bfloat16),
    KeepPolicy(keep="residual", dtype=torch.float64),
)


@pytest.mark.parametrize("family", folders.TRACED)
def test_what_is_kept_is_told_to_the_byte(family: str) -> None:
    """The parity tests of the lens say the same of models of transformers."""
    model = own(family)
    both = len(model.network.prefixes) == 2
    for number, keeping in enumerate(KEEPINGS):
        if family == "bahdanau" and list(keeping.layers or ()) == [1]:
            keeping = replace(keeping, layers=[0])  # it has one layer
        lengths = ((101, 7), (5, 67)) if both else ((101, None), (5, None))
        for tokens, target in lengths if number == 0 else lengths[number % 2 :][:1]:
            trace = trace_ids(model, [3] * tokens, target and [3] * target, keeping=keeping)
            told = forecast(model, tokens, target, keeping)
            assert told.kept == kept_bytes(trace)
            assert told.kept + 16 * MIB < told.peak < told.kept + 32 * MIB


@pytest.mark.parametrize("keep", ["all", "qk", "residual"])
@pytest.mark.parametrize("site", ["weights", "scores", "residual"])
@pytest.mark.parametrize("family", ["bert", "bart"])
def test_a_trace_with_edits(family: str, site: Any, keep: Any) -> None:
    model = regard.Model(own(family))
    target = 53 if family == "bart" else None
    kind: Any = "decoder" if target else None
    for head in (None, 1) if site != "residual" else (None,):
        edited = model.edited(regard.Scale(site, layer=1, head=head, factor=0.5, kind=kind))
        told = edited.forecast(101, keep=keep, target_tokens=target)
        trace = edited.trace(token_ids=[3] * 101, target_ids=target and [4] * target, keep=keep)
        assert told.kept == kept_bytes(trace)


def test_by_hand() -> None:
    """Of GPT-2: learned, position, each layer's input, q, k, v, context and output, and the last norm."""
    told = forecast(gpt2(), 5000)
    assert told.kept == 4 * 5000 * 60 * (2 + 6 * 3 + 1)
    assert told.peak == told.kept + 16 * MIB + 3 * 4 * 5000 * (60 + 220)
    assert forecast(gpt2(), 5000, keeping=KeepPolicy(keep="qk")).kept == 4 * 5000 * 60 * 2 * 3
    assert forecast(gpt2(), 5000, keeping=KeepPolicy(keep="residual")).kept == 4 * 5000 * 60 * (2 + 3 + 1)


def test_through_the_model() -> None:
    model = regard.Model(gpt2())
    assert model.forecast(4096, keep="qk", layers=[0]).kept == 4 * 4096 * 60 * 2
    assert model.forecast(4096, keep="qk", layers=[0], dtype=torch.bfloat16).kept == 2 * 4096 * 60 * 2
    both = regard.Model(loaded(tiny.both()))
    assert both.forecast(9, target_tokens=11).kept > both.forecast(9).kept
    assert both.describe(7)["trace_bytes"] == both.forecast(7, target_tokens=7).kept


@pytest.mark.parametrize("count", [0, -1, 12, 2.0, True])
def test_no_such_length(count: Any) -> None:
    with pytest.raises(InputError, match="num_tokens must be from 1 to 11, the model's limit; got"):
        forecast(loaded(tiny.encoder()), count)


def test_no_such_target_or_layer() -> None:
    with pytest.raises(InputError, match="target_tokens must be None"):
        forecast(loaded(tiny.encoder()), 3, 3)
    with pytest.raises(InputError, match="target_tokens must be from 1 to 11"):
        forecast(loaded(tiny.both()), 3, 12)
    with pytest.raises(InputError, match="layers must be from 0 to 1"):
        forecast(loaded(tiny.encoder()), 3, keeping=KeepPolicy(layers=5))


def test_a_trace_that_does_not_fit_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt2()
    needed = forecast(model, 30_000)
    less = forecast(model, 30_000, keeping=KeepPolicy(keep="qk"))
    assert less.peak < needed.peak / 1.5
    monkeypatch.setattr(memory, "free_bytes", lambda device: needed.peak - 1)
    run = model.network.forward

    def short_only(token_ids: torch.Tensor, **arguments: Any) -> Any:
        assert token_ids.shape[1] <= 3, "it ran"
        return run(token_ids, **arguments)

    monkeypatch.setattr(model.network, "forward", short_only)
    with pytest.raises(InputError) as refused:
        trace_ids(model, [3] * 30_000)
    both = f"needs {human_bytes(needed.peak)} of memory, and {human_bytes(needed.peak - 1)} are free"
    assert f"a trace of 30000 tokens of tiny {both}" in str(refused.value)
    monkeypatch.setattr(memory, "free_bytes", lambda device: less.peak)
    _forecast.check_fits(model, KeepPolicy(keep="qk"), 30_000)
    with pytest.raises(InputError, match="; ask for less by keep="):
        _forecast.check_fits(model, KeepPolicy(), 30_000)


def test_edits_that_leave_n_x_n_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regard.Model(loaded(folders.network("bert", max_seq_len=20_000)))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2 * model.forecast(15_000).peak)
    _forecast.check_fits(model.loaded, KeepPolicy(), 15_000)
    edited = model.edited(regard.Zero("weights", layer=0, key=-1))
    with pytest.raises(InputError, match=r"a trace of 15000 tokens of tiny \(edited\) needs .* GiB"):
        edited.trace(token_ids=[3] * 15_000)
    edited.trace(token_ids=[3] * 5)


def test_where_nobody_says_how_much_there_is_all_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    trace_ids(gpt2(), [3] * 5000)


@pytest.mark.parametrize("family", folders.TRACED)
def test_the_rough_bound_is_above_every_trace(family: str) -> None:
    """Beyond it nothing is forecast, and nobody asks how much is free."""
    model, both = own(family), [101] * 2
    lengths = tuple(both[: len(model.network.prefixes)])
    told = forecast(model, *lengths, keeping=KeepPolicy(dtype=torch.float64))
    assert told.peak - 16 * MIB < _forecast._more_than(model.network, lengths)
