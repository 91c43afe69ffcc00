"""The lens: a transformers model of the user's own, seen like a network of regard's."""

from regard.tracing._lens._activations import ACTIVATED_AT_ONCE, is_activation
from regard.tracing._lens._implementations import Windows, looking_at
from regard.tracing._lens._lens import lens, lens_network
from regard.tracing._lens._network import LensConfig, LensNetwork

__all__ = [
    "ACTIVATED_AT_ONCE",
    "LensConfig",
    "LensNetwork",
    "Windows",
    "is_activation",
    "lens",
    "lens_network",
    "looking_at",
]
