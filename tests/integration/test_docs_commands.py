"""Every command that a page shows is one that the command line understands; most of them other tests run."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from regard.cli._app import app
from regard.core.errors import InputError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "benchmarks/results/README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(page: Path) -> list[str]:
    """The commands in blocks and in indented lines, without what the shell does with their output."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$|^    (regard .*)$", text, re.DOTALL | re.MULTILINE)
    code = re.sub(r"\\\n\s*", "", "\n".join(map("".join, blocks)))
    lines = re.findall(r"^(?:.* \| )?regard ([a-z].*)$", code, re.MULTILINE)
    return [re.split(r" [<>|] ", line)[0] for line in lines]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_commands_are_understood(page: Path) -> None:
    for line in commands(page):
        command, words = typer.main.get_command(app), shlex.split(line, comments=True)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        try:
            command.check_together(command.make_context(line, words))  # type: ignore[attr-defined]
        except (InputError, typer.BadParameter.__base__) as error:  # type: ignore[misc]
            pytest.fail(f"regard {line}: {error}")
