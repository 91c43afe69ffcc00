"""GGUF files: models in one file, with weights in blocks of a few bits an entry.

Nothing here knows an architecture: it reads what the file says, and gives its tensors under the file's names.
"""

from regard.checkpoints.gguf._blocks import TYPES, BlockType, Packed
from regard.checkpoints.gguf._file import GGUFFile, is_gguf, open_gguf
