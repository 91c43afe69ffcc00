"""How far a job is, in words."""

from __future__ import annotations

import pytest

from regard.cli import _progress
from regard.cli._embed_job import JobProgress, speed
from regard.embedding.job import Progress

HALF = Progress(rows=6000, of=10_000, here=2000, tokens=50_000, seconds=20.0)


def test_speed() -> None:
    assert speed(HALF) == "2,500 tokens/s, 40 s left"
    assert speed(Progress(rows=6000, of=None, here=2000, tokens=50_000, seconds=20.0)) == "2,500 tokens/s"
    assert speed(Progress(rows=0, of=5, here=0, tokens=0, seconds=0.0)) == "0 tokens/s"


def test_lines_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with JobProgress() as progress:
        progress.report(HALF)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(_progress, "_EVERY", 0.0)
        progress.report(HALF)
    assert capsys.readouterr().err == "regard: 6,000 of 10,000 texts, 2,500 tokens/s, 40 s left\n"


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with JobProgress() as progress:
        progress.report(HALF)
    shown = capsys.readouterr().err
    assert "6,000 of 10,000 texts" in shown
    assert "40 s left" in shown
