"""The tree of errors, and that the messages fit on one line."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from pathlib import Path

import pytest

import regard.core
from regard.core import errors
from regard.core.errors import MissingExtraError, missing, pyarrow

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


ROOT = Path(__file__).resolve().parents[3]
SOURCES = {file: file.read_text("utf-8") for file in sorted((ROOT / "src").rglob("*.py"))}


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"need pyarrow, which .* run: pip install pyarrow$"):
        pyarrow()


def test_several_packages() -> None:
    error = missing("t5/spiece.model needs", ModuleNotFoundError(), "transformers", "protobuf")
    assert str(error) == (
        "t5/spiece.model needs transformers and protobuf, which are not all installed; "
        "run: pip install transformers protobuf"
    )


def test_every_package_is_one_of_an_extra() -> None:
    """Whoever has the package and whoever has the extra have the same."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    known = {re.split(r"[^\w-]", each)[0] for extra in extras.values() for each in extra}
    packages = {"missing": slice(2, None), "optional": slice(1, 2)}  # the arguments that name them
    named = {
        package.value
        for source in SOURCES.values()
        if any(f"{name}(" in source for name in packages)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in packages
        for package in call.args[packages[call.func.id]]  # type: ignore[attr-defined]
        if isinstance(package, ast.Constant)
    }
    assert {
        "pyarrow",
        "lancedb",
        "scikit-learn",
        "llvmlite",
        "matplotlib",
        "anywidget",
        "ray",
        "transformers",
    } <= named
    assert named <= known


def test_nothing_names_an_extra_of_a_package_index() -> None:
    """regard is on none: `pip install 'regard[...]'` finds nothing."""
    pages = {file: file.read_text("utf-8") for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))}
    assert len(pages) > 10
    named = [file.name for file, text in (SOURCES | pages).items() if "install 'regard[" in text]
    assert named == []
