"""What the page on notebooks shows is what happens."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "notebooks.md"


def test_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile("\n".join(code), str(DOCUMENT), "exec"), names)
    [shown] = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    token, moved = capsys.readouterr().out.split()
    wanted, number = shown.split()
    assert token == wanted
    assert float(moved) == pytest.approx(float(number), abs=5e-4)
    assert names["widget"].address == "#layer=3&head=5&pin=query-11"  # type: ignore[attr-defined]
