"""regard: self-attention made visible, measurable and useful, on real transformers.

    >>> import regard
    >>> model = regard.load()
    >>> trace = model.trace("Write a poem about a man fishing on a river bank.")
    >>> trace.weights(layer=3, head=5, query="bank").shape
    torch.Size([1, 14])

Importing regard does not import torch; the first use of a name does.
"""

import gc as _gc
from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from regard._version import __version__

if TYPE_CHECKING:
    from regard._model import Model, lens, load
    from regard.core.errors import (
        CheckpointError,
        InputError,
        MissingExtraError,
        ModelNotFoundError,
        OutputError,
        RegardError,
    )
    from regard.embedding import Mix, Truncate, Windows
    from regard.tracing import Add, Edit, Mean, Replace, Resample, Scale, Trace, Zero
    from regard.views import view

_HOME = {
    "Add": "tracing",
    "CheckpointError": "core.errors",
    "Edit": "tracing",
    "InputError": "core.errors",
    "Mean": "tracing",
    "MissingExtraError": "core.errors",
    "Mix": "embedding",
    "Model": "_model",
    "ModelNotFoundError": "core.errors",
    "OutputError": "core.errors",
    "RegardError": "core.errors",
    "Replace": "tracing",
    "Resample": "tracing",
    "Scale": "tracing",
    "Trace": "tracing",
    "Truncate": "embedding",
    "Windows": "embedding",
    "Zero": "tracing",
    "lens": "_model",
    "load": "_model",
    "view": "views",
}

__all__ = [
    "Add",
    "CheckpointError",
    "Edit",
    "InputError",
    "Mean",
    "MissingExtraError",
    "Mix",
    "Model",
    "ModelNotFoundError",
    "OutputError",
    "RegardError",
    "Replace",
    "Resample",
    "Scale",
    "Trace",
    "Truncate",
    "Windows",
    "Zero",
    "__version__",
    "lens",
    "load",
    "view",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        # What is imported stays. To collect meanwhile would look through all of torch, some times over.
        collects = _gc.isenabled()
        _gc.disable()
        try:
            return getattr(_import_module(f"{__name__}.{_HOME[name]}"), name)
        finally:
            if collects:
                _gc.enable()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
