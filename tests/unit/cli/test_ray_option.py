"""`--ray` with and without an address."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from regard.cli._app import app
from regard.cli._ray_option import ray_workers, with_address
from regard.core.errors import InputError


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--ray", "auto", "a.txt"], ["--ray=auto", "a.txt"]),
        (["a.txt", "--ray"], ["a.txt", "--ray="]),
        (["--ray", "-o", "out"], ["--ray=", "-o", "out"]),
        (["--ray", "a:b.txt"], ["--ray=", "a:b.txt"]),
        (["--ray", "ray://head.example:10001"], ["--ray=ray://head.example:10001"]),
        (["--ray=", "local"], ["--ray=", "local"]),
        (["--ray=auto", "local"], ["--ray=auto", "local"]),
        (["--", "--ray", "auto"], ["--", "--ray", "auto"]),
        (["--ray", "--", "auto"], ["--ray=", "--", "auto"]),
    ],
)
def test_addresses(arguments: list[str], found: list[str]) -> None:
    assert with_address(arguments) == found


def test_the_command_takes_both() -> None:
    command = typer.main.get_command(app).commands["embed"]  # type: ignore[attr-defined]
    for arguments, address in (
        (["--ray", "a.txt"], ""),
        (["--ray", "h:1", "a.txt"], "h:1"),
        (["a.txt"], None),
    ):
        context = command.make_context("embed", arguments)
        assert (context.params["ray"], context.params["inputs"]) == (address, [Path("a.txt")])


def test_what_does_not_go_with_it(tmp_path: Path) -> None:
    command = typer.main.get_command(app)
    for arguments, told in (
        (["a.txt", "-o", "out", "--workers", "2"], "--workers goes with --ray"),
        (["a.txt", "-o", "-", "--ray"], "--ray writes files"),
        (["a.txt", "--dry-run", "--ray"], "--ray writes files"),
    ):
        with pytest.raises(InputError, match=told):
            command(["embed", *arguments], standalone_mode=False)


def test_nothing_without_the_option() -> None:
    with ray_workers(None, None, "model", {}, print) as workers:
        assert workers is None
