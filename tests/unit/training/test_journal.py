"""The curves of runs, from journals written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.core.errors import InputError
from regard.training import curves


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
    curves(folders).save(tmp_path / "a.svg")
    texts = [each.text for each in ElementTree.parse(tmp_path / "a.svg").iter() if each.text]
    assert {"t<o", "one: 100, 2", "bleu", "steps", "200"} <= set(texts)


@pytest.mark.parametrize("content", [None, '{"step": 1, "valid_loss": 2.0}\n'])
def test_a_folder_without_a_step_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"must be the folder of a run|has not done a step"):
        curves([tmp_path])
