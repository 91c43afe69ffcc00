"""What docs/howto/concordance.md shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from integration import test_cli
from integration.test_cli import Run
from integration.test_docs import ROOT, blocks

run = test_cli.run

DOCUMENT = "docs/howto/concordance.md"


def plain(text: str) -> str:
    """What must be as it is shown: not the time, nor the last digit of a cosine."""
    text = re.sub(r"(?<= in )\d+ s$", "T", text, flags=re.MULTILINE)
    return "\n".join(
        re.sub(r"(cosine \d\.\d\d)\d", r"\1", line).rstrip() for line in text.strip().splitlines()
    )


def test_commands_and_python(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [rows] = blocks(DOCUMENT, "json")
    Path("corpus.jsonl").write_text(rows, "utf-8")
    page = (ROOT / DOCUMENT).read_text("utf-8")
    shown = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(shown) >= 5
    for commands, wanted in shown:
        out = ""
        for command in commands.splitlines():
            program, *arguments = shlex.split(command)
            assert program == "regard"
            done = run(*arguments)
            assert done.code == 0, done.err
            out += done.out
        assert plain(out) == plain(wanted)
    for code, wanted in re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL):
        exec(compile(code, DOCUMENT, "exec"), {})
        assert capsys.readouterr().out == wanted
