"""The lens: a transformers model of the user's own, seen like a network of regard's."""

from regard._lens._activations import ACTIVATED_AT_ONCE, is_activation
from regard._lens._implementations import Windows, looking_at
from regard._lens._lens import lens, lens_network
from regard._lens._masks import TensorMask
from regard._lens._network import LensConfig, LensNetwork
from regard._lens._parity import LayerParity, Parity, bound_of, layer_parity

__all__ = [
    "ACTIVATED_AT_ONCE",
    "LayerParity",
    "LensConfig",
    "LensNetwork",
    "Parity",
    "TensorMask",
    "Windows",
    "bound_of",
    "is_activation",
    "layer_parity",
    "lens",
    "lens_network",
    "looking_at",
]
