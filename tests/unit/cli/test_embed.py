"""`regard embed`: its job, its progress and its summary, and --ray."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from regard.cli import _output
from regard.cli._app import app
from regard.cli.embed import JobBar, Limit, ray_workers, speed, with_address
from regard.core.errors import InputError, RegardError
from regard.embedding.job import JobState


@pytest.mark.parametrize(
    ("words", "rejected", "message"),
    [
        (None, 99, None),
        (None, 100, "none of the 100 rows could be embedded"),
        ("100", 100, "none of the 100 rows could be embedded"),
        ("0", 0, None),
        ("0", 1, "1 of 100 rows were put aside, more than --max-rejected allows"),
        ("7", 7, None),
        ("7", 8, "8 of 100 rows"),
        ("2.5%", 2, None),
        ("2.5%", 3, "3 of 100 rows"),
    ],
)
def test_the_limit(words: str | None, rejected: int, message: str | None) -> None:
    if message is None:
        Limit(words).check(100, rejected, ["the text is empty"])
        return
    with pytest.raises(RegardError, match=message):
        Limit(words).check(100, rejected, ["the text is empty"])


@pytest.mark.parametrize("words", ["", "x", "1.5", "-1", "%"])
def test_what_is_no_limit(words: str) -> None:
    with pytest.raises(InputError, match="--max-rejected must be a whole number, or a share"):
        Limit(words)


HALF = JobState(rows=6000, of=10_000, here=2000, tokens=50_000, seconds=20.0)


def test_speed() -> None:
    assert speed(HALF) == "2,500 tokens/s, 40 s left"
    assert speed(JobState(rows=6000, of=None, here=2000, tokens=50_000, seconds=20.0)) == "2,500 tokens/s"
    assert speed(JobState(rows=0, of=5, here=0, tokens=0, seconds=0.0)) == "0 tokens/s"


def test_lines_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with JobBar() as progress:
        progress.report(HALF)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(_output, "_EVERY", 0.0)
        progress.report(HALF)
    assert capsys.readouterr().err == "regard: 6,000 of 10,000 texts, 2,500 tokens/s, 40 s left\n"


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with JobBar() as progress:
        progress.report(HALF)
    shown = capsys.readouterr().err
    assert "6,000 of 10,000 texts" in shown
    assert "40 s left" in shown


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--ray", "auto", "a.txt"], ["--ray=auto", "a.txt"]),
        (["a.txt", "--ray"], ["a.txt", "--ray="]),
        (["--ray", "-o", "out"], ["--ray=", "-o", "out"]),
        (["--ray", "a:b.txt"], ["--ray=", "a:b.txt"]),
        (["--ray", "ray://head.example:10001"], ["--ray=ray://head.example:10001"]),
        (["--ray=", "local"], ["--ray=", "local"]),
        (["--ray=auto", "local"], ["--ray=auto", "local"]),
        (["--", "--ray", "auto"], ["--", "--ray", "auto"]),
        (["--ray", "--", "auto"], ["--ray=", "--", "auto"]),
    ],
)
def test_addresses(arguments: list[str], found: list[str]) -> None:
    assert with_address(arguments) == found


def test_the_command_takes_both() -> None:
    command = typer.main.get_command(app).commands["embed"]  # type: ignore[attr-defined]
    for arguments, address in (
        (["--ray", "a.txt"], ""),
        (["--ray", "h:1", "a.txt"], "h:1"),
        (["a.txt"], None),
    ):
        context = command.make_context("embed", arguments)
        assert (context.params["ray"], context.params["inputs"]) == (address, [Path("a.txt")])


def test_what_does_not_go_with_it(tmp_path: Path) -> None:
    command = typer.main.get_command(app)
    for arguments, told in (
        (["a.txt", "-o", "out", "--workers", "2"], "--workers goes with --ray"),
        (["a.txt", "-o", "-", "--ray"], "--ray writes files"),
        (["a.txt", "--dry-run", "--ray"], "--ray writes files"),
    ):
        with pytest.raises(InputError, match=told):
            command(["embed", *arguments], standalone_mode=False)


def test_nothing_without_the_option() -> None:
    with ray_workers(None, None, "model", {}, print) as workers:
        assert workers is None
