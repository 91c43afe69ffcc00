"""Packages whose names are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module

from regard._collector import gc_paused


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Type checkers read the same names under `if TYPE_CHECKING:` there; a test compares the two.

    Args:
        package: its `__name__`.
        homes: for each module the names that come from it, divided by blanks.

    Example:
        >>> find, names = lazy_exports("regard.core", {"regard.core._masks": "Causal Window"})
        >>> find("Causal").__module__, "Causal" in names()
        ('regard.core._masks', True)

    Source: PEP 562.
    """
    module_of = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = module_of[name]
        with nullcontext() if home in sys.modules else gc_paused():  # what is imported stays
            return getattr(import_module(home), name)

    def names() -> list[str]:
        listed: list[str] = sys.modules[package].__all__
        return listed

    return find, names
