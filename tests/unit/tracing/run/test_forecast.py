"""What a trace will take, told beforehand: against traces themselves."""

import gc
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints import Source
from regard.core.errors import InputError
from regard.models import Loaded
from regard.models.gpt2 import Gpt2Config, build
from regard.tracing import Forecast, Keeping, bytes_at, forecast, kept_bytes, trace_ids
from regard.tracing.record import _size
from regard.tracing.record._size import free_bytes
from regard.tracing.run import _forecast
from regard.tracing.run._probes import _Course, grid, sample
from unit.models import folders, tiny

MIB = 2**20


def loaded(network: Any) -> Loaded:
    source = Source(name="tiny", folder=Path("tiny"), kind="folder")
    return Loaded(network=network.float(), tokenizer=None, source=source, family="none", left_out=())


def gpt2(**fields: Any) -> Loaded:
    sizes: dict[str, Any] = {
        "vocab_size": 97, "d_model": 60, "num_layers": 3, "num_heads": 5, "d_ff": 220, "max_seq_len": 70_000
    }  # fmt: skip
    return loaded(build(Gpt2Config(**(sizes | fields))).eval())


LONGER = {
    family: {"max_seq_len": 113}
    for family, config in folders.CONFIGS.items()
    if hasattr(config, "max_seq_len") and family != "t5"  # a property there
}


@pytest.mark.parametrize("family", folders.CONFIGS)
def test_what_is_kept_is_told_to_the_byte(family: str) -> None:
    model = loaded(folders.network(family, **LONGER.get(family, {})))
    both = len(model.network.prefixes) == 2
    for keeping in (Keeping(), Keeping(keep="qk", layers=[1], dtype=torch.bfloat16)):
        for tokens, target in ((101, 7), (89, 67)) if both else ((5, None), (101, None)):
            trace = trace_ids(model, [3] * tokens, target and [3] * target, keeping=keeping)
            told = forecast(model, tokens, target, keeping)
            assert told.kept == kept_bytes(trace)
            assert told.kept <= told.allocated <= told.total


def test_by_hand() -> None:
    """Of GPT-2: learned, position, each layer's input, q, k, v, context and output, and the last norm."""
    told = forecast(gpt2(), 5000)
    assert told.kept == 4 * 5000 * 60 * (2 + 6 * 3 + 1)
    # At the widest place: x, its norm, q, k, v, context and output, and a number for each head and query.
    assert 6 * 4 * 5000 * 60 < told.forward < 9 * 4 * 5000 * 60
    assert forecast(gpt2(), 5000, keeping=Keeping(keep="qk")).kept == 4 * 5000 * 60 * 2 * 3
    assert forecast(gpt2(), 5000, keeping=Keeping(keep="residual")).kept == 4 * 5000 * 60 * (2 + 3 + 1)


@pytest.mark.parametrize("tokens", [1500, 5000])
@pytest.mark.parametrize("keep", ["all", "qk"])
def test_the_course_of_a_long_pass_is_that_of_short_ones(tokens: int, keep: Any) -> None:
    """A pass of the length itself, every allocation written down, beside what short ones tell of it."""
    model, keeping = gpt2(), Keeping(keep=keep)
    whole = sample(model.network, (tokens,), keeping)
    measured = max(outside + inside for outside, inside, *_ in whole.course)
    assert forecast(model, tokens, keeping=keeping).allocated == pytest.approx(measured, rel=0.02)


# How much more than there is the forecast may tell, where no layer is wide beside what grows with N x N: in
# T5 a bias of each layer at once.
_MORE = {"deberta-v2": 1.05, "bart": 1.4, "marian": 1.4, "mbart": 1.4, "t5": 1.9, "gemma2": 1.1}


@pytest.mark.parametrize("keep", ["all", "qkv", "qk", "residual"])
@pytest.mark.parametrize("tokens", [101, 331])
@pytest.mark.parametrize("family", folders.CONFIGS)
def test_what_is_allocated_is_what_torch_counts(family: str, tokens: int, keep: Any) -> None:
    """torch's profiler, which is told of every allocation, beside a forecast from shorter texts."""
    fields = {**LONGER.get(family, {}), "d_ff": 211}  # wide beside what a kernel uses inside
    if "max_seq_len" in fields:
        fields["max_seq_len"] = tokens + 2
    model, keeping = loaded(folders.network(family, **fields)), Keeping(keep=keep)
    target = tokens - 30 if len(model.network.prefixes) == 2 else None
    told = forecast(model, tokens, target, keeping).allocated
    ids = [3] * tokens, target and [3] * target
    with torch.profiler.profile(profile_memory=True) as profiler:
        trace_ids(model, *ids, keeping=keeping)
    events = [each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"]
    alive = itertools.accumulate(each.nbytes() for each in sorted(events, key=lambda each: each.start_ns()))
    most = max(alive)
    assert 0.94 * most < told < _MORE.get(family, 1.03) * most


@pytest.mark.parametrize(
    ("tokens", "keep", "share"),
    [(1500, "qk", 7 / 4), (5000, "qk", 1 / 4), (1500, "all", 7 / 4), (5000, "all", 1 / 4)],
)
def test_holes_are_a_share_of_what_is_freed(tokens: int, keep: Any, share: float) -> None:
    """A tensor of 5000 x 60 numbers is larger than a MiB, so that pages are given back."""
    told = forecast(gpt2(), tokens, keeping=Keeping(keep=keep))
    passing = told.allocated - told.kept
    kernels = min(passing, 3 * MIB * torch.get_num_threads()) if share < 1 else 0
    assert 0 < passing < 9 * MIB
    assert told.total == told.allocated + kernels + int(share * passing)


def test_holes_of_large_tensors_are_none() -> None:
    """They lie in memory of their own: what passes of a very long text adds no more than 16 MiB."""
    told = forecast(gpt2(d_model=180), 65_000)
    assert told.allocated - told.kept > 64 * MIB
    assert told.total == told.allocated + (16 + 3 * torch.get_num_threads()) * MIB


def test_a_polynomial_in_two_lengths_is_found() -> None:
    def f(n: int, m: int) -> int:
        return 7 + 3 * n + 5 * m + 2 * n * n + 11 * n * m + 13 * m * m

    for lengths in ((4096, 777), (100, 3), (3, 100), (5, 6)):
        found = sum(probe.weight * f(*probe.lengths) for probe in grid(lengths))
        assert found == f(*lengths)
        if min(lengths) > 48:
            square = sum(probe.square * f(*probe.lengths) for probe in grid(lengths))
            n, m = lengths
            assert square == 2 * n * n + 11 * n * m + 13 * m * m


def test_masks_and_biases_of_long_texts_are_bounded() -> None:
    """In a network of regard's own nothing is N x N, also where short texts have a matrix in one piece."""
    model = loaded(tiny.both())
    model.network.decoder.embeddings.positions = None  # type: ignore[union-attr]
    near, far = (forecast(model, n, 7) for n in (50_000, 100_000))
    assert far.forward < 2.1 * near.forward
    window = loaded(folders.network("mistral", max_seq_len=100_000))
    assert forecast(window, 100_000).total < 1.5 * forecast(window, 100_000).kept + 100 * MIB


def test_the_network_is_left_as_it_was() -> None:
    model = gpt2()
    before = {name: parameter.clone() for name, parameter in model.network.named_parameters()}
    forecast(model, 4000)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.network.named_parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.network.modules())
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_other_parameters_are_looked_at_anew() -> None:
    model = gpt2()
    whole = forecast(model, 4000).kept
    model.network.to(torch.bfloat16)
    assert forecast(model, 4000).kept * 2 == whole


def test_through_the_model() -> None:
    model = regard.Model(gpt2())
    assert model.forecast(4096, keep="qk", layers=[0]).kept == 4 * 4096 * 60 * 2
    assert model.forecast(4096, keep="qk", layers=[0], dtype=torch.bfloat16).kept == 2 * 4096 * 60 * 2
    both = regard.Model(loaded(tiny.both()))
    trace = both.trace(token_ids=[3] * 9, target_ids=[4] * 5, keep="qkv")
    assert both.forecast(9, target_tokens=5, keep="qkv").kept == kept_bytes(trace)
    assert both.forecast(9, target_tokens=11).kept > both.forecast(9).kept
    assert (
        both.describe(7)["trace_bytes"] == bytes_at(both.loaded, 7) == both.forecast(7, target_tokens=7).kept
    )


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
        forecast(loaded(tiny.encoder()), 3, keeping=Keeping(layers=5))


def test_for_people() -> None:
    told = Forecast(kept=3 * 2**30, forward=200 * MIB, allocated=3 * 2**30, total=3 * 2**30 + 100 * MIB)
    assert repr(told) == "Forecast(3.1 GiB: 3.0 GiB kept, 200.0 MiB for a pass that keeps nothing)"
    small = Forecast(kept=700, forward=2048, allocated=2300, total=2600)
    assert repr(small).startswith("Forecast(2.5 KiB: 700 bytes kept")


def test_a_trace_that_does_not_fit_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt2()
    needed = forecast(model, 30_000)
    less = forecast(model, 30_000, keeping=Keeping(keep="qk"))
    assert less.allocated < needed.allocated / 2
    monkeypatch.setattr(_forecast, "free_bytes", lambda device: needed.total - 1)
    run = model.network.forward

    def short_only(token_ids: torch.Tensor, **arguments: Any) -> Any:
        assert token_ids.shape[1] <= 48, "it ran"
        return run(token_ids, **arguments)

    monkeypatch.setattr(model.network, "forward", short_only)
    with pytest.raises(InputError) as refused:
        trace_ids(model, [3] * 30_000)
    message = str(refused.value)
    assert "a trace of 30000 tokens of tiny needs" in message
    for part in ("dtype=torch.bfloat16 (", 'keep="qkv" (', 'keep="qk" (', "layers=[-1] (", " tokens."):
        assert part in message
    # What it says would fit is let through.
    monkeypatch.undo()
    monkeypatch.setattr(_forecast, "free_bytes", lambda device: less.total)
    _forecast.check_fits(model, Keeping(keep="qk"), 30_000)
    with pytest.raises(InputError, match=r"What would fit: .*keep=\"qk\" \("):
        _forecast.check_fits(model, Keeping(), 30_000)
    monkeypatch.setattr(_forecast, "free_bytes", lambda device: less.total // 10)
    with pytest.raises(InputError, match='no smaller trace of this length; or with keep="qk" ') as refused:
        _forecast.check_fits(model, Keeping(keep="qk"), 30_000)
    tokens = int(str(refused.value).split()[-2])
    assert 0 < tokens < 30_000
    assert forecast(model, tokens, keeping=Keeping(keep="qk")).total <= less.total // 10


def test_where_nobody_says_how_much_there_is_all_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_forecast, "free_bytes", lambda device: None)
    trace_ids(gpt2(), [3] * 5)


@pytest.mark.parametrize(
    ("make", "tokens"),
    [(gpt2, 65_000), (lambda: loaded(folders.network("mistral", max_seq_len=200_000)), 150_000)],
)
def test_the_rough_bound_is_above_every_trace(make: Any, tokens: int) -> None:
    model = make()
    for keeping in (Keeping(), Keeping(dtype=torch.float64)):
        total = forecast(model, tokens, keeping=keeping).total
        assert total > 2 * (_forecast._SHARED + _forecast._OF_BLOCKS)  # else it would be the constant alone
        assert total < 2 * _forecast._roughly(model.network, (tokens,))


def test_memory_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:  700 kB\n")
    (tmp_path / "own").write_text("0::/job/step\n")
    step = tmp_path / "groups" / "job" / "step"
    step.mkdir(parents=True)
    monkeypatch.setattr(_size, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(_size, "_OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(_size, "_GROUPS", tmp_path / "groups")
    cpu = torch.device("cpu")
    assert free_bytes(cpu) == 700 * 1024
    for folder, limit, used, unused in ((step, "max", 5, 0), (step.parent, "50000", 40_000, 3000)):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text(str(used))
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {unused}\n")
    assert free_bytes(cpu) == 13_000
    # Version 1 of the groups, and a path that is the host's.
    (tmp_path / "own").write_text("4:memory:/host/path\n3:cpu:/host\n")
    top = tmp_path / "groups" / "memory"
    top.mkdir()
    (top / "memory.limit_in_bytes").write_text("30000")
    (top / "memory.usage_in_bytes").write_text("29000")
    (top / "memory.stat").write_text("total_inactive_file 500\n")
    assert free_bytes(cpu) == 1500
    monkeypatch.setattr(_size, "_MEMINFO", tmp_path / "nothing")
    monkeypatch.setattr(_size, "_OWN_GROUP", tmp_path / "nothing")
    assert free_bytes(cpu) is None
    assert free_bytes(torch.device("meta")) is None


def test_the_course_counts_what_is_alive() -> None:
    with _Course([], torch.nn.Identity()) as course:  # type: ignore[arg-type]
        one = torch.zeros(1000)
        two = one + 1
        view = two[:10]
        del one
        three = view * 2
        del two, view
        gc.collect()
        four = three + 1
        del three, four
    assert [outside for outside, *_ in course.alive()] == [4000, 8000, 8000, 4040, 80]
