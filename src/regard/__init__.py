"""regard: self-attention made visible, measurable and useful, on real transformers.

    >>> import regard
    >>> model = regard.load()
    >>> trace = model.trace("Write a poem about a man fishing on a river bank.")
    >>> trace.weights(layer=3, head=5, query="bank").shape
    torch.Size([1, 14])

Importing regard does not import torch; the first use of a name does.
"""

from typing import TYPE_CHECKING

from regard._lazy import lazy_exports as _lazy_exports
from regard._threads import wait_asleep as _wait_asleep
from regard._version import __version__

if TYPE_CHECKING:
    from regard.api import Model, lens, load
    from regard.concordance import Concordance
    from regard.core.errors import (
        CheckpointError,
        InputError,
        MissingExtraError,
        ModelNotFoundError,
        OutputError,
        RegardError,
    )
    from regard.decoding import Beams, Draft, Lookup, Sampling
    from regard.embedding import Mix, Truncate, Windows
    from regard.tracing import Add, Edit, Mean, Replace, Resample, Scale, Trace, Write, Zero
    from regard.views import view

__all__ = [
    "Add",
    "Beams",
    "CheckpointError",
    "Concordance",
    "Draft",
    "Edit",
    "InputError",
    "Lookup",
    "Mean",
    "MissingExtraError",
    "Mix",
    "Model",
    "ModelNotFoundError",
    "OutputError",
    "RegardError",
    "Replace",
    "Resample",
    "Sampling",
    "Scale",
    "Trace",
    "Truncate",
    "Windows",
    "Write",
    "Zero",
    "__version__",
    "lens",
    "load",
    "view",
]

_wait_asleep()
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "regard.api": "Model lens load",
        "regard.concordance": "Concordance",
        "regard.core.errors": (
            "CheckpointError InputError MissingExtraError ModelNotFoundError OutputError RegardError"
        ),
        "regard.decoding": "Beams Draft Lookup Sampling",
        "regard.embedding": "Mix Truncate Windows",
        "regard.tracing": "Add Edit Mean Replace Resample Scale Trace Write Zero",
        "regard.views": "view",
    },
)
