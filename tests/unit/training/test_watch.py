"""Watched texts: traced after the steps that are due, on disk, and without a trace in the training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.tracing import Trace
from regard.training import film
from unit.training import watched
from unit.training.small import Killed, kill_at


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return dict(regard.load(folder / "model").loaded.network.state_dict())


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def traces(run: Path) -> list[str]:
    return sorted(str(file.relative_to(run / "watch")) for file in run.glob("watch/*/*"))


@pytest.mark.parametrize("objective", ["clm", "seq2seq"])
def test_a_run_goes_the_same_way_whether_it_is_watched_or_killed(objective: str, tmp_path: Path) -> None:
    texts = watched.WATCHED[objective]
    watched.run(tmp_path, "unseen", objective=objective)
    watched.run(tmp_path, "seen", objective=objective, watch=texts)
    unseen, seen = parameters(tmp_path / "unseen"), parameters(tmp_path / "seen")
    assert same(unseen, seen)
    assert not (tmp_path / "unseen" / "watch").exists()
    found = traces(tmp_path / "seen")
    assert found == [f"{n}/step-{step:08}.safetensors" for n in (1, 2) for step in (0, 4, 8, 12)]
    with pytest.raises(Killed):
        watched.run(tmp_path, "killed", objective=objective, watch=texts, on_report=kill_at(9))
    later = tmp_path / "killed" / "watch" / "1" / "step-00000008.safetensors"
    before = later.read_bytes()
    later.write_bytes(b"of a way that was not gone on")
    (later.parent / "step-00000007.safetensors").write_bytes(b"as was this")
    watched.run(tmp_path, "killed", objective=objective, watch=texts)  # from step 5
    assert same(unseen, parameters(tmp_path / "killed"))
    assert traces(tmp_path / "killed") == found
    assert later.read_bytes() == before


def test_the_last_trace_is_that_of_the_model_that_was_written(tmp_path: Path) -> None:
    watched.run(tmp_path, objective="seq2seq", watch=watched.WATCHED["seq2seq"])
    last = Trace.open(tmp_path / "run" / "watch" / "1" / "step-00000012.safetensors")
    read, written = watched.WATCHED["seq2seq"][0].split(" => ")
    again = regard.load(tmp_path / "run" / "model").trace(read, target=written)
    for kind in again.kinds:
        assert torch.equal(last.weights(kind=kind), again.weights(kind=kind))
    assert torch.equal(last.embeddings(kind="decoder"), again.embeddings(kind="decoder"))
    first = Trace.open(tmp_path / "run" / "watch" / "1" / "step-00000000.safetensors")
    assert not torch.equal(first.weights(kind="cross"), last.weights(kind="cross"))


def test_a_film_says_what_it_has_not(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^run must be the folder of a run with traces"):
        film(tmp_path)
    watched.run(tmp_path, watch=watched.WATCHED["clm"])
    for text in (3, "0", "money"):
        with pytest.raises(InputError, match=r"run watched 1 'the river.*, 2 'a loan'; got text "):
            film(tmp_path / "run", text)
    one, other = film(tmp_path / "run", "a loan"), film(tmp_path / "run", 2)
    assert one.html == other.html
    assert film(tmp_path / "run", max_mb=0.04).html.count('regard-run2-facts"') == 0  # of four steps, two
