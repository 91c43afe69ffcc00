"""The lens: a transformers model of the user's own, seen like a network of regard's."""

from regard._lens._lens import lens
from regard._lens._look import LensConfig
from regard._lens._network import LensNetwork

__all__ = [
    "LensConfig",
    "LensNetwork",
    "lens",
]
