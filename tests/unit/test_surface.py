"""The public surface: `__all__` is what users are promised, on a page, documented; nothing starts slowly."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import regard

ROOT = Path(__file__).resolve().parents[2]

HEAVY = ("torch", "transformers", "matplotlib")
"""What takes seconds to import, and what a command that needs none of it must not wait for."""

PACKAGES = [
    "regard",
    *(
        found.name
        for found in pkgutil.walk_packages(regard.__path__, "regard.")
        # The others promise nothing to users: what their `__init__` imports is for other packages.
        if found.ispkg and hasattr(importlib.import_module(found.name), "__all__")
    ),
]


def sort_key(name: str) -> tuple[int, list[int | str]]:
    """Constants, classes, then the rest, numbers by value: ruff's order (RUF022)."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def in_code(text: str) -> str:
    """What of Markdown or of a docstring is code."""
    blocks = re.findall(r"```[^\n]*\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return "\n".join([*blocks, *spans, *re.findall(r"^\s*>>>.*", text, re.MULTILINE)])


def told(value: Any) -> str:
    """Signatures of a public thing and of what it has, and the code in their docstrings."""
    members = [each for name, each in inspect.getmembers(value) if not name.startswith("_")]
    things = [value, *members] if inspect.isclass(value) else [value]
    parts = [str(getattr(value, "__annotations__", ""))]
    for each in things:
        function = each.fget if isinstance(each, property) else each
        if callable(function):
            with suppress(ValueError):  # what C code wrote has no signature
                parts.append(str(inspect.signature(function)))
            parts.append(in_code(inspect.getdoc(function) or ""))
    return "\n".join(parts)


def unpromised(public: dict[str, list[Any]], pages: str) -> set[str]:
    """The names that no page has, and no signature or docstring of a name that is on one."""
    found, new = set[str](), set(re.findall(r"\w+", pages))
    while names := public.keys() & new - found:
        found |= names
        new = set(re.findall(r"\w+", "\n".join(told(value) for name in names for value in public[name])))
    return public.keys() - found


def undocumented(module: types.ModuleType) -> list[str]:
    """The functions and classes in `__all__` without a docstring of their own."""
    return [name for name in module.__all__ if not _documented(getattr(module, name))]


def _documented(value: Any) -> bool:
    if inspect.isclass(value):
        doc = vars(value).get("__doc__") or ""
        return bool(doc) and not doc.startswith(f"{value.__name__}(")  # which dataclass and namedtuple write
    return not inspect.isroutine(value) or bool(value.__doc__)


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_a_sorted_list_of_names_that_resolve(package: str) -> None:
    module = importlib.import_module(package)
    names = list(module.__all__)
    assert names == sorted(set(names), key=sort_key)
    for name in names:
        getattr(module, name)


def test_what_is_public_is_on_a_page_or_led_to_from_one() -> None:
    public: dict[str, list[Any]] = {}
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            public.setdefault(name, []).append(getattr(package, name))
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    code = "\n".join(in_code(page.read_text("utf-8")) for page in pages)
    assert unpromised(public, code) == {"__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_public_is_documented(package: str) -> None:
    assert not undocumented(importlib.import_module(package))


def test_the_rules_catch_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("regard.example")
    source = (
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from collections import namedtuple\n"
        "from dataclasses import dataclass as _dataclass\n"
        "def told(): 'Tell.'\n"
        "def untold(record: Record): pass\n"
        "class Untold(Exception): pass\n"
        "@_dataclass\n"
        "class Record: x: int\n"
        "Pair = namedtuple('Pair', 'a b')\n"
        "LIMIT = 1\n"
        "__all__ = ['LIMIT', 'Pair', 'Record', 'Untold', 'told', 'untold']\n"
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclass looks there
    exec(source, vars(module))
    assert undocumented(module) == ["Pair", "Record", "Untold", "untold"]
    public = {name: [getattr(module, name)] for name in module.__all__}
    assert unpromised(public, in_code("LIMIT\n`told(1)`\n```py\nuntold()\n```\nPair")) == {
        "LIMIT",
        "Pair",
        "Untold",
    }
    mixed = ["b10", "b2", "__version__", "T", "Model", "MAX_2"]
    assert sorted(mixed, key=sort_key) == ["MAX_2", "Model", "T", "__version__", "b2", "b10"]


def test_who_embeds_does_not_wait_for_what_traces() -> None:
    others = (
        "regard.tracing.record._trace",
        "regard.views",
        "regard.models.families.t5",
        "matplotlib",
        "transformers",
    )
    script = (
        "import gc, sys, regard\n"
        "vectors = regard.load().embed(['a river bank'])\n"
        f"print(vectors.shape, gc.isenabled(), [name for name in {others!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "(1, 384) True []", done.stderr


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="Python 3.12 begins with frozen objects")
def test_what_is_imported_is_old_to_the_collector() -> None:
    script = (
        "import gc, sys\n"
        "{first}\n"
        "import regard; regard.InputError\n"
        "made = sys.modules['regard.core.errors']\n"
        "old = any(each is made.__dict__ for each in gc.get_objects(generation=2))\n"
        "print(old, gc.get_freeze_count() > 0)"
    )
    for first, told in (("", "True False"), ("gc.freeze()", "False True")):
        code = script.format(first=first)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.stdout.strip() == told, done.stderr


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import regard", id="import"),
        pytest.param("import regard; dir(regard); regard.__version__", id="dir"),
        pytest.param("sys.argv = ['regard', '--help']; from regard.cli import main; main()", id="help"),
    ],
)
def test_a_light_start(program: str) -> None:
    script = (
        "import sys\n"
        f"try:\n    exec({program!r})\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"
