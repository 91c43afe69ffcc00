"""What a job would take."""

from __future__ import annotations

from pathlib import Path

from regard.embedding.job import Columns, Inputs, estimate, run
from unit.embedding.job.works import Hashed, Worded


def test_few_texts_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n\nrefuse\nfour\n")
    found = estimate(Inputs([path], Columns()), Hashed())
    assert (found.rows, found.texts, found.rejected) == (4, 2, 2)
    assert (found.sample, found.exact, found.tokens, found.vectors) == (3, True, 13, 2)


def test_many_texts_are_estimated_from_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    lines = [f"text {n} {'x' * (n % 50)}" for n in range(10000)]
    path.write_text("\n".join([*lines, "", "last"]))
    tokens = sum(map(len, lines)) + 4
    found = estimate(Inputs([path], Columns()), Hashed())
    assert (found.rows, found.texts, found.rejected, found.vectors) == (10002, 10001, 1, 10001)
    assert not found.exact
    assert found.sample == 256
    assert abs(found.tokens - tokens) <= 0.001 * tokens  # a token is a character here
    assert estimate(Inputs([path], Columns()), Hashed()).bytes == found.bytes
    summary = run(Inputs([path], Columns()), tmp_path / "out", lambda earlier: Hashed(characters=10**6))
    assert abs(found.bytes - summary.bytes) < 0.25 * summary.bytes  # so few bytes a row that headers count
    words = estimate(Inputs([path], Columns()), Worded())
    assert abs(words.vectors - 30000) < 0.05 * 30000


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n")
    found = estimate(Inputs([path], Columns()), Hashed())
    assert (found.rows, found.texts, found.rejected, found.bytes) == (2, 0, 2, 0)
