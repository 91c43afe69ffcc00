"""How a GGUF file says what a folder says: its fields as those of config.json, its tensors by their names.

Each family lists the architectures of its files, as data. What is read this way is then held to all that a
folder is held to; a field of the file that nobody reads is an error here as there.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from regard.checkpoints import Fields, GGUFFile, KeyMap, Packed, Rename, TensorReader
from regard.core.arguments import one_of
from regard.core.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Files of one `general.architecture`.

    Args:
        model_type: the family's name.
        class_name: the class of `transformers` that such a file was made of.
        fields: the names of fields behind the architecture's own, and those of config.json.
        names: from the tensors' names to those of the family's folders.
        without_gates: the names of feed-forward networks without gates, in a family that has both kinds.
        more: the fields of config.json that follow from others, and from the tensors' names and shapes.
        inert: fields that change nothing.
        in_pairs: whether the rows of queries and keys lie so that neighbours turn together, and not entries
            half a head apart.
        norm_offset: what the file adds to the weights of norms.
        dropped: tensors from which fields are worked out.
    """

    model_type: str
    class_name: str
    fields: Mapping[str, str]
    names: tuple[Rename, ...]
    without_gates: tuple[Rename, ...] = ()
    more: Callable[[Fields, GGUFFile], dict[str, Any]] = lambda fields, file: {}
    inert: frozenset[str] = frozenset()
    in_pairs: bool = False
    norm_offset: float = 0.0
    dropped: frozenset[str] = frozenset({"rope_freqs.weight"})


def config_of(file: GGUFFile, architecture: Architecture) -> Fields:
    """The file's fields as those of config.json.

    Raises:
        CheckpointError: one is missing, of another type, or not known.
    """
    # Fields of the network begin with its architecture: "llama.block_count".
    start = f"{file.fields['general.architecture']}."
    own = Fields(
        file=file.file,
        values={
            name.removeprefix(start): value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in file.fields.items()
            if name.startswith(start)
        },
        path=start,
    )
    values: dict[str, Any] = {
        "model_type": architecture.model_type,
        "architectures": [architecture.class_name],
    }
    # Only what the file has: what is absent gets the family's default.
    values |= {
        name: own.unchecked(theirs) for theirs, name in architecture.fields.items() if theirs in own.values
    }
    values |= architecture.more(own, file)
    # A field that nobody read may change the model: it is refused.
    own.done(_INERT | architecture.inert)
    return Fields(file=file.file, values=MappingProxyType(values))


_INERT: Final = frozenset(
    {
        "vocab_size",  # the rows of the table say it; this may be the number of tokens that have a name
        "pooling_type",  # read where texts become vectors
        "tensor_data_layout",  # which of two converters wrote the file
        "rope.scaling.finetuned",
    }
)
"""Fields of any architecture that change nothing in a network."""


def tensors_of(file: GGUFFile, architecture: Architecture, config: Fields) -> TensorReader:
    """The file's tensors by the names that the family's folders have."""
    # ffn_up means another matrix where there are no gates.
    plain = () if has_gates(file.names()) else architecture.without_gates
    names = KeyMap(rules=(*plain, *architecture.names))  # the first rule that fits counts
    by_name = {
        (names.to_ours(name) or (name,))[0]: name for name in file.names() if name not in architecture.dropped
    }
    view = _View(file, architecture, config)
    return TensorReader(file.file, {hf: (view, name) for hf, name in by_name.items()})


@dataclass(frozen=True)
class _View:
    """A file whose tensors lie as those of a folder."""

    file: GGUFFile
    architecture: Architecture
    config: Fields

    def names(self) -> list[str]:
        return self.file.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.file.shape(name)

    def dtype(self, name: str) -> torch.dtype:
        return self.file.dtype(name)

    def read(self, name: str) -> Tensor:
        # Undo what the converter did: norms, and the order of rows.
        tensor, order = self.file.read(name), self._order(name)
        if self.architecture.norm_offset and name.endswith("norm.weight"):
            tensor = tensor - self.architecture.norm_offset
        return tensor if order is None else tensor[order]

    def packed(self, name: str) -> Packed | None:
        packed, order = self.file.packed(name), self._order(name)
        # Rows can be put in order within their blocks.
        return packed if packed is None or order is None else packed.rows(order)

    def _order(self, name: str) -> Tensor | None:
        """The rows in a folder's order; None where it is the same."""
        # Only queries and keys are turned in pairs.
        heads = _HEADS.get(name.split(".")[-2]) if name.count(".") > 1 else None
        if heads is None or not self.architecture.in_pairs:
            return None
        rows = torch.arange(self.shape(name)[0])
        number = self.config.get(heads, int, self.config.require("num_attention_heads", int))
        # Within a head: (pairs, 2) -> (2, pairs), neighbours become halves.
        order: Tensor = rows.view(number, -1, 2).transpose(1, 2).reshape(-1)
        return order


_HEADS: Final = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
"""The fields with the number of heads of queries and keys, by the names of their tensors."""


def architecture_of(file: GGUFFile, known: Mapping[str, Architecture]) -> Architecture:
    """The architecture of a file, which must be one of those known."""
    name = str(file.fields.get("general.architecture"))
    return known[one_of(f"{file.file}: 'general.architecture'", name, sorted(known), error=CheckpointError)]


def has_gates(names: Collection[str]) -> bool:
    """Whether feed-forward networks are gated."""
    return any(".ffn_gate." in name for name in names)


def sizes_of_heads(fields: Fields) -> dict[str, Any]:
    """The size of a head, where the file gives it: of keys and values alike, and rotated as a whole."""
    # None where heads are d_model / heads.
    size = fields.get("attention.key_length", int, None)
    fields.expect("attention.value_length", (size,), default=size)
    turned = fields.get("rope.dimension_count", int, size)
    heads, width = fields.require("attention.head_count", int), fields.require("embedding_length", int)
    fields.expect("rope.dimension_count", (size or width // max(1, heads),), default=turned)
    return {} if size is None else {"head_dim": size}


def rope_of(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """How far rotary positions are stretched, as `rope_scaling`."""
    kind = fields.get("rope.scaling.type", str, "none")
    factor = fields.get("rope.scaling.factor", float, None)
    original = fields.get("rope.scaling.original_context_length", int, None)
    fields.expect("rope.scaling.attn_factor", (1.0,), default=1.0)
    fields.expect("rope.scaling.yarn_log_multiplier", (0.0,), default=0.0)
    # The numbers themselves overrule what the fields say.
    if "rope_freqs.weight" in file.names():
        return {"rope_scaling": _stretched(file)}
    # Only what has the same words in config.json.
    match kind:
        case "none":
            return {}
        case "linear" if factor in (None, 1.0):
            return {}
        case "linear":
            return {"rope_scaling": {"rope_type": "linear", "factor": factor}}
        case "yarn":
            scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
            return {"rope_scaling": {name: value for name, value in scaling.items() if value is not None}}
    raise CheckpointError(
        f"{fields.file}: the field '{fields.path}rope.scaling.type' must be 'none', 'linear' or 'yarn', all "
        f"that regard reads from a GGUF file; got {kind!r}"
    )


def _stretched(file: GGUFFile) -> dict[str, Any]:
    """The scaling of Llama 3 whose numbers a file has worked out, one for each frequency.

    The file has the factors, but not what they follow from: beyond the largest of them, the only published
    values are tried.
    """
    stored = file.read("rope_freqs.weight").double()
    start = f"{file.fields['general.architecture']}."
    base = file.fields.get(f"{start}rope.freq_base", 10_000.0)
    scaling = {
        "rope_type": "llama3",
        # The slowest frequencies are divided by the whole factor.
        "factor": float(stored.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    count = len(stored)
    # Frequencies without scaling.
    plain = base ** (-torch.arange(count, dtype=torch.float64) / count)
    turns = 8192 * plain / (2 * torch.pi)  # of each frequency, over a text of that length
    # From low_freq_factor 1 to high_freq_factor 4: how much of a frequency stays.
    share = ((turns - 1) / 3).clamp(0, 1)
    # The numbers that these settings give, against those stored.
    if not torch.allclose(stored, 1 / ((1 - share) / stored.max() + share), rtol=1e-4):
        raise CheckpointError(
            f"{file.file}: the factors of 'rope_freqs.weight' must be those of Llama 3, from 8192 tokens on; "
            "regard knows no others"
        )
    return scaling
