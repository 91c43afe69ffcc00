"""The model families that regard implements, and loading them.

A family is a folder of config, network and key map; `FAMILIES` lists them.
"""

from regard.models._describe import masks_of, positions_of
from regard.models._inputs import check_ids
from regard.models._loaded import Loaded, load_checkpoint
from regard.models._network import Network, NetworkConfig, Output, StackKind
from regard.models._registry import FAMILIES, Family, family_of
from regard.models._transformer import Transformer

__all__ = [
    "FAMILIES",
    "Family",
    "Loaded",
    "Network",
    "NetworkConfig",
    "Output",
    "StackKind",
    "Transformer",
    "check_ids",
    "family_of",
    "load_checkpoint",
    "masks_of",
    "positions_of",
]
