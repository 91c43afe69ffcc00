"""Packages whose names are imported when they are first used, while the garbage collector pauses."""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module


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


@contextmanager
def gc_paused() -> Iterator[None]:
    """Nothing is collected inside: each time it would look through all of torch, for a tenth of a second."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            _to_oldest()
            gc.enable()


def _to_oldest() -> None:
    """Move all objects to the collector's oldest generation, so that the next collection is a small one."""
    if not gc.get_freeze_count():  # else somebody froze objects, and they are to stay so
        gc.freeze()
        gc.unfreeze()
