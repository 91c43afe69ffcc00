"""The model families that regard implements, and loading them.

A family is a folder of config, network and key map; `FAMILIES` lists them.
"""

from regard.models._describe import masks_of, positions_of
from regard.models._heads import LanguageModelHead
from regard.models._inputs import as_mask, check_ids
from regard.models._kinds import Kind, attention_name, keys_of, stack_of
from regard.models._loaded import Loaded, load_checkpoint
from regard.models._network import Network, NetworkConfig, Output, StackKind
from regard.models._prune import heads_told, loads_in, prune, removed_words
from regard.models._prune_curve import CurvePoint, PruningCurve, pruning_curve
from regard.models._prune_order import Importance, removal_order, weakest_heads
from regard.models._reading import LastState
from regard.models._registry import FAMILIES, Family, family_of
from regard.models._saving import check_new_folder, save_checkpoint
from regard.models._surgery import Heads, OfLayers, Part, attentions, removed_heads
from regard.models._transformer import Transformer

__all__ = [
    "FAMILIES",
    "CurvePoint",
    "Family",
    "Heads",
    "Importance",
    "Kind",
    "LanguageModelHead",
    "LastState",
    "Loaded",
    "Network",
    "NetworkConfig",
    "OfLayers",
    "Output",
    "Part",
    "PruningCurve",
    "StackKind",
    "Transformer",
    "as_mask",
    "attention_name",
    "attentions",
    "check_ids",
    "check_new_folder",
    "family_of",
    "heads_told",
    "keys_of",
    "load_checkpoint",
    "loads_in",
    "masks_of",
    "positions_of",
    "prune",
    "pruning_curve",
    "removal_order",
    "removed_heads",
    "removed_words",
    "save_checkpoint",
    "stack_of",
    "weakest_heads",
]
