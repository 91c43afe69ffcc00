"""The lens: a transformers model of the user's own, seen like a network of regard's."""

from regard._lens._lens import lens
from regard._lens._look import LensConfig
from regard._lens._masks import TensorMask
from regard._lens._network import LensNetwork
from regard._lens._parity import LayerParity, Parity, bound_of, layer_parity

__all__ = [
    "LayerParity",
    "LensConfig",
    "LensNetwork",
    "Parity",
    "TensorMask",
    "bound_of",
    "layer_parity",
    "lens",
]
