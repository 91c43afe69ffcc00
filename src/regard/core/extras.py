"""Optional packages, imported when they are first needed, and the one message where one is not there."""

from importlib import import_module
from typing import Any

from regard.core.errors import MissingExtraError


def missing(needs: str, error: ImportError, *packages: str) -> MissingExtraError:
    """The error for optional packages, with the command that installs them wherever regard itself came from.

    Raise it where an import fails: `raise missing("plots need", error, "matplotlib") from error`. Packages
    have their names on the package index. One that is there and does not import says so.
    """
    *others, last = packages
    names = f"{', '.join(others)} and {last}" if others else last
    if isinstance(error, ModuleNotFoundError):
        state, command = ("are not all" if others else "is not") + " installed", "pip install"
    else:
        state, command = f"cannot be imported ({error})", "pip install -U"
    return MissingExtraError(f"{needs} {names}, which {state}; run: {command} {' '.join(packages)}")


def pyarrow() -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise missing("Parquet files and Arrow tables need", error, "pyarrow") from error
