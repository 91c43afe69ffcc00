"""docs/ideas/static.md: its commands and its Python run, and its tables are what the scripts print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import static_cbow

from regard.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ideas/static.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_its_commands_and_its_python_do_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *others = blocks("python")
    exec(compile(first, "static.md", "exec"), {})
    for line in blocks("sh")[0].splitlines():
        monkeypatch.setattr("sys.argv", shlex.split(line, comments=True))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, (line, capsys.readouterr().err)
    told = capsys.readouterr().out
    assert "words/model: step" in told
    assert "lr" not in told
    assert "learning rate" in told
    exec(compile("\n".join(others), "static.md", "exec"), {})
    assert capsys.readouterr().out == blocks("text")[0]


def test_attention_comes_as_near_to_cbow_as_it_says() -> None:
    rows = list(static_cbow.distances())
    shown = re.findall(r"^\| (.+) \| (\d\.\d{3}) \| (\d\.\d{3}) \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in shown] == [name for name, *_ in rows]
    for (name, *wanted), (_, *found) in zip(shown, rows, strict=True):
        assert found == pytest.approx([float(each) for each in wanted], abs=6e-4), name
    assert max(rows[-1][1:]) < 1e-6
