"""Checkpoints on disk: where a model is found, what its files say, and how its tensors become a network's.

Nothing here knows a model family. A family brings its own reading of the fields and its `KeyMap`, which is
data and works both ways; this package finds the folder, checks every byte that it trusts, and either loads
all of a model or raises one error that lists everything which does not fit.
"""

from regard.checkpoints._architecture import HeadKind, head_of, label_names, num_labels
from regard.checkpoints._fields import IGNORED_FIELDS, Fields, read_config, read_config_list
from regard.checkpoints._find import Source, available, find, locate, verify
from regard.checkpoints._get import get, to_get
from regard.checkpoints._hub import BESIDE, MODULES, SENTENCE, inside, licence_of, network_folder
from regard.checkpoints._keymap import ID_BUFFERS, KeyMap, Rename, Shared
from regard.checkpoints._loading import LoadReport, load_into, to_hf, unwrapped
from regard.checkpoints._packages import DEFAULT_DECODER, DEFAULT_MODEL
from regard.checkpoints._safetensors import DTYPES as SAFETENSORS_DTYPES
from regard.checkpoints._safetensors import SafetensorsFile
from regard.checkpoints._tensors import (
    TensorReader,
    WeightsFile,
    read_tensors,
    write_tensors,
)
from regard.checkpoints.gguf import TYPES as BLOCK_TYPES
from regard.checkpoints.gguf import GGUFFile, Packed, is_gguf, open_gguf
