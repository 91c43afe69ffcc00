"""Runs that memory would not hold are refused before their first step, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.profiler import ProfilerActivity, profile

from regard.core import memory
from regard.core.errors import InputError
from regard.training import _fits, train
from regard.training._checkpoints import Progress
from regard.training._ranks import Ranks
from regard.training._run import prepare
from regard.training._step import optimisers, take_step
from unit.training.test_runs import settings_of

BIG: dict[str, Any] = {"d_model": 60, "num_layers": 3, "num_heads": 3, "d_ff": 220}


@pytest.mark.parametrize("name", ["clm", "seq2seq", "electra"])
def test_a_step_that_cannot_fit_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(_fits, "check_room", lambda what, needed, device, way_out: asked.append(needed))
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
    monkeypatch.setattr(_fits, "check_room", lambda what, needed, device, way_out: asked.append(needed))
    monkeypatch.setattr(_fits, "_LONGEST", 127)
    settings = settings_of("clm", tmp_path, model=BIG, batch={"length": length, "rows": rows})
    (tmp_path / "clm.jsonl").write_text('{"text": "the river bank of money"}\n' * 300)
    with prepare(settings, tmp_path / "run", Ranks(), print) as run:
        _fits.check_fits(run)
        made = optimisers(run.task, settings.optimiser)
        progress = Progress()
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
