"""The bar of long work: when it is drawn, and when not."""

import sys

import pytest
from rich.console import Console

from regard.core import progress
from regard.core.progress import Bar


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    return seconds


@pytest.mark.parametrize(
    ("terminal", "seconds", "drawn"), [(True, 4, True), (True, 2, False), (False, 4, False)]
)
def test_it_is_drawn_of_long_work_on_a_terminal(
    now: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: bool,
    seconds: float,
    drawn: bool,
) -> None:
    monkeypatch.setattr(Console, "is_terminal", terminal)
    with Bar("texts", patience=3.0) as bar:
        bar(1, 90)
        now[0] += seconds
        bar(25, 90)
        bar(31, 90)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("31 of 90 texts" in err) is drawn
    assert drawn or err == ""


def test_nothing_is_drawn_where_there_is_no_stderr(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Bar("texts", patience=3.0) as bar:
        now[0] += 9
        bar(1, 2)
