"""Options that messages name are there to be typed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from regard.cli._app import app

SOURCE = Path(__file__).parents[3] / "src" / "regard"
OF_OTHERS = {
    *("--local-dir", "--no-deps", "--only-binary", "--no-index", "--force-reinstall"),  # of hf and pip
    *("--disable-gpu", "--headless"),  # of browsers
}


def options(command: click.Command) -> Iterator[str]:
    for each in command.params:
        yield from (name for name in (*each.opts, *each.secondary_opts) if name.startswith("--"))
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)


def named(file: Path) -> set[str]:
    """Those in strings of its code that are no docstring."""
    tree = ast.parse(file.read_text("utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in told
    )
    return {
        name
        for string in strings
        if isinstance(string, str)
        for name in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w=/-]*:)", string)
    }


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCE.iterdir() if path.is_dir()))
def test_what_a_message_names_can_be_typed(package: str) -> None:
    there = {*options(typer.main.get_command(app)), "--help", "--version", *OF_OTHERS}
    missing = {
        f"{file.relative_to(SOURCE)}: {name}"
        for file in (SOURCE / package).rglob("*.py")
        for name in named(file) - there
    }
    assert missing == set()
