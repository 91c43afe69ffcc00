"""docs/ideas/static.md: its commands and its Python run, and its tables are what the scripts print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import static_bank
import static_cbow
import torch

from regard.cli import main
from regard.positions import sinusoidal_encoding

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
    assert capsys.readouterr().out == "".join(blocks("text"))


def test_attention_comes_as_near_to_cbow_as_it_says() -> None:
    rows = list(static_cbow.distances())
    shown = re.findall(
        r"^\| ([^|]+)" + 4 * r" \| (\d\.\d{3})" + r" \|$", PAGE.split("## Bank")[0], re.MULTILINE
    )
    assert [name for name, *_ in shown] == [name for name, *_ in rows]
    for (name, *wanted), (_, *found) in zip(shown, rows, strict=True):
        assert found == pytest.approx([float(each) for each in wanted], abs=6e-4), name
    assert max(rows[-1][1:]) < 1e-6
    # What the text says of the table: the order of the mask and the head turns with the scale.
    found = {name: told for name, *told in rows}
    head, mask = found["a head of the default model, layer 0 (mean of 12)"], found["[MASK] asks in its place"]
    assert mask[0] > head[0]
    assert mask[2] < head[2]
    positions = sinusoidal_encoding(42, 384)
    apart = (torch.arange(42)[:, None] - torch.arange(42)).abs()
    for scale, told in ((1.0, (0.99, 0.01, 0.00)), (384**-0.5, (0.20, 0.55, 0.24))):
        weights = (scale * positions @ positions.mT).softmax(dim=1)
        shares = [
            float((weights * of).sum(dim=1).mean())
            for of in (apart == 0, (apart > 0) & (apart < 5), apart > 4)
        ]
        assert shares == pytest.approx(told, abs=0.006)


def test_the_senses_of_bank_are_as_far_apart_as_it_says() -> None:
    rows = static_bank.of_the_model()
    assert [static_bank.row(each) for each in rows if static_bank.row(each) in PAGE] == [
        static_bank.row(each) for each in rows
    ]
    static, mean, one, six = (each.apart()[:2] for each in rows)
    assert static == (pytest.approx(11 / 23), 0.5)  # chance: all 24 are one vector
    assert static < mean < six < one
    assert "all in one place" in static_bank.picture(rows).svg()


def test_two_senses_that_are_told_apart_by_hand() -> None:
    """Of 24 vectors in two directions one of each sense has the other's."""
    vectors = np.zeros((24, 2))
    vectors[:12, 0] = vectors[12:, 1] = 1.0
    vectors[[0, 12]] = vectors[[12, 0]]
    nearest, order, within, across = static_bank.told("", vectors).apart()
    # Of 12 equally near ones 10 or 1 of 11 have the sense.
    assert nearest == pytest.approx((22 * 10 / 11 + 2 * 0 / 11) / 24)
    same, other = 2 * (11 * 10 // 2) / (2 * 66), (11 * 1 + 1 * 11) / 144
    assert (within, across) == (pytest.approx(same), pytest.approx(other))
    assert order == pytest.approx(same * (1 - other) + 0.5 * (same * other + (1 - same) * (1 - other)))
