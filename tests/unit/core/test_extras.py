"""Optional packages: what is said where one is missing, and that an extra brings each."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from regard.core.errors import MissingExtraError
from regard.core.extras import missing, pyarrow

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
