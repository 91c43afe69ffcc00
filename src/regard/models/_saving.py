"""A model written as a folder that regard, and where config.json has words for it everything else, loads."""

import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from regard.checkpoints import BESIDE, INERT, licence_of, read_config, to_hf, write_tensors
from regard.core.errors import OutputError
from regard.models._loaded import Loaded
from regard.models._pruned_files import CODE, pruned_fields
from regard.models._registry import family_of
from regard.models._surgery import our_own

# Of the fields that change no number, those that say where a file comes from, not what it is.
_NOT_CARRIED = frozenset(
    {
        *("_commit_hash", "_name_or_path", "name_or_path", "transformers_version", "transformers.js_config"),
        *("architectures", "model_type", "dtype", "torch_dtype"),
    }
)

_MODULES = "modules.json"
"""Where sentence-transformers lists what comes after the network, each with a folder."""


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
        >>> import tempfile
        >>> from regard.models import load_checkpoint
        >>> with tempfile.TemporaryDirectory() as above:
        ...     saved = save_checkpoint(load_checkpoint(), Path(above) / "copy")
        ...     load_checkpoint(saved).network.config.num_heads
        12
    """
    network = our_own(loaded.network)
    target = _check_new_folder(folder)
    family = family_of(loaded.family)
    fields = {**_carried(loaded), **family.write_config(network.config), **pruned_fields(network, family)}
    fields["dtype"] = str(next(network.parameters()).dtype).removeprefix("torch.")
    tensors = to_hf(network, family.keys)
    temporary = target.with_name(f".regard-{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir()
        text = json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False)
        (temporary / "config.json").write_text(text + "\n", encoding="utf-8")
        _copy_beside(loaded.source.folder, temporary)
        if "auto_map" in fields:
            shutil.copyfile(Path(__file__).with_name(f"{CODE}.py"), temporary / f"{CODE}.py")
        (temporary / "README.md").write_text(_card(loaded), encoding="utf-8")
        write_tensors(tensors, temporary / "model.safetensors")
        temporary.rename(target)
    except OSError as error:
        raise OutputError(
            f"{os.fspath(folder)!r} cannot be written ({error.strerror or error}); choose a new folder in "
            "one that exists and is yours to write in."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _check_new_folder(folder: str | PathLike[str]) -> Path:
    """A folder that does not exist yet, with `~` spelled out."""
    target = Path(folder).expanduser()
    if target.exists() or target.is_symlink():
        raise OutputError(f"{os.fspath(folder)!r} exists already; choose a new folder, or remove that one.")
    return target


def _carried(loaded: Loaded) -> Mapping[str, Any]:
    """The fields of the model's own file that change no number, such as the names of its labels."""
    values = read_config(loaded.source.folder).values
    return {name: values[name] for name in sorted(values) if name in INERT - _NOT_CARRIED}


def _copy_beside(folder: Path, target: Path) -> None:
    for name in BESIDE:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
    for name in _folders(folder / _MODULES):
        if (folder / name).is_dir():
            shutil.copytree(folder / name, target / name)


def _folders(file: Path) -> list[str]:
    """The folders that sentence-transformers' list of modules names, where there is one."""
    try:
        modules = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    paths = (
        [each.get("path") for each in modules if isinstance(each, dict)] if isinstance(modules, list) else []
    )
    # Whatever else a file from elsewhere may name, only folders that lie beside it are copied.
    return [path for path in paths if isinstance(path, str) and re.fullmatch(r"[0-9A-Za-z_-]+", path)]


def _card(loaded: Loaded) -> str:
    licence = licence_of(loaded.source.folder)
    front = f"---\nlicense: {json.dumps(licence)}\n---\n\n" if licence else ""
    return f"{front}# {loaded.source.name}\n\nWritten by regard.\n"
