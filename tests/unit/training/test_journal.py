"""The curves of runs, from journals written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.tracing import Trace
from regard.training import curves, film
from unit.training import watched
from unit.training.small import SMALLEST, Killed, kill_at


def journal(folder: Path, steps: int, loss: float) -> Path:
    folder.mkdir(parents=True)
    lines: list[dict[str, float]] = []
    for step in range(1, steps + 1):
        lines.append({"step": step, "loss": loss + step % 2, "lr": 0.1 * step})
        if step % 100 == 0:
            lines.append({"step": step, "valid_loss": loss, "valid_perplexity": 9.0, "valid_bleu": 30.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_many_steps_are_means_of_several(tmp_path: Path) -> None:
    picture = curves([journal(tmp_path / "run", 400, 2.0)])
    loss, scored = picture.panels[0].series
    assert [len(loss.points), loss.points[0], loss.points[-1]] == [200, (2.0, 2.5), (400.0, 2.5)]
    assert scored.points == [(100.0, 2.0), (200.0, 2.0), (300.0, 2.0), (400.0, 2.0)]
    assert [panel.title for panel in picture.panels[1:]] == ["bleu", "learning rate"]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [journal(tmp_path / name / "run", 3, 1.0) for name in "ab"]
    assert [each.name for each in curves(folders).panels[0].series] == [str(each) for each in folders]


def test_the_picture_is_a_whole_svg_that_says_its_numbers(tmp_path: Path) -> None:
    folders = [journal(tmp_path / name, 200, 2.0) for name in ("one", "t<o")]
    curves(folders).write(tmp_path / "a.svg")
    texts = [each.text for each in ElementTree.parse(tmp_path / "a.svg").iter() if each.text]
    assert {"t<o", "one: 100, 2", "bleu", "steps", "200"} <= set(texts)


@pytest.mark.parametrize("content", [None, '{"step": 1, "valid_loss": 2.0}\n'])
def test_a_folder_without_a_step_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"must be the folder of a run|has not done a step"):
        curves([tmp_path])


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return dict(regard.load(folder / "model").loaded.network.state_dict())


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def traces(run: Path) -> list[str]:
    return sorted(str(file.relative_to(run / "watch")) for file in run.glob("watch/*/*"))


@pytest.mark.parametrize("objective", ["clm", "seq2seq"])
def test_a_run_goes_the_same_way_whether_it_is_watched_or_killed(objective: str, tmp_path: Path) -> None:
    texts = watched.WATCHED[objective]
    run = partial(watched.run, tmp_path, objective=objective, model=SMALLEST)
    run("unseen")
    run("seen", watch=texts)
    unseen, seen = parameters(tmp_path / "unseen"), parameters(tmp_path / "seen")
    assert same(unseen, seen)
    assert not (tmp_path / "unseen" / "watch").exists()
    found = traces(tmp_path / "seen")
    assert found == [f"{n}/step-{step:08}.safetensors" for n in (1, 2) for step in (0, 4, 8, 12)]
    with pytest.raises(Killed):
        run("killed", watch=texts, on_report=kill_at(9))
    later = tmp_path / "killed" / "watch" / "1" / "step-00000008.safetensors"
    before = later.read_bytes()
    later.write_bytes(b"of a way that was not gone on")
    (later.parent / "step-00000007.safetensors").write_bytes(b"as was this")
    run("killed", watch=texts)  # from step 5
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
