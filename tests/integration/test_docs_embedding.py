"""What docs/howto/embedding.md shows is what happens: its commands, and its Python on what they made."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration import test_cli
from integration.test_cli import Run
from integration.test_docs import blocks

run = test_cli.run

DOCUMENT = "docs/howto/embedding.md"
TEXTS = ["She sat on the bank of the river.", "The bank raised its interest rates."]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"text": TEXTS, "id": ["a", "b"], "year": [1999, 2001]})
    pq.write_table(table, "texts.parquet")
    Path("a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": TEXTS[0]}).encode()))
    Path("b.csv").write_text(f"text\n{TEXTS[1]}\n")
    Path("corpus.txt").write_text("\n".join(TEXTS))


def test_commands_and_python(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = blocks(DOCUMENT, "sh")
    commands = [line.rpartition("| ")[2] for line in block.splitlines()]
    assert len(commands) == 5
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "regard"
        assert run(*arguments, stdin="\n".join(TEXTS).encode()).code == 0
    assert pq.read_table("words").column("text").to_pylist()[4] == "bank"
    monkeypatch.setattr("regard.api.load", test_cli.load)
    code = blocks(DOCUMENT, "python")
    assert len(code) >= 5
    names: dict[str, object] = {}
    exec(compile("\n".join(code), DOCUMENT, "exec"), names)
    assert names["vectors"].shape == (2, 384)  # type: ignore[attr-defined]
