"""Options as rows: a default that fits the parameter's type, which mypy cannot see, and words for --help."""

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import typer

from regard.checkpoints import DEFAULT_DECODER, DEFAULT_MODEL
from regard.cli import _options
from regard.cli._app import app


def rows(of: typer.Typer, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The name, type and row of each parameter of each command."""
    for command in of.registered_commands:
        assert command.callback is not None
        types = get_type_hints(command.callback)
        for name, each in inspect.signature(command.callback).parameters.items():
            if hasattr(each.default, "param_decls"):
                yield f"{path} {command.name or command.callback.__name__} {name}", types[name], each.default
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from rows(group.typer_instance, f"{path} {group.name}")


def fits(kind: Any, row: Any) -> bool:
    if row.default is None or row.default is ...:
        return (type(None) in get_args(kind)) == (row.default is None)
    return isinstance(row.default, kind)


def test_a_default_fits_its_parameter() -> None:
    every = list(rows(app, "regard"))
    assert len(every) > 300
    assert [name for name, kind, row in every if not fits(kind, row)] == []
    assert [name for name, _, row in every if not row.help.endswith((".", ")"))] == []


def test_default_model_is_that_of_checkpoints() -> None:
    assert (_options.DEFAULT_MODEL, _options.DEFAULT_DECODER) == (DEFAULT_MODEL, DEFAULT_DECODER)
