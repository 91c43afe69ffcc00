"""The page on senses shows what its blocks print."""

from pathlib import Path

import pytest

from integration.test_docs import blocks

PAGE = "docs/howto/concordance_senses.md"


def test_each_block_prints_what_stands_below_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code, wanted in zip(blocks(PAGE, "python"), blocks(PAGE, "text"), strict=True):
        exec(compile(code, PAGE, "exec"), names)
        assert capsys.readouterr().out == wanted
