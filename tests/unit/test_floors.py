"""Imports only point down: the floors of CONTRIBUTING.md, checked in the syntax tree of every source file.

Function-local imports and those under TYPE_CHECKING count, and so does `import_module("...")`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.test_budget import code_lines

SRC = Path(__file__).resolve().parents[2] / "src"

FLOORS = {
    "__main__": 12,
    "cli": 11,
    "serving": 10,
    "api": 9,
    "concordance": 8,
    "training": 7,
    "decoding": 6,
    "embedding": 6,
    "scaling": 6,
    "pruning": 5,
    "tracing": 5,
    "foreign": 4,
    "models": 3,
    "blocks": 2,
    "words": 2,
    "positions": 1,
    "checkpoints": 1,
    "text": 1,
    "views": 1,
    "data": 1,
    "core": 0,
    "kernels": 0,
    "_collector": -2,
    "_lazy": -1,
    "_threads": -1,
    "_version": -1,
}
# Rooms within a floor, held to the same rule among themselves. What lies beside them is their top.
STOREYS = {
    "tracing": {
        "pages": 4,
        "comparison": 3,
        "reasons": 3,
        "measures": 2,
        "edits": 2,
        "patterns": 2,
        "run": 1,
        "record": 0,
    }
}
ROOF = 12
"""The floor of `regard/__init__.py`, which no module inside may import anything from."""

ONLY_IN: dict[str, frozenset[str]] = {
    # Modules that Windows lacks.
    "fcntl": frozenset({"regard.core.files"}),
    **dict.fromkeys(("grp", "posix", "pty", "pwd", "syslog", "termios", "tty"), frozenset[str]()),
    "resource": frozenset({"regard.text._template"}),  # which can do without, unbounded
    "transformers": frozenset(
        {
            "regard.text._sentencepiece",
            "regard.foreign._implementations",
            "regard.models.modeling_regard_pruned",  # copied beside a checkpoint; never imported by regard
        }
    ),
}
"""Modules of others that only these modules of regard may import."""


parsed = functools.cache(ast.parse)


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What is wrong with the imports in `source`, the text of the module with the dotted name `module`."""
    home = _room(module)
    if home is not None and home not in FLOORS:
        return [f"{module}: {home} has no floor; give it one here and in CONTRIBUTING.md"]
    found = []
    for line, target, name in _imports(parsed(source), module, is_package):
        if (problem := _problem(module, home, target, name)) is not None:
            found.append(f"{module}:{line}: {problem}")
    return found


def _problem(module: str, home: str | None, target: str, name: str | None) -> str | None:
    top = target.partition(".")[0]
    if top != "regard":
        allowed = ONLY_IN.get(top)
        return None if allowed is None or module in allowed else f"{top} may not be imported here"
    if target == "regard" and name in FLOORS:  # from regard import core
        target, name = f"regard.{name}", None
    room = _room(target)
    if room is None:
        return None if home is None else f"regard.{name or ''} is the roof: import from the floor that has it"
    if room not in FLOORS:
        return f"{target} has no floor; give it one here and in CONTRIBUTING.md"
    if room == home:
        return _within(module, room, target, name)
    floor, ceiling = FLOORS[room], ROOF if home is None else FLOORS[home]
    if floor >= ceiling:
        return f"{target} is on floor {floor}, which is not below floor {ceiling}"
    inner = [*target.split(".")[2:], *([name] if name is not None else [])]
    if private := [part for part in inner if part.startswith("_") and not part.startswith("__")]:
        return f"{target}: {private[0]} is private to {room}"
    return None


def _within(module: str, room: str, target: str, name: str | None) -> str | None:
    """As `_problem`, between the rooms of one package that has storeys."""
    storeys = STOREYS.get(room)
    if storeys is None:
        return None
    here, *_ = [*module.split(".")[2:], ""]
    there, *rest = [*target.split(".")[2:], *([name] if name is not None else []), ""]
    if here == there or (here not in storeys and here.startswith("_")) or not here:
        return None  # its own room, or the top
    if there not in storeys:
        return f"{target} is the top of {room}"
    if storeys[there] >= storeys[here]:
        return f"{room}.{there} is on storey {storeys[there]}, which is not below storey {storeys[here]}"
    if private := [part for part in rest if part.startswith("_") and not part.startswith("__")]:
        return f"{target}: {private[0]} is private to {room}.{there}"
    return None


def _room(module: str) -> str | None:
    """The package or module on a floor that `module` belongs to; None for `regard` itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def _imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name) for `from module import name`, with name None for `import module`."""
    package = module if is_package else module.rpartition(".")[0]

    def absolute(dots: int, rest: str) -> str:
        parts = package.split(".")
        return ".".join([*parts[: len(parts) - dots + 1], *([rest] if rest else [])]) if dots else rest

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, None
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, absolute(node.level, node.module or ""), alias.name
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            first = node.args[0]
            if (
                str(called).strip("_") in ("import_module", "import")
                and isinstance(first, ast.Constant)
                and isinstance(first.value, str)
            ):
                rest = first.value.lstrip(".")
                yield node.lineno, absolute(len(first.value) - len(rest), rest), None


def _modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((SRC / "regard").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def test_imports_point_strictly_down() -> None:
    found = []
    for module, path in _modules():
        found += violations(path.read_text("utf-8"), module, is_package=path.name == "__init__.py")
    assert found == []


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Modules that import each other, by way of others too: what is left when no end can be taken away."""
    left = {module: set(targets) for module, targets in imports.items()}
    while ends := {module for module, targets in left.items() if not targets & left.keys()}:
        left = {module: targets for module, targets in left.items() if module not in ends}
    while starts := {module for module in left if not any(module in targets for targets in left.values())}:
        left = {module: targets for module, targets in left.items() if module not in starts}
    return [set(left)] if left else []


def test_no_module_stands_in_a_circle() -> None:
    """Imports within functions and for type checkers count."""
    modules = dict(_modules())
    imports = {}
    for module, path in modules.items():
        found = _imports(parsed(path.read_text("utf-8")), module, path.name == "__init__.py")
        named = {f"{target}.{name}" if f"{target}.{name}" in modules else target for _, target, name in found}
        imports[module] = named - {module}
    assert circles(imports) == []


def test_a_circle_is_found() -> None:
    around = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set(), "e": {"a"}}
    assert circles(around) == [{"a", "b", "c"}]
    assert circles({"a": {"b"}, "b": set()}) == []


MOST_LINES = 360
"""Of code: what explains it is free."""


def test_no_file_is_too_long_to_read() -> None:
    long = {name: count for name, path in _modules() if (count := code_lines(path)) > MOST_LINES}
    assert long == {}


def test_every_module_is_walked() -> None:
    walked = {name for name, _ in _modules()}
    assert {"regard", "regard._version", "regard.core", "regard.core.errors"} <= walked


def test_contributing_lists_what_is_there() -> None:
    text = (SRC.parent / "CONTRIBUTING.md").read_text("utf-8")
    listed = {
        name: int(floor)
        for floor, names in re.findall(r"^\| (\d+) \| ((?:`[^`]+` ?)+)\|", text, re.MULTILINE)
        for name in re.findall(r"`(\w+?)(?:\.py|/)?`", names)
    }
    assert listed.pop("__init__") == ROOF
    there = {name for name in FLOORS if next((SRC / "regard").glob(f"{name}*"), None) is not None}
    assert listed == {name: FLOORS[name] for name in there if FLOORS[name] >= 0}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("regard.models", "from regard.core import attention"),
        ("regard.models", "from regard import core"),
        ("regard.models.bert", "from regard.core.errors import RegardError"),
        ("regard.models.bert", "from ..core import errors"),
        ("regard.core._softmax", "from regard.core._mask import _rows"),
        ("regard.core._softmax", "from ._mask import rows"),
        ("regard.core._softmax", "from . import _mask"),
        ("regard.core", "from regard._version import __version__"),
        ("regard.serving", "from regard.api import Model"),
        ("regard.__main__", "from regard.cli import main"),
        ("regard", "from regard.api import Model"),
        ("regard", "from regard import cli"),
        ("regard.core", "import math, torch\nfrom collections import abc"),
        ("regard.cli", "import_module('.look', __package__)"),
        ("regard.cli", "import_module(name)"),
        ("regard.tracing.run._run", "from regard.tracing.record import Trace"),
        ("regard.tracing.run", "from regard.tracing.run._run import TraceOfRun"),
        ("regard.tracing._trace", "from regard.tracing import edits, measures"),
    ],
)
def test_what_is_allowed(module: str, source: str) -> None:
    assert not violations(source, module, is_package=module.count(".") == 1)


@pytest.mark.parametrize(
    ("module", "source", "why"),
    [
        ("regard.core", "from regard.blocks import x", "not below"),
        ("regard.core", "import regard.blocks", "not below"),
        ("regard.core", "import regard.blocks as b", "not below"),
        ("regard.core", "import math, regard.blocks", "not below"),
        ("regard.core", "from regard import core, blocks", "not below"),
        ("regard.core._a", "from ..blocks import x", "not below"),
        ("regard.core", "from ..blocks import x", "not below"),
        ("regard.core._a", "from .. import blocks", "not below"),
        ("regard.models.bert._a", "from ...tracing import x", "not below"),
        ("regard.text", "from regard.views import x", "not below"),
        ("regard.decoding", "from regard.embedding import x", "not below"),
        ("regard.core", "def f():\n    from regard.cli import x", "not below"),
        ("regard.core", "if TYPE_CHECKING:\n    from regard.models import x", "not below"),
        ("regard.core", "importlib.import_module('regard.cli')", "not below"),
        ("regard.core", "import_module('..cli', __package__)", "not below"),
        ("regard.core", "__import__('regard.cli')", "not below"),
        ("regard._version", "from regard.core import x", "not below"),
        ("regard.cli", "import regard", "the roof"),
        ("regard.cli", "from regard import load", "the roof"),
        ("regard.cli", "from .. import load", "the roof"),
        ("regard.cli", "from regard import *", "the roof"),
        ("regard.models", "from regard.core._softmax import softmax", "private"),
        ("regard.models", "from regard.core import _softmax", "private"),
        ("regard.models", "import regard.core._softmax", "private"),
        ("regard", "from regard.core._softmax import softmax", "private"),
        ("regard.cli", "from regard.api import _checked", "private"),
        ("regard.tracing", "from regard.models.bert._net import x", "private"),
        ("regard.tracing.record._trace", "from regard.tracing.run import x", "not below"),
        ("regard.tracing.edits._a", "from regard.tracing.patterns import x", "not below"),
        ("regard.tracing.run._a", "from regard.tracing.record._keep import x", "private"),
        ("regard.tracing.run._a", "from regard.tracing import Trace", "the top"),
        ("regard.utils", "", "no floor"),
        ("regard._helpers", "import math", "no floor"),
        ("regard.cli", "from regard.utils import x", "no floor"),
        ("regard.models", "import transformers", "transformers"),
        ("regard.models", "def f():\n    from transformers.utils import x", "transformers"),
        ("regard", "import transformers", "transformers"),
    ],
)
def test_what_is_refused(module: str, source: str, why: str) -> None:
    (problem,) = violations(source, module, is_package=module.count(".") == 1)
    assert why in problem
