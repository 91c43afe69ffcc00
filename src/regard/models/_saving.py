"""A model written as a folder for regard, and for other libraries where config.json has words for it."""

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from regard.blocks import unpacked
from regard.checkpoints import (
    BESIDE,
    IGNORED_FIELDS,
    MODULES,
    licence_of,
    network_folder,
    read_config,
    to_hf,
    write_tensors,
)
from regard.core.arguments import path_of
from regard.core.errors import InputError, OutputError
from regard.core.files import folder_to_disk, read_objects
from regard.core.wording import reason
from regard.models._loaded import Loaded
from regard.models._network import Network
from regard.models._surgery import CODE, our_own, pruned_fields
from regard.models._transformer import Transformer
from regard.models.families import family_of
from regard.text import Tokenizer, write_tokenizer

# These fields change no number: they say where a file comes from, not what it is.
_NOT_CARRIED = frozenset(
    {
        *("_commit_hash", "_name_or_path", "name_or_path", "transformers_version", "transformers.js_config"),
        *("architectures", "model_type", "dtype", "torch_dtype"),
    }
)

# What a classifier's config writes itself.
_OF_LABELS = frozenset({"id2label", "label2id", "num_labels", "_num_labels"})


def save_checkpoint(loaded: Loaded, folder: str | PathLike[str]) -> Path:
    """Write a model: config.json, model.safetensors, and its tokenizer's files as they were.

    The folder appears under its name only when it is whole. Tensors that were left out when the model was
    loaded, such as another task's head, are not in it.

    Args:
        loaded: the model.
        folder: the new folder; the one above must exist.

    Returns:
        The folder.

    Raises:
        InputError: the model is a lens on somebody else's, or has edits on it.
        CheckpointError: the folder that the model came from is gone, whose other files go along.
        OutputError: there is something of that name, or it cannot be written; nothing is left behind.

    Example:
        >>> from pathlib import Path
        >>> from regard.models import save_checkpoint
        >>> import tempfile
        >>> from regard.models import load_checkpoint
        >>> with tempfile.TemporaryDirectory() as above:
        ...     saved = save_checkpoint(load_checkpoint(), Path(above) / "copy")
        ...     load_checkpoint(saved).network.config.num_heads
        12
    """
    # A GGUF file has no files to carry over: what it says is written anew.
    source = loaded.source.folder
    if loaded.source.is_file:
        return write_checkpoint(
            our_own(loaded.network), folder, tokenizer=loaded.tokenizer, card=_card(loaded)
        )
    return _write(
        our_own(loaded.network),
        folder,
        carried=_carried(loaded),
        card=_card(loaded),
        beside=lambda target: _copy_beside(source, target),
    )


def write_checkpoint(
    network: Network,
    folder: str | PathLike[str],
    *,
    tokenizer: Tokenizer | None = None,
    carried: Mapping[str, Any] | None = None,
    card: str = "# A model\n\nWritten by regard.\n",
) -> Path:
    """Write a network that came from no folder: one that was made by `new_network` and trained.

    config.json, with the names of the labels if the config has them, model.safetensors, and tokenizer.json
    with tokenizer_config.json: what `load_checkpoint` and `transformers` read. The folder appears under its
    name only when it is whole.

    Args:
        network: the network.
        folder: the new folder; the one above must exist.
        tokenizer: its tokenizer; None for none. Its ids of `bos` and `eos` go into config.json too.
        carried: more fields of config.json that change no number, such as "problem_type".
        card: the text of README.md.

    Returns:
        The folder.

    Raises:
        InputError: the network is a lens on somebody else's, or has edits on it; `carried` has a field that
            the network's config writes, or that regard does not know to be without effect; the tokenizer
            writes a decoder's texts otherwise than others, for which no file has words.
        CheckpointError: the tokenizer has ids that the network has no rows for.
        OutputError: there is something of that name, or it cannot be written; nothing is left behind.

    Example:
        >>> from pathlib import Path
        >>> from regard.models import write_checkpoint
        >>> import tempfile
        >>> from regard.models import load_checkpoint, new_network
        >>> from regard.models.families.bert import BertConfig
        >>> network = new_network(BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
        >>> with tempfile.TemporaryDirectory() as above:
        ...     folder = write_checkpoint(network, Path(above) / "fresh")
        ...     load_checkpoint(folder).network.config == network.config
        True
    """
    network, more = our_own(network), dict(carried or {})
    # A field that changes numbers comes from the config alone.
    if unknown := sorted(more.keys() - IGNORED_FIELDS):
        raise InputError(
            f"carried must hold fields of config.json that change no number; got {unknown[0]!r}."
        )
    ids = {} if tokenizer is None else {"bos": tokenizer.special_ids.bos, "eos": tokenizer.special_ids.eos}
    # Left out they would be those of the published model, beyond a smaller vocabulary.
    more = {f"{role}_token_id": ids.get(role) for role in ("bos", "eos")} | more
    if tokenizer is not None:
        # No more tokens than the tables have rows.
        tokenizer = tokenizer.within(*_rows(network))

    def beside(target: Path) -> None:
        if tokenizer is not None:
            limit, types = network.config.max_seq_len, network.config.num_token_types
            write_tokenizer(tokenizer, target, max_length=limit, has_types=types > 0)

    return _write(network, folder, carried=more, card=card, beside=beside)


def _rows(network: Transformer) -> tuple[int, int]:
    rows = [network.stack(kind).embeddings.tokens.num_embeddings for kind in network.prefixes]
    return rows[0], rows[-1]


def _write(
    network: Transformer,
    folder: str | PathLike[str],
    *,
    carried: Mapping[str, Any],
    card: str,
    beside: Callable[[Path], None],
) -> Path:
    """Write a folder under another name, then rename it; `beside` adds what stands beside the weights."""
    config: Any = network.config
    # Refused before the weights are unpacked.
    target = _check_new_folder(folder)
    family = family_of(config.model_type)
    # The config's own fields overrule what is carried.
    fields = {**carried, **config.to_hf(), **pruned_fields(network, family)}
    fields["dtype"] = str(next(network.parameters()).dtype).removeprefix("torch.")
    # Blocks of a GGUF file become plain numbers: safetensors has no such type.
    tensors = to_hf(unpacked(network), family.keys)
    # Beside the target, so that renaming is one step.
    temporary = target.with_name(f".regard-{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir()
        text = json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False)
        (temporary / "config.json").write_text(text + "\n", encoding="utf-8")
        beside(temporary)
        if "auto_map" in fields:  # then transformers looks for its classes in the folder
            shutil.copyfile(Path(__file__).with_name(f"{CODE}.py"), temporary / f"{CODE}.py")
        (temporary / "README.md").write_text(card, encoding="utf-8")
        # Last, since it takes longest: other errors come first.
        write_tensors(tensors, temporary / "model.safetensors")
        folder_to_disk(temporary)
        # From here on the folder exists, whole.
        temporary.rename(target)
    except OSError as error:
        # The error of the system says more than ours.
        below = error.__cause__ if isinstance(error, OutputError) and error.__cause__ else error
        raise OutputError(
            f"{os.fspath(folder)!r} cannot be written ({reason(below)}); choose a new folder in one that "
            "exists and is yours to write in."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _check_new_folder(folder: str | PathLike[str]) -> Path:
    """A folder that does not exist yet, with `~` spelled out."""
    target = path_of("folder", folder).expanduser()
    if target.exists() or target.is_symlink():
        raise OutputError(f"{os.fspath(folder)!r} exists already; choose a new folder, or remove that one.")
    return target


def _carried(loaded: Loaded) -> Mapping[str, Any]:
    """The fields of the model's own file that change no number, such as the names of its labels."""
    values, config = read_config(network_folder(loaded.source.folder)).values, loaded.network.config
    # A classifier's labels are its config's own; others' are carried.
    left = _NOT_CARRIED | (_OF_LABELS if getattr(config, "head", None) in ("sequence", "token") else set())
    return {name: values[name] for name in sorted(values) if name in IGNORED_FIELDS - left}


def _copy_beside(folder: Path, target: Path) -> None:
    # Sentence models keep the network in a folder of its own.
    inside = network_folder(folder)
    for name in BESIDE:
        # The inner one counts where both have it: it is copied last.
        for file in (folder / name, inside / name):
            if file.is_file():
                shutil.copyfile(file, target / name)
    # The steps of a sentence model: pooling, a dense layer, a norm.
    modules = read_objects(folder / MODULES) if (folder / MODULES).is_file() else []
    for path in (str(each.get("path")) for each in modules[1:]):
        # Whatever else a file from elsewhere may name, only folders that lie beside it are copied.
        if re.fullmatch(r"[0-9A-Za-z_-]+", path) and (folder / path).is_dir():
            shutil.copytree(folder / path, target / path)
    if inside != folder:
        # The network is written into the folder itself, wherever it lay before.
        text = json.dumps([modules[0] | {"path": ""}, *modules[1:]], indent=2)
        (target / MODULES).write_text(text + "\n", encoding="utf-8")


def _card(loaded: Loaded) -> str:
    # Weights that were changed keep the licence they came with.
    licence = licence_of(loaded.source.folder)
    front = f"---\nlicense: {json.dumps(licence)}\n---\n\n" if licence else ""
    return f"{front}# {loaded.source.name}\n\nWritten by regard.\n"
