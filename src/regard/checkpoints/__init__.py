"""Checkpoints on disk: where a model is found, what its files say, and how its tensors become a network's.

Nothing here knows a model family. A family brings its own reading of the fields and its `KeyMap`, which is
data and works both ways; this package finds the folder, checks every byte that it trusts, and either loads
all of a model or raises one error that lists everything which does not fit.
"""

from regard.checkpoints._architecture import HEADS, HeadKind, head_of, label_names, num_labels
from regard.checkpoints._fields import Fields, read_config, read_config_list
from regard.checkpoints._find import Source, available, find, locate, verify
from regard.checkpoints._ignored import IGNORED_FIELDS
from regard.checkpoints._keymap import KeyMap
from regard.checkpoints._layout import BESIDE, MODULES, SENTENCE, network_folder
from regard.checkpoints._licence import licence_of
from regard.checkpoints._loading import LoadReport, load_into, to_hf
from regard.checkpoints._packages import DEFAULT_MODEL
from regard.checkpoints._rules import ID_BUFFERS, Rename, Shared
from regard.checkpoints._safetensors import DTYPES as SAFETENSORS_DTYPES
from regard.checkpoints._safetensors import SafetensorsFile
from regard.checkpoints._tensors import TensorReader, read_tensors, write_tensors
from regard.checkpoints._wrappers import unwrapped

__all__ = [
    "BESIDE",
    "DEFAULT_MODEL",
    "HEADS",
    "ID_BUFFERS",
    "IGNORED_FIELDS",
    "MODULES",
    "SAFETENSORS_DTYPES",
    "SENTENCE",
    "Fields",
    "HeadKind",
    "KeyMap",
    "LoadReport",
    "Rename",
    "SafetensorsFile",
    "Shared",
    "Source",
    "TensorReader",
    "available",
    "find",
    "head_of",
    "label_names",
    "licence_of",
    "load_into",
    "locate",
    "network_folder",
    "num_labels",
    "read_config",
    "read_config_list",
    "read_tensors",
    "to_hf",
    "unwrapped",
    "verify",
    "write_tensors",
]
