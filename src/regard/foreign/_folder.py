"""Checkpoints of any type: by regard's own code for its families, else by transformers under the lens."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints import DEFAULT_MODEL, network_folder, read_config, read_tensors
from regard.core.errors import CheckpointError, InputError
from regard.core.files import read_object
from regard.core.wording import joined, reason
from regard.foreign._implementations import library, silent
from regard.foreign._lens import LensNetwork
from regard.models import Loaded, UnknownFamilyError, check_depth, load_checkpoint
from regard.text import Tokenizer

# Some types run through one set of tensors again and again: layers are bounded by this, or by the
# tensors.
_LAYERS_AT_MOST = 1000


def load(
    name: str | PathLike[str] = DEFAULT_MODEL,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    leave_out: Sequence[str] = (),
    packed: bool = True,
) -> Loaded:
    """A checkpoint as `load_checkpoint` reads it, or of another type of transformers; then `notes` says so.

    Raises:
        ModelNotFoundError, CheckpointError, InputError: as there; what the lens refuses is a CheckpointError.
        MissingExtraError: it is of another type, and transformers is not installed.
    """
    try:
        return load_checkpoint(name, dtype=dtype, device=device, leave_out=leave_out, packed=packed)
    except UnknownFamilyError as error:
        unknown, kind = error, error.model_type
    folder = network_folder(unknown.source.folder)
    fields = read_config(folder).values
    transformers = library(f"{folder}: {kind!r} is no family of regard's own; the lens, for others, needs")
    if kind not in transformers.CONFIG_MAPPING:
        # Code of a stranger is for the user to run, not for regard.
        way = _by_hand(folder, "AutoModel", ", trust_remote_code=True") if "auto_map" in fields else "."
        raise CheckpointError(
            f"{unknown} transformers {transformers.__version__} has no such type either{way}"
        )
    if leave_out:
        raise InputError(f"leave_out must be empty for {kind!r}, which transformers reads, not regard.")
    try:
        # transformers' own warnings would say what is said below.
        with silent():
            hf_model, left_out = _built(transformers, folder, fields, dtype or "auto")
            network = LensNetwork(hf_model.to(device))
    # The lens speaks of hf_model, which the user of a folder has not seen.
    except InputError as error:
        raise CheckpointError(f"{folder}: {str(error).removeprefix('hf_model ')}") from error
    names = transformers.models.auto.tokenization_auto.TOKENIZER_MAPPING_NAMES
    tokenizer = Tokenizer.from_folder(folder, tokenizer_class=names.get(kind) or "")
    return Loaded(
        network=network,
        tokenizer=None if tokenizer is None else tokenizer.within(network.config.vocab_size),
        source=unknown.source,
        family=kind,
        left_out=left_out,
        notes=(f"{kind} is no family of regard's own: transformers runs it, seen through the lens",),
    )


def _built(
    transformers: Any, folder: Path, fields: Mapping[str, Any], dtype: Any
) -> tuple[Any, tuple[str, ...]]:
    """The model of transformers, and the stored tensors that it does not have.

    It gets numbers and settings, never the folder: there it would look for code, adapters and other files.
    """
    reader, ways = read_tensors(folder), folder / "generation_config.json"
    # A config may ask for any number of layers: more than this would be built in vain.
    check_depth(folder, fields, max(_LAYERS_AT_MOST, len(reader.names())))
    writing = read_object(ways) if ways.exists() else None
    named = fields.get("architectures")
    # The class that wrote the weights; its base model where it is none.
    architecture = str(named[0]) if isinstance(named, list) and named else "AutoModel"
    try:
        config = transformers.CONFIG_MAPPING[fields["model_type"]].from_dict(_without_kernels(dict(fields)))
        # A name from a file: only a class of models is taken.
        candidate = getattr(transformers, architecture, None)
        is_model = isinstance(candidate, type) and issubclass(candidate, transformers.PreTrainedModel)
        cls: Any = candidate if is_model else transformers.MODEL_MAPPING[type(config)]
        hf_model, loading = cls.from_pretrained(
            None,
            config=config,
            # Tensors as they are: transformers compares names and shapes.
            state_dict={name: reader.read(name) for name in reader.names()},
            dtype=dtype,
            generation_config=None if writing is None else transformers.GenerationConfig(**writing),
            local_files_only=True,
            # Shapes that do not fit are refused below, by their names.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except CheckpointError:
        raise
    except Exception as error:  # whatever a file that does not fit runs into there
        why = f"transformers cannot load it ({type(error).__name__}: {reason(error)[:300]})"
        raise CheckpointError(f"{folder}: {why}{_by_hand(folder, architecture)}") from error
    # Whatever would have been drawn at random.
    unfit = {
        *loading["missing_keys"],
        *loading.get("error_msgs", ()),
        *(each[0] for each in loading["mismatched_keys"]),
    }
    if unfit:
        raise CheckpointError(
            f"{folder}: the weights do not fit the network; not stored in this shape, so that transformers "
            f"would draw them at random: {joined(sorted(unfit), 5)}{_by_hand(folder, architecture)}"
        )
    return hf_model, tuple(sorted(loading["unexpected_keys"]))


def _without_kernels(value: Any) -> Any:
    """The fields without those that choose how the same is computed: transformers would fetch a kernel."""
    if not isinstance(value, dict):
        return value
    # Fields such as `_attn_implementation` and `experts_implementation`.
    kept = {name: each for name, each in value.items() if "_implementation" not in name}
    return {name: _without_kernels(each) for name, each in kept.items() if name != "fusion_config"}


def _by_hand(folder: Path, architecture: str, more: str = "") -> str:
    """The lines that load it in Python, as the end of a sentence."""
    return (
        ". In Python, as you see fit: "
        f"hf_model = transformers.{architecture}.from_pretrained({str(folder)!r}{more}); "
        f"model = regard.lens(hf_model, transformers.AutoTokenizer.from_pretrained({str(folder)!r}))"
    )
