"""Training on two processes is training on one: the same batches, gradients, scores and checkpoints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from integration.forked import Forked, wait_for
from integration.training_runs import (
    SECONDS,
    an_epoch,
    at,
    called,
    environments,
    hang,
    run,
    run_out_of_memory,
    settings_of,
    start,
    stop,
    while_first,
)
from regard.core.errors import InputError
from regard.training import Settings, _ranks, read_journal, train
from tolerances import FP64, TRAINED_FP32


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def assert_close(ours: Any, theirs: Any, tol: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=tol, atol=tol)


@pytest.mark.parametrize(("objective", "form"), [("clm", "packed"), ("mlm", "rows")])
def test_an_epoch_on_two_is_an_epoch_on_one(place: Path, tmp_path: Path, objective: str, form: str) -> None:
    """With dropout, clipping, packed rows, two layers, and a last step for which there is one micro-batch."""
    found = {}
    for name, world, accumulate, shard in (
        ("one", 1, 2, False),
        ("two", 2, 1, False),
        ("shards", 2, 1, True),
    ):
        settings = settings_of(
            place,
            objective,
            batch={"accumulate": accumulate, "form": form},
            model={"num_layers": 2},
            optimiser={"clip": 0.3},
            shard=shard,
        )
        found[name] = called(tmp_path / "scratch", world, an_epoch, settings, tmp_path / name)
    one, two, shards = found["one"], found["two"], found["shards"]
    assert len(one["last"]) == 1  # the second process had none
    assert all(report["norm"] > 0.3 for report in one["reports"])
    assert two["reports"] == one["reports"]
    assert all(torch.equal(value, two["state"][name]) for name, value in one["state"].items())
    assert_close(shards["state"], one["state"], FP64)
    for ours, theirs in zip(shards["reports"], one["reports"], strict=True):
        assert_close(ours, theirs, FP64)
    for other in (two, shards):
        assert_close(other["scores"], one["scores"], FP64)


def test_accumulation_changes_nothing(place: Path, tmp_path: Path) -> None:
    """Six rows at once, or one after the other, with texts of one to eight words."""
    found = []
    for rows, accumulate in ((6, 1), (3, 2), (1, 6)):
        settings = settings_of(
            place,
            batch={"rows": rows, "accumulate": accumulate},
            model={"dropout_p": 0.0, "attention_dropout_p": 0.0, "embedding_dropout_p": 0.0},
        )
        found.append(called(tmp_path / "scratch", 1, an_epoch, settings, tmp_path / str(rows)))
    for other in found[1:]:
        assert_close(other["state"], found[0]["state"], FP64)
        for ours, theirs in zip(other["reports"], found[0]["reports"], strict=True):
            assert_close(ours, theirs, FP64)


def killed_at(settings: Settings, folder: Path, step: int, *, world: int) -> None:
    """Begin or go on, and kill it when there is a checkpoint of a step."""
    mark = folder.parent / f"mark-{step}"
    name = f"checkpoints/step-{step}"
    started = start(settings, folder, folder.parent, world=world, before=(at, name, "after", hang, mark))
    wait_for(mark.exists)
    assert set(started.kill()) == {-signal.SIGKILL}


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [{name: each for name, each in line.items() if name != "seconds"} for line in read_journal(folder)]


def test_checkpoints_are_read_by_any_number_of_processes(place: Path, tmp_path: Path) -> None:
    """Two copies, then one process that takes as many micro-batches, then two shards, then copies again."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    settings = {
        (world, shard): settings_of(place, batch={"accumulate": 2 // world}, shard=shard)
        for world, shard in ((2, False), (1, False), (2, True))
    }
    assert run(settings[2, False], whole, tmp_path / "errors", world=2).end() == [0, 0]
    for step, world, shard in ((3, 2, False), (6, 1, False), (8, 2, True)):
        _accumulate(out, 2 // world)
        killed_at(settings[world, shard], out, step, world=world)
        if step == 6:  # from copies to one it is the same to the bit
            assert metrics(out) == metrics(whole)[: len(metrics(out))]
    ended = run(settings[2, False], out, tmp_path / "errors", world=2)
    assert ended.end() == [0, 0], ended.told()
    for ours, theirs in zip(metrics(out), metrics(whole), strict=True):
        assert_close(ours, theirs, TRAINED_FP32)


def _accumulate(folder: Path, count: int) -> None:
    """As many micro-batches a step on another number of processes; a user cannot change that."""
    file = folder / "settings.json"
    if file.exists():
        settings = json.loads(file.read_text())
        settings["batch"]["accumulate"] = count
        file.write_text(json.dumps(settings))


def test_muon(place: Path, tmp_path: Path) -> None:
    kinds = {"one": (1, 2, False), "two": (2, 1, False), "shards": (2, 1, True)}
    for name, (world, accumulate, shard) in kinds.items():
        batch, optimiser = {"accumulate": accumulate}, {"name": "muon"}
        settings = settings_of(place, optimiser=optimiser, steps=4, batch=batch, shard=shard)
        ended = run(settings, tmp_path / name, tmp_path / "errors", world=world)
        assert ended.end() == [0] * world, ended.told()
    for name in ("two", "shards"):
        for ours, theirs in zip(metrics(tmp_path / name), metrics(tmp_path / "one"), strict=True):
            assert_close(ours, theirs, TRAINED_FP32)


@pytest.mark.parametrize("rank", [0, 1])
def test_memory_that_runs_out_in_one_process_ends_both(place: Path, tmp_path: Path, rank: int) -> None:
    settings = settings_of(place, batch={"accumulate": 1})
    before = (run_out_of_memory, rank, 5)
    ended = run(settings, tmp_path / "run", tmp_path / "errors", world=2, before=before)
    assert ended.end() == [1, 1]
    told, other = ended.told()
    assert told.startswith(
        "TrainingError: memory ran out; what was saved stays. Go on with shard=true on more "
    )
    assert other.startswith("OtherProcessError: ")
    assert sorted(each.name for each in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-3", "step-4"]


def test_a_loss_that_is_no_number_ends_both(place: Path, tmp_path: Path) -> None:
    settings = settings_of(place, optimiser={"lr": 1e30, "warmup": 0, "schedule": "constant"}, save_every=1)
    ended = run(settings, tmp_path / "run", tmp_path / "errors", world=2)
    assert ended.end() == [1, 1]
    told, other = ended.told()
    assert "the loss is nan at step 2, epoch 0, micro-batches 4 to 7; the checkpoint of step 1 stays." in told
    assert other.startswith("OtherProcessError: ")
    assert [each.name for each in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-1"]


def test_a_process_that_is_killed_ends_the_other(place: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    before = (at, "checkpoints/step-3", "after", hang, mark)
    started = start(settings_of(place), tmp_path / "run", tmp_path / "errors", world=2, before=before)
    wait_for(mark.exists)
    started.processes[0].kill()
    assert started.end() == [-signal.SIGKILL, 1]
    assert "Error: another process of the run " in started.told()[0]


@pytest.mark.slow
def test_a_process_is_waited_for_as_long_as_it_works(place: Path, tmp_path: Path) -> None:
    settings = settings_of(place, steps=1)
    before = (while_first, time.sleep, 5)
    ended = run(settings, tmp_path / "slow", tmp_path / "errors", world=2, before=before)
    assert ended.end() == [0, 0], ended.told()
    started = start(settings, tmp_path / "run", tmp_path / "errors", world=2, before=(while_first, stop))
    started.processes[1].join(SECONDS)
    assert started.processes[1].exitcode == 1
    started.processes[0].kill()
    assert "TrainingError: another process of the run " in started.told()[0]


def test_a_process_that_finds_no_others_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ranks, "_START", timedelta(milliseconds=300))
    for name, value in environments(2)[1].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=r"^WORLD_SIZE is 2, and the other processes cannot be"):
        train(settings_of(tmp_path), tmp_path / "run")


def test_data_that_cannot_be_used_ends_both(place: Path, tmp_path: Path) -> None:
    settings = settings_of(place, data={"longer": "refuse"}, batch={"length": 3, "form": "rows"})
    ended = run(settings, tmp_path / "run", tmp_path / "errors", world=2)
    assert ended.end() == [1, 1]
    told, other = ended.told()
    assert told.startswith("InputError: ")
    assert "and batch.length is 3; give a larger length, or set data.longer to cut, drop or split." in told
    assert other.startswith("OtherProcessError: ")


def words(place: Path, out: Path, steps: int) -> list[str]:
    """A command that is typed in a folder with a text."""
    settings_of(place)
    sizes = ["d_model=12", "num_layers=1", "num_heads=3", "d_ff=17"]
    changes = [f"model.{each}" for each in sizes] + ["batch.length=13", "batch.rows=3"]
    return [
        *("train", "clm", "text.txt", "-o", str(out), "--tokenizer", "tokenizer", "--steps", str(steps)),
        *(word for each in changes for word in ("--set", each)),
    ]


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "regard"]


@pytest.mark.slow
def test_the_last_process_says_so_where_torchrun_is_gone_too(place: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("w") as file:
        started = subprocess.Popen(
            [*TORCHRUN, *words(place, tmp_path / "run", 10**6)], cwd=place, stderr=file
        )
        log = tmp_path / "run" / "metrics.jsonl"
        wait_for(lambda: log.exists() and log.stat().st_size)
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        started.kill()
        started.wait()
        os.kill(int(children[-1]), signal.SIGKILL)
    wait_for(lambda: "regard: another process of the run ended without a word" in said.read_text())


def test_the_command_on_two_processes(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what torchrun tells each: one says what is done, and one prints where it is."""
    monkeypatch.chdir(place)
    processes = []
    for environment in environments(2):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        processes.append(Forked(*words(place, tmp_path / "run", 2)))
    codes, printed, told = zip(*(each.end() for each in processes), strict=True)
    assert codes == (0, 0), told
    assert [len(text.splitlines()) for text in printed] == [1, 0]
    assert [text.count("encoding the texts: train") for text in told] == [1, 0]


@pytest.mark.slow
def test_torchrun_as_it_is_typed(place: Path, tmp_path: Path) -> None:
    command = [*TORCHRUN, *words(place, tmp_path / "run", 2)]
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr.count("encoding the texts: train") == 1
