"""Packages whose names are imported when they are first used."""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from regard._collector import paused


def on_use(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, whose `if TYPE_CHECKING:` says where each name is from.

    Example:
        >>> find, names = on_use("regard.core")
        >>> find("Causal").__module__, "Causal" in names()
        ('regard.core._masks', True)

    Source: PEP 562; that one list serves type checkers and users: Scientific Python's SPEC 1.
    """

    @cache
    def homes() -> dict[str, str]:
        loader: Any = sys.modules[package].__loader__
        for_types = next(
            node for node in ast.parse(loader.get_source(package)).body if isinstance(node, ast.If)
        )
        return {
            alias.name: str(node.module)
            for node in for_types.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def find(name: str) -> object:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with paused():  # what is imported stays
            return getattr(import_module(homes()[name]), name)

    def names() -> list[str]:
        listed: list[str] = sys.modules[package].__all__
        return listed

    return find, names
