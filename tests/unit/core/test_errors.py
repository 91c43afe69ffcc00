"""The tree of errors, and that the messages fit on one line."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import regard.core
from regard.core import errors

TREE = {
    "RegardError": (Exception,),
    "InputError": (errors.RegardError, ValueError),
    "MissingExtraError": (errors.RegardError, ImportError),
    "CheckpointError": (errors.RegardError,),
    "ModelNotFoundError": (errors.CheckpointError,),
    "TrainingError": (errors.RegardError,),
    "OtherProcessError": (errors.TrainingError,),
    "OutputError": (errors.RegardError, OSError),
}


def test_the_tree_is_the_one_that_the_module_draws() -> None:
    classes = {
        name: each
        for name, each in vars(errors).items()
        if inspect.isclass(each) and each.__module__ == errors.__name__
    }
    assert {name: c.__bases__ for name, c in classes.items()} == TREE
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in classes)


@pytest.mark.parametrize("name", TREE)
def test_an_error_prints_as_its_message(name: str) -> None:
    error = getattr(errors, name)("layer must be from 0 to 5; got 6.")
    assert str(error) == "layer must be from 0 to 5; got 6."
    assert isinstance(error, errors.RegardError)


def _messages() -> list[tuple[str, int, str]]:
    """Every string that core raises an error of its own with, expressions left out."""
    found = []
    for path in sorted(Path(regard.core.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                for argument in node.exc.args:
                    text = "".join(
                        part.value
                        for part in ast.walk(argument)
                        if isinstance(part, ast.Constant) and isinstance(part.value, str)
                    )
                    found.append((path.name, node.lineno, text))
    return found


def test_every_message_in_core_is_one_line() -> None:
    messages = _messages()
    assert len(messages) > 25
    for file, line, text in messages:
        assert "\n" not in text, f"{file}:{line} has a line break"
