"""What docs/howto/heads.md shows is what happens."""

import re
from pathlib import Path

import pytest

import regard
from integration.test_docs import blocks
from regard.tracing import default_patterns

DOCUMENT = "docs/howto/heads.md"
TEXT = (Path(__file__).parents[2] / DOCUMENT).read_text(encoding="utf-8")


def test_python_runs() -> None:
    code = blocks(DOCUMENT, "python")
    assert len(code) == 3
    exec(compile("\n".join(code), DOCUMENT, "exec"), {})


def test_the_table_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    shell = blocks(DOCUMENT, "sh")[0]
    [(sentence, layer)] = re.findall(r'regard heads "([^"]+)" --layer (\d)', shell)
    Console(width=80).print(regard.load().heads(sentence, layer=int(layer)))
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = blocks(DOCUMENT, "text")[0].splitlines()
    assert len(shown) > 15
    assert shown == printed


def test_every_pattern_is_in_the_table() -> None:
    for kind in ("encoder", "decoder", "cross"):
        for pattern in default_patterns(kind):
            assert re.search(rf"^\| [a-z, ]*\b{pattern.name}\b", TEXT, re.MULTILINE), pattern.name
