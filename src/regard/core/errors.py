"""Every error that regard raises on purpose.

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
