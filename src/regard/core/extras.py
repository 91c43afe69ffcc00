"""Optional packages: imported where they are needed, or an error that says how to install them."""

from importlib import import_module
from typing import Any

from regard.core.errors import MissingExtraError


def missing(needs: str, error: ImportError, *packages: str) -> MissingExtraError:
    """The error for optional packages, with the command that installs them wherever regard itself came from.

    Raise it where an import fails: `raise missing("plots need", error, "matplotlib") from error`. Packages
    have their names on the package index. One that is there and does not import says so.
    """
    # Several packages are named together, the last after "and".
    *others, last = packages
    names = f"{', '.join(others)} and {last}" if others else last
    if isinstance(error, ModuleNotFoundError):
        # Not there at all: install. There but broken: a newer version may help.
        state, command = ("are not all" if others else "is not") + " installed", "pip install"
    else:
        state, command = f"cannot be imported ({error})", "pip install -U"
    return MissingExtraError(f"{needs} {names}, which {state}; run: {command} {' '.join(packages)}")


def optional(needs: str, package: str, *modules: str) -> list[Any]:
    """Modules of an optional package, or the error of `missing`."""
    try:
        return [import_module(name) for name in modules]
    except ImportError as error:
        raise missing(needs, error, package) from error


def pyarrow() -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`."""
    arrow, parquet = optional("Parquet files and Arrow tables need", "pyarrow", "pyarrow", "pyarrow.parquet")
    return arrow, parquet
