"""Training runs that are killed at any instant, or refused the disk, go on to the same end, bit for bit."""

from __future__ import annotations

import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integration.forked import wait_for
from integration.training_runs import allow, at, hang, left, run, settings_of, start
from regard.models import load_checkpoint

Whole = dict[int, dict[str, Any]]
SLOW = pytest.mark.slow  # one of each kind is tried always


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def whole(place: Path) -> Whole:
    """What runs leave that nothing stopped, by the number of processes."""
    found: Whole = {}
    for world in (1, 2):
        ended = run(settings_of(place), place / f"whole-{world}" / "run", place / "errors", world=world)
        assert ended.end() == [0] * world, ended.told()
        found[world] = left(place / f"whole-{world}" / "run", place / "scratch")
        assert sorted(found[world]) == ["metrics", "model", "step-11", "step-9"]
        # Epochs end in the middle of a step, and so do those before a checkpoint.
        assert found[world]["step-9"]["state"]["epoch"] > 0 < found[world]["step-9"]["state"]["done"]
    return found


@pytest.mark.parametrize(("world", "seed"), [(1, 0), pytest.param(2, 2, marks=SLOW)])
def test_killed_at_any_instant(whole: Whole, place: Path, tmp_path: Path, world: int, seed: int) -> None:
    draw = random.Random(seed)
    begin = partial(start, settings_of(place), tmp_path / "run", tmp_path, world=world)
    for _ in range(5):
        started = begin()
        time.sleep(draw.uniform(0.1, 0.6))
        assert set(started.kill()) <= {-signal.SIGKILL, 0}
    ended = begin()
    assert ended.end() == [0] * world, ended.told()
    assert left(tmp_path / "run", tmp_path / "scratch") == whole[world]


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        pytest.param("before", "settings.json", marks=SLOW),
        pytest.param("before", "tokenizer", marks=SLOW),
        pytest.param("before", "data/train", marks=SLOW),
        ("after", "data/train"),
        pytest.param("after", "data/train.json", marks=SLOW),
        ("before", "metrics.jsonl"),
        pytest.param("before", "models/step-8", marks=SLOW),
        ("after", "models/step-8"),
        pytest.param("after", "model", marks=SLOW),
        ("before", "checkpoints/step-8"),
        pytest.param("after", ".old", marks=SLOW),
    ],
)
def test_killed_at_every_rename(whole: Whole, place: Path, tmp_path: Path, moment: str, name: str) -> None:
    mark = tmp_path / "mark"
    started = start(
        settings_of(place), tmp_path / "run", tmp_path / "errors", before=(at, name, moment, hang, mark)
    )
    wait_for(mark.exists)
    assert started.kill() == [-signal.SIGKILL]
    ended = run(settings_of(place), tmp_path / "run", tmp_path / "errors")
    assert ended.end() == [0], ended.told()
    assert left(tmp_path / "run", tmp_path / "scratch") == whole[1]
    hidden = [path.name for path in (tmp_path / "run").rglob(".*") if path.name != ".metadata"]
    assert hidden == []


def test_there_is_a_whole_model_at_every_moment(whole: Whole, place: Path, tmp_path: Path) -> None:
    out, marks = tmp_path / "run", (tmp_path / "one", tmp_path / "two")
    # The first is killed with its best model written, but before the checkpoint; the second writes it anew.
    for mark, moment, name in zip(marks, ("after", "before"), ("model", "models/step-4*"), strict=True):
        started = start(settings_of(place), out, tmp_path, before=(at, name, moment, hang, mark))
        wait_for(mark.exists)
        assert started.kill() == [-signal.SIGKILL]
        assert load_checkpoint(out / "model").network.config.num_layers == 1
    ended = run(settings_of(place), out, tmp_path)
    assert ended.end() == [0], ended.told()
    assert left(out, tmp_path / "scratch") == whole[1]


@pytest.mark.parametrize(
    ("world", "name", "size", "told"),
    [
        (1, "settings.json", 500, "the folder of the run cannot be written "),
        pytest.param(1, "tokenizer", 500, "/data/train' cannot be written ", marks=SLOW),
        pytest.param(1, "metrics.jsonl", 500, "the folder of the run cannot be written ", marks=SLOW),
        pytest.param(1, "checkpoints/step-3", 6000, "/models/step-4' cannot be written ", marks=SLOW),
        (1, "model", 60_000, "the checkpoint of step 4 cannot be written to "),
        (2, "checkpoints/step-3", 60_000, "the checkpoint of step 4 cannot be written to "),
    ],
)
def test_a_full_disk(
    whole: Whole, place: Path, tmp_path: Path, world: int, name: str, size: int, told: str
) -> None:
    out = tmp_path / "run"
    ended = run(settings_of(place), out, tmp_path, world=world, before=(at, name, "after", allow, size))
    assert ended.end() == [1] * world
    first, *others = ended.told()
    assert first.startswith("OutputError: ")
    assert told in first
    assert "File too large" in first
    assert "\n" not in first
    assert [each.split(":")[0] for each in others] == ["OtherProcessError"] * (world - 1)
    if name == "model" or world == 2:
        assert f"the last good one is {out}/checkpoints/step-3. Make room, then" in first
        assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-3"]
    ended = run(settings_of(place), out, tmp_path, world=world)
    assert ended.end() == [0] * world, ended.told()
    assert left(out, tmp_path / "scratch") == whole[world]
