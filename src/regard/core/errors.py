"""Every error that regard raises on purpose; and optional packages, whose absence is one.

    RegardError
    ├── InputError            an argument that the caller can correct (also a ValueError)
    ├── MissingExtraError     an optional dependency that is not installed (also an ImportError)
    ├── CheckpointError       a model's files are damaged, unknown or do not fit together
    │   └── ModelNotFoundError    nothing of that name can be loaded from here
    ├── TrainingError         training cannot go on: the loss is no number, or memory ran out
    │   └── OtherProcessError     another process of the run has ended, and says why
    └── OutputError           a result could not be written (also an OSError)

A message names the argument, what was wanted, what came and the way out, in one line: the command line
prints it as it stands.
"""

from importlib import import_module
from typing import Any


class RegardError(Exception):
    """The root of regard's own errors; catching it catches nothing else."""


class InputError(RegardError, ValueError):
    """An argument that the caller can correct: a word that is not in the text, a layer out of range."""


class MissingExtraError(RegardError, ImportError):
    """An optional dependency is not installed; the message gives the `pip install` line."""


class CheckpointError(RegardError):
    """A model's files are damaged, unknown, or do not fit together."""


class ModelNotFoundError(CheckpointError):
    """Nothing of that name can be loaded from here; the message lists near names and how to get one."""


class TrainingError(RegardError):
    """Training cannot go on; what was saved before is whole."""


class OtherProcessError(TrainingError):
    """Another process of the run has ended and said why; this one ends too, silently."""


class OutputError(RegardError, OSError):
    """A result could not be written; nothing half-written is left behind."""


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
