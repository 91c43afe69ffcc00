"""The bar of long work in Python: when it is drawn, and when not."""

import sys

import pytest
from rich.console import Console

import regard
from regard import InputError
from regard.model import _bar, _embedding
from regard.model._bar import Bar

TEXTS = ["a river bank", "fish", "time flies like an arrow"] * 7


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [0.0]
    monkeypatch.setattr(_bar.time, "monotonic", lambda: seconds[0])
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
    with Bar("texts") as bar:
        bar(1, 90)
        now[0] += seconds
        bar(25, 90)
        bar(31, 90)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("31/90" in err) is drawn
    assert drawn or err == ""


def test_nothing_is_drawn_where_there_is_no_stderr(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Bar("texts") as bar:
        now[0] += 9
        bar(1, 2)


@pytest.mark.parametrize("level", ["sentence", "word"])
def test_progress_is_told_of_all_texts(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setattr(_embedding, "_AT_ONCE", 8)
    model = regard.load()
    of_list: list[tuple[int, int]] = []
    model.embed(TEXTS, level=level, progress=lambda *each: of_list.append(each), threads=2)  # type: ignore[call-overload]
    assert {total for _, total in of_list} == {21}
    assert [done for done, _ in of_list] == sorted(done for done, _ in of_list)
    assert {8, 16, 21} <= {done for done, _ in of_list}
    of_iterator: list[tuple[int, int]] = []
    model.embed(iter(TEXTS), level=level, progress=lambda *each: of_iterator.append(each))  # type: ignore[call-overload]
    assert {total for _, total in of_iterator} == {8, 16, 21}
    assert of_iterator[-1] == (21, 21)


def test_a_text_in_windows_counts_once() -> None:
    seen: list[int] = []
    long = " ".join(["bank"] * 90)
    window = regard.Windows(size=16, overlap=4)
    regard.load().embed(
        [long, "fish"], window=window, batch_tokens=16, threads=1, progress=lambda done, _: seen.append(done)
    )
    assert seen[0] == 0
    assert seen[-1] == 2
    assert max(seen) == 2


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(InputError, match="progress must be a function"):
        regard.load().embed(TEXTS, progress=3)  # type: ignore[call-overload]
