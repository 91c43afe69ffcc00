"""The model families that regard implements, and loading them.

A family is a file in `families`, which `FAMILIES` lists; the private files there are what several families
share. The files beside that folder are what every network is made of.
"""

from regard.models._attentions import TakesAttention, attention_named
from regard.models._config import FamilyConfig
from regard.models._describe import masks_of, positions_of
from regard.models._heads import (
    LanguageModelHead,
    Projection,
    Reader,
    Unembedding,
    is_linear,
    read_projection,
    read_readers,
    relative_error,
)
from regard.models._loaded import (
    Loaded,
    UnknownFamilyError,
    check_depth,
    count_parameters,
    init_weights,
    load_checkpoint,
    new_network,
)
from regard.models._network import (
    Change,
    Input,
    Kind,
    Network,
    NetworkConfig,
    Output,
    StackKind,
    as_mask,
    attention_name,
    keys_of,
    stack_of,
)
from regard.models._parity import LayerParity, Parity, bound_of, layer_parity, output_error
from regard.models._saving import save_checkpoint, write_checkpoint
from regard.models._state import DecoderState, Encoded
from regard.models._surgery import (
    Heads,
    OfLayers,
    Part,
    attentions,
    check_heads,
    cut,
    has_table,
    head_words,
    heads_told,
    our_own,
    removed_heads,
    removed_words,
    settle,
)
from regard.models._tokenized import Ids, as_named, check_alone, read_ids
from regard.models._transformer import Transformer
from regard.models.families import FAMILIES, family_of

__all__ = [
    "FAMILIES",
    "DecoderState",
    "Encoded",
    "FamilyConfig",
    "Heads",
    "Kind",
    "LayerParity",
    "Loaded",
    "Network",
    "NetworkConfig",
    "Output",
    "Parity",
    "Transformer",
    "init_weights",
    "load_checkpoint",
    "new_network",
    "save_checkpoint",
    "write_checkpoint",
]
