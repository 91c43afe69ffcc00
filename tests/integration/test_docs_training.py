"""docs/howto/training.md: commands and Python run, and the table of settings is that of the dataclasses."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.training import Settings, WordSettings, as_mapping
from regard.training.tasks import TASKS

DOCS = Path(__file__).parents[2] / "docs"
PAGE, WORDS = DOCS / "howto" / "training.md", DOCS / "ideas" / "static.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def told(kind: type[Any]) -> dict[str, str]:
    """What the docstring says of each field."""
    arguments = re.split(r"\n(?=\w+:\n)", cleandoc(kind.__doc__ or "").split("Args:\n")[1])[0]
    entries = re.findall(r"^    ((?:\w+, )*\w+): (.*?)(?=^    \w|\Z)", arguments, re.DOTALL | re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def rows(values: Any, plain: Any, path: str = "") -> Iterator[str]:
    words = told(type(values))
    for each in fields(values):
        value, own = getattr(values, each.name), plain[each.name]
        if is_dataclass(value):
            yield from rows(value, own, f"{path}{each.name}.")
        elif path or each.name != "objective":
            default = "" if own in (None, [], {}) else f"`{json.dumps(own)}`"
            yield f"| `{path}{each.name}` | {default} | {words[each.name]} |"


@pytest.mark.parametrize(
    ("page", "settings"),
    [(PAGE, Settings(objective="")), (WORDS, WordSettings(objective=""))],
    ids=["training", "words"],
)
def test_the_table_is_that_of_the_settings(page: Path, settings: Any) -> None:
    table = "\n".join(["| setting | default | |", "|---|---|---|", *rows(settings, as_mapping(settings))])
    assert table in page.read_text(encoding="utf-8"), f"the table should be\n{table}"


def test_every_objective_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| (?:en|de)coder", PAGE.read_text(), re.MULTILINE)) == set(TASKS)


def test_its_python_and_its_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    texts, training = blocks("python")
    exec(compile(texts, str(PAGE), "exec"), {})
    quick = "--steps 1 --set model.d_model=8 --set batch.length=16"
    for line in "".join(blocks("sh")).splitlines():
        command, _, file = line.replace("--steps 200", quick).partition(" > ")
        monkeypatch.setattr("sys.argv", shlex.split(command, comments=True))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, (line, capsys.readouterr().err)
        if file:
            text = re.sub(r"# steps =", "steps = 1", capsys.readouterr().out)
            Path(file).write_text(text.replace("[model]", "[model]\nd_model = 8"))
    capsys.readouterr()
    exec(compile(training, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == blocks("text")[0]
    assert Path("curves.svg").is_file()
