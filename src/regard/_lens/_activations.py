"""Which modules of transformers are activation functions, for the forecast of a trace's memory."""

from typing import Final

from torch import nn

ACTIVATED_AT_ONCE: Final = 64
"""Rows of a text that the forecast looks at."""


def is_activation(module: nn.Module) -> bool:
    """Whether a module is one of transformers' activation functions, which go entry by entry."""
    return type(module).__module__ == "transformers.activations"
