"""What a run does beside its steps: the mean of checkpoints, an early end, half precision, TensorBoard."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.profiler import ProfilerActivity, profile

from regard.core import memory
from regard.core.errors import CheckpointError, InputError, OutputError
from regard.models import load_checkpoint
from regard.training import _train, read_journal, train
from regard.training._checkpoints import RunState
from regard.training._ranks import Ranks
from regard.training._run import prepare
from regard.training._step import optimisers, take_step
from tolerances import BF16
from unit.on_disk import Disk
from unit.training.test_runs import settings_of

WILD = {"lr": 0.05, "schedule": "constant", "warmup": 0}
"""So fast that it goes around where the loss is lowest."""


def scored(folder: Path) -> dict[int, float]:
    """The loss on the texts to score on, by step."""
    return {each["step"]: each["valid_loss"] for each in read_journal(folder) if "valid_loss" in each}


def test_the_mean_of_the_last_checkpoints_is_the_model_where_it_is_better(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "steps": 24,
        "evaluate_every": 24,
        "save_every": 4,
        "keep": 5,
        "optimiser": WILD | {"lr": 0.2},
    }
    result = train(settings_of("clm", tmp_path, average=3, **more), tmp_path / "run")
    assert result.scores["loss"] < scored(tmp_path / "run")[24]
    states = []
    for step in (16, 20, 24):
        dcp_to_torch_save(tmp_path / "run" / "checkpoints" / f"step-{step}", tmp_path / "state.pt")
        states.append(torch.load(tmp_path / "state.pt", weights_only=False)["task"])
    for name, value in load_checkpoint(result.model).network.state_dict().items():
        mean = torch.stack([state[f"network.{name}"].double() for state in states]).mean(dim=0)
        torch.testing.assert_close(value, mean.float(), rtol=0, atol=0)
    without = train(settings_of("clm", tmp_path, **more), tmp_path / "without")
    assert without.scores["loss"] == scored(tmp_path / "run")[24]


def test_a_process_that_has_nothing_to_score_still_gets_a_batch(tmp_path: Path) -> None:
    """Texts shorter than one block, scored on by two processes."""
    (tmp_path / "short.txt").write_text("a river bank of money\n")
    more: dict[str, Any] = {"batch": {"form": "blocks", "length": 16, "rows": 2}}
    settings = settings_of("clm", tmp_path, **more)
    settings = replace(settings, data=replace(settings.data, valid=(str(tmp_path / "short.txt"),)))
    with prepare(settings, tmp_path / "run", Ranks(), lambda _: None) as run:
        assert run.valid is not None
        found = [list(replace(run.valid, rank=rank, world=2).in_order()) for rank in (0, 1)]
    assert [[each.counts["loss"] > 0 for each in batches] for batches in found] == [[True], [False]]


def test_a_run_ends_after_so_many_scores_without_a_better_one(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "steps": 60,
        "evaluate_every": 2,
        "save_every": 2,
        "optimiser": WILD | {"lr": 0.3},
    }
    settings = settings_of("clm", tmp_path, patience=3, **more)
    result = train(settings, tmp_path / "run")
    losses = scored(tmp_path / "run")
    best = min(losses, key=lambda step: losses[step])
    assert (result.step, result.scores["loss"]) == (best, losses[best])
    assert max(losses) == best + 6 < 60
    assert train(settings, tmp_path / "run") == result  # it does not go on
    assert scored(tmp_path / "run") == losses


def test_in_bfloat16_products_are_rounded_and_parameters_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(settings_of("clm", tmp_path, steps=1), tmp_path / "plain")
    seen: set[torch.dtype] = set()
    forward = nn.functional.linear

    def linear(*given: Any) -> Any:
        made = forward(*given)
        seen.add(made.dtype)
        return made

    monkeypatch.setattr(nn.functional, "linear", linear)
    half = train(settings_of("clm", tmp_path, steps=1, precision="bfloat16"), tmp_path / "half")
    assert seen == {torch.bfloat16}
    assert all(each.dtype == torch.float32 for each in load_checkpoint(half.model).network.parameters())
    assert half.scores["loss"] != plain.scores["loss"]
    assert half.scores["loss"] == pytest.approx(plain.scores["loss"], rel=BF16)


def test_tensorboard_reads_what_the_journal_has(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(settings_of("clm", tmp_path), tmp_path / "run")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    told = {each["step"]: each["loss"] for each in read_journal(tmp_path / "run") if "loss" in each}
    assert {each.step: each.value for each in events.Scalars("loss")} == pytest.approx(told)
    assert [each.step for each in events.Scalars("valid_loss")] == [3, 6]


def test_what_a_model_is_refused_for_is_found_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of("clm", tmp_path)
    odd = tmp_path / "t\udcff.jsonl"  # stands in the model's card
    odd.write_bytes(Path(settings.data.train[0]).read_bytes())
    named = replace(settings, data=replace(settings.data, train=(str(odd),)))
    with pytest.raises(InputError, match=r"^names of files must be valid Unicode; got .*udcff\.jsonl"):
        train(named, tmp_path / "odd")

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", fails)  # as on some file systems
    with pytest.raises(OutputError, match=r"cannot be written \(Operation not permitted\)"):
        train(settings, tmp_path / "unlinked")
    for name in ("odd", "unlinked"):
        assert not (tmp_path / name / "metrics.jsonl").exists()
        assert not list((tmp_path / name).glob(".regard-*"))


def test_files_of_a_run_that_cannot_be_read(tmp_path: Path) -> None:
    """What a power cut leaves in the log is left out; other files are named."""
    settings, out = settings_of("classify", tmp_path), tmp_path / "run"
    first, said = train(settings, out), list[str]()
    whole = list(read_journal(out))
    shutil.rmtree(out / "checkpoints" / "step-6")
    log = out / "metrics.jsonl"
    lines = log.read_bytes().split(b"\n")
    strange = [b"\0\0", b"[7]", b"null", b"{}", b'{"step": "2"}', b"\xff", lines[1][:9]]
    log.write_bytes(b"\n".join([lines[0], *strange, *lines[1:-1], b"\0\0\0", lines[0][:5]]))
    with pytest.raises(InputError, match=r"^line 2 of .*metrics\.jsonl cannot be read; remove it, or go on"):
        list(read_journal(out))
    again = train(settings, out, on_message=said.append)
    assert again == first
    assert [{**each, "seconds": 0} for each in read_journal(out)] == [
        {**each, "seconds": 0} for each in whole
    ]
    places = [int(each.split()[1]) for each in said if "cannot be read and is left out" in each]
    assert places == [*range(2, 2 + len(strange)), len(lines) + len(strange)]
    for name in ("labels.json", "data/train.json", "data/valid.json", "model/scores.json", "settings.json"):
        content = (out / name).read_bytes()
        for damage in (b"", b"\0\0", content[:9]):
            (out / name).write_bytes(damage)
            with pytest.raises(CheckpointError, match=f"{name}.*(cannot be read|not valid)"):
                train(settings, out)
        (out / name).write_bytes(content)


BIG: dict[str, Any] = {"d_model": 60, "num_layers": 3, "num_heads": 3, "d_ff": 220}


@pytest.mark.parametrize("name", ["clm", "seq2seq", "electra"])
def test_a_step_that_cannot_fit_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(_train, "check_room", lambda what, needed, device, way_out: asked.append(needed))
    settings = settings_of(name, tmp_path, steps=1)
    train(settings, tmp_path / "run")
    monkeypatch.undo()
    free = asked[0]
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    train(settings, tmp_path / "fits")
    free -= 1
    with pytest.raises(
        InputError, match=r"training on 2 rows of \d+ tokens at once needs .* KiB of memory, and"
    ):
        train(settings, tmp_path / "refused")
    assert not (tmp_path / "refused" / "metrics.jsonl").exists()


@pytest.mark.parametrize(("rows", "length"), [(7, 61), (1, 503)])
def test_a_step_takes_more_than_is_asked_for(
    rows: int, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the most that torch allocates in two steps: the second has moments from the first."""
    asked: list[int] = []
    monkeypatch.setattr(_train, "check_room", lambda what, needed, device, way_out: asked.append(needed))
    monkeypatch.setattr(_train, "_LONGEST", 127)
    settings = settings_of("clm", tmp_path, model=BIG, batch={"length": length, "rows": rows})
    (tmp_path / "clm.jsonl").write_text('{"text": "the river bank of money"}\n' * 300)
    with prepare(settings, tmp_path / "run", Ranks(), print) as run:
        _train.check_fits(run)
        made = optimisers(run.task, settings.optimiser)
        progress = RunState()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            for picked in run.train.steps(0)[:2]:
                progress, _ = take_step(run, run.task, made, picked, progress)
    # A step takes blocks of weights besides, where attention has dropout, and gradients.
    assert 0.2 * peak_of(profiled) < asked[0] < peak_of(profiled)


def peak_of(profiled: Any) -> int:
    """The most bytes that were allocated at once."""
    now = most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def test_a_checkpoint_is_on_disk_before_it_has_its_name_and_after_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    train(settings_of("clm", tmp_path, steps=4, save_every=2), tmp_path / "run")
    assert {"step-2", "step-4"} <= set(disk.named)
    assert not disk.too_early, "\n".join(disk.too_early)
    (journal,) = (tmp_path / "run").glob("*.jsonl")
    assert disk.has(journal)
