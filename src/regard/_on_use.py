"""Packages whose names are imported when they are first used."""

import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module


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
        # What is imported stays. To collect meanwhile would look through all of torch, some times over.
        collects = gc.isenabled()
        gc.disable()
        try:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        finally:
            if collects:
                _to_oldest()
                gc.enable()

    def names() -> list[str]:
        listed: list[str] = sys.modules[package].__all__
        return listed

    return find, names


def _to_oldest() -> None:
    """Move all objects to the collector's oldest generation, so that the next collection is a small one."""
    if not gc.get_freeze_count():  # else somebody froze objects, and they are to stay so
        gc.freeze()
        gc.unfreeze()
