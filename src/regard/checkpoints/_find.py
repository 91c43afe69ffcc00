"""From a model's name to the folder with its files: the user's, an installed package's, or the cache's."""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from regard.checkpoints import _hub
from regard.checkpoints._apps import APPS, gguf_in, kept_by_apps, of_app
from regard.checkpoints._hub import CONFIG, holds_tokenizer, network_folder
from regard.checkpoints._packages import PACKAGED, fetched, installed, verify_weights
from regard.checkpoints.gguf import is_gguf
from regard.core.arguments import path_of
from regard.core.errors import CheckpointError, InputError, ModelNotFoundError
from regard.core.wording import joined

SourceKind: TypeAlias = Literal["folder", "package", "fetched", "app", "cache", "hub", "transformers"]
"""Where a model was found: the user's folder or file, an installed package, what `regard models get` fetched,
a program that keeps models, the Hugging Face cache, or the hub."""


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

    @property
    def is_file(self) -> bool:
        """Whether the model is one GGUF file."""
        return self.folder.is_file()


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
    if source.name in PACKAGED and source.kind in ("package", "fetched"):
        verify_weights(PACKAGED[source.name], source.folder)


def locate(name: str | os.PathLike[str]) -> Source:
    """Where a model is: a folder or a GGUF file, an installed model package, what was fetched, the Hugging
    Face cache, the hub, in this order. A name that begins with a program's is looked up there:
    `ollama:llama3.2:1b`, `lmstudio:OWNER/NAME`, `llama.cpp:NAME`.

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
    path_of("name", name)
    # From here on in the order of the docstring; a folder that exists beats every name.
    typed = os.fspath(name)
    if not typed:
        raise InputError(
            "the model's name is empty; give a folder, or a name that `regard models list` shows"
        )
    path = os.path.expanduser(typed)
    # Before `is_file`: a path may be a link to either.
    if os.path.isdir(path):
        return _folder(typed, Path(path))
    if os.path.isfile(path) and is_gguf(path):
        return Source(name=typed, folder=Path(path), kind="folder")
    if os.path.isfile(path):
        raise CheckpointError(
            f"{typed!r} is a file; a model is a folder with {CONFIG} and weights: give the folder"
        )
    # `ollama:a/b/c` has several slashes and is no path.
    is_of_app = typed.partition(":")[0] in APPS
    if not isinstance(name, str) or (_reads_like_a_path(typed) and not is_of_app):
        raise ModelNotFoundError(f"the folder {typed!r} does not exist{_did_you_mean(typed)}")
    if (file := of_app(typed)) is not None:
        return Source(name=typed, folder=file, kind="app")
    full = full_name(typed)
    if (here := nearby(full)) is not None:
        return here
    if full in PACKAGED and "/" not in full:  # no hub has it under that name
        raise ModelNotFoundError(f"{typed!r} is not here; {_how_to_get(full)}")
    if not _hub.is_repo_id(full):
        raise ModelNotFoundError(
            f"{typed!r} is neither a folder nor a model's name (NAME or OWNER/NAME, of letters, digits, '-', "
            f"'_' and '.'){_did_you_mean(typed)}"
        )
    # A whole copy in the cache is enough, if its tokenizer is there.
    cached = _cached(full)
    if cached is not None and holds_tokenizer(network_folder(cached.folder)):
        return cached
    # Other libraries leave the tokenizer out of the cache; the hub may have it.
    try:
        return _downloaded(full)
    except ModelNotFoundError:
        # Without a hub the copy without tokenizer is better than nothing: its tensors can be looked at.
        if cached is None:
            raise
        return cached


def available() -> list[Source]:
    """The models that can be loaded from here without network: packages, fetched and cached ones, and those
    of other programs; sorted by name.

    Files are looked for, not read: a package's hash is checked when it is loaded.

    >>> [source.name for source in available() if source.kind == "package"]
    ['sentence-transformers/all-MiniLM-L6-v2', 'smollm2']
    """
    # Later kinds replace earlier ones of the same name, as `locate` prefers them.
    sources = {name: Source(name=name, folder=folder, kind="cache") for name, folder in _hub.cached_models()}
    sources |= {name: Source(name=name, folder=file, kind="app") for name, file in kept_by_apps()}
    for name in PACKAGED:
        try:
            source = nearby(name)
        except CheckpointError:
            # `find` stops at a damaged package with the reason, so neither it nor a cached copy can be loaded
            sources.pop(name, None)
            continue
        if source is not None:
            sources[name] = source
    return [sources[name] for name in sorted(sources)]


# all-MiniLM-L6-v2 instead of sentence-transformers/all-MiniLM-L6-v2.
_SHORT_NAMES = {name.rpartition("/")[2]: name for name in PACKAGED}


def full_name(given: str) -> str:
    """The name with its owner, of a model that comes as a package; others as they are."""
    return _SHORT_NAMES.get(given, given)


def nearby(name: str) -> Source | None:
    """A model of that full name that an installed package carries, or that was fetched; None for others."""
    model = PACKAGED.get(name)
    if model is None:
        return None
    if (folder := installed(model)) is not None:
        return Source(name=name, folder=folder, kind="package")
    folder = fetched(name)
    return None if folder is None else Source(name=name, folder=folder, kind="fetched")


def _reads_like_a_path(given: str) -> bool:
    separators = given.count("/") + (given.count(os.sep) if os.sep != "/" else 0)
    # One slash may be OWNER/NAME; more, or a beginning like a path's, is a path.
    return (
        given.startswith((".", "~"))
        or os.path.isabs(given)
        or separators > 1
        or given.endswith(("/", os.sep))
    )


def _folder(typed: str, path: Path) -> Source:
    # Before looking for weights: a run's folder has none of its own.
    if (path / "settings.json").is_file() and not (path / CONFIG).is_file():
        # The folder of a training run, whose best model is in one below.
        typed, path = os.path.join(typed, "model"), path / "model"
        if not path.is_dir():
            raise InputError(
                f"model must be a run that has a model; {os.path.dirname(typed)!r} has none yet: train on."
            )
    inside = network_folder(path)
    # A config counts first; without one, a single GGUF file is the model.
    files = [] if (inside / CONFIG).is_file() else gguf_in(path)
    if len(files) == 1:
        return Source(name=typed, folder=files[0], kind="folder")
    if files:
        names = joined([file.name for file in files], 8)
        raise CheckpointError(f"the folder {typed!r} has several models; give the file of one: {names}")
    if not (inside / CONFIG).is_file():
        named = typed if inside == path else str(inside)
        raise CheckpointError(
            f"the folder {named!r} has no {CONFIG}; a model's folder has {CONFIG}, weights ("
            "model.safetensors, or an older pytorch_model.bin) and, for text, its tokenizer"
        )
    return Source(name=typed, folder=path, kind="folder")


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
        return f"get it with `regard models get {name}` ({model.megabytes} MB), or `{model.install_command}`"
    return f"get it with {download}"


def _did_you_mean(given: str) -> str:
    """Names near to the given one among those that can be had, as the end of a sentence."""
    # Hubs and packages, also those that were not fetched yet.
    known = {source.name for source in available()} | set(PACKAGED)
    full_name = {name.lower(): name for name in known}
    # Each name also without its owner, which people leave out.
    full_name |= {name.rpartition("/")[2]: full for name, full in full_name.items()}
    wanted = given.rstrip("/").lower()
    near = [
        full_name[match]
        # As typed, and its last part: `OWNR/all-MiniLM-L6-v2` should find the model, too.
        for spelling in dict.fromkeys((wanted, wanted.rpartition("/")[2]))
        # Spellings are near when three quarters are alike; less would suggest anything.
        for match in difflib.get_close_matches(spelling, full_name, n=3, cutoff=0.75)
        if full_name[match] != given
    ]
    return f"; did you mean {joined(dict.fromkeys(near))}?" if near else ""
