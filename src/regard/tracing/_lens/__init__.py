"""The lens: a transformers model of the user's own, seen like a network of regard's."""

from regard.tracing._lens._implementations import Windows, looking_at
from regard.tracing._lens._lens import lens, lens_network
from regard.tracing._lens._network import LensConfig, LensNetwork

__all__ = ["LensConfig", "LensNetwork", "Windows", "lens", "lens_network", "looking_at"]
