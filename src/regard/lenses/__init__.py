"""The lens: a transformers model of the user's own, seen like a network of regard's."""

from regard.lenses._lens import lens
from regard.lenses._look import LensConfig
from regard.lenses._network import LensNetwork

__all__ = [
    "LensConfig",
    "LensNetwork",
    "lens",
]
