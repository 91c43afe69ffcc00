"""Packages whose names are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from regard._collector import paused


def on_use(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        homes: the module in it that each name is from.

    Example:
        >>> find, _ = on_use("regard.core", {"Causal": "_masks"})
        >>> find("Causal").__module__
        'regard.core._masks'

    Source: PEP 562.
    """

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with paused():  # what is imported stays
            return getattr(import_module(f"{package}.{homes[name]}"), name)

    def names() -> list[str]:
        listed: list[str] = sys.modules[package].__all__
        return listed

    return find, names
