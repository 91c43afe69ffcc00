"""Names that are imported when they are first used."""

import ast
import compileall
import inspect
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import regard


@pytest.mark.parametrize("package", ["regard", "regard.core", "regard.scaling", "regard.tracing"])
def test_users_get_what_type_checkers_read(package: str) -> None:
    module = import_module(package)
    tree = ast.parse(inspect.getsource(module))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    read = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    find = module.__getattr__
    assert inspect.getclosurevars(find).nonlocals["module_of"] == read
    assert set(read) | {"__version__"} >= set(module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        find("nothing")


def test_bytecode_alone_is_enough(tmp_path: Path) -> None:
    """As bundles of PyInstaller have it: no source beside it."""
    source, copy = Path(regard.__file__).parent, tmp_path / "regard"
    for name in ("__init__", "_lazy", "_threads", "_version", "_collector", "core/__init__", "core/errors"):
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(source / f"{name}.py", copy / f"{name}.py")
    assert compileall.compile_dir(copy, quiet=1, legacy=True)
    for file in copy.rglob("*.py"):
        file.unlink()
    code = "import regard; print(regard.InputError.__name__, regard.__file__.endswith('.pyc'))"
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, check=True)
    assert found.stdout == "InputError True\n"
