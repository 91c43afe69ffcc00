"""GGUF files that other programs keep, by the names that they have there: Ollama, LM Studio, llama.cpp."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from regard.core.errors import CheckpointError, ModelNotFoundError
from regard.core.files import read_object
from regard.core.wording import joined

# Blobs lie under their hash; a digest of any other form would be a path that a file chooses.
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_MODEL, _ADAPTER = "application/vnd.ollama.image.model", "application/vnd.ollama.image.adapter"
_HOST, _OWNER, _TAG = "registry.ollama.ai", "library", "latest"
"""What Ollama's names leave out."""

# Parts of a split file but the first, which opens the others itself.
_LATER_PART: Final = re.compile(r".*-(?!00001)\d{5}-of-\d{5}\.gguf")


def gguf_in(folder: Path) -> list[Path]:
    """The GGUF files of a folder that are models: no projectors of pictures, and of a split one the first."""
    return [
        file
        for file in sorted(folder.glob("*.gguf"))
        if not file.name.startswith("mmproj") and not _LATER_PART.fullmatch(file.name)
    ]


def _folders(variable: str, *usual: str) -> list[Path]:
    """Where a program keeps its models: as it was told, or where it does by itself."""
    # The variable that the program itself reads comes first, and then alone.
    told = os.environ.get(variable)
    places = [Path(each).expanduser() for each in ([told] if told else usual)]
    return [each for each in places if each.is_dir()]


def _of_ollama() -> Iterator[tuple[str, Path]]:
    # Where Ollama keeps models: as the user runs it, and as a service of the system on Linux.
    usual = ("~/.ollama/models", "/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models")
    for folder in _folders("OLLAMA_MODELS", *usual):
        # manifests/HOST/OWNER/NAME/TAG
        for manifest in sorted((folder / "manifests").glob("*/*/*/*")):
            host, owner, name, tag = manifest.relative_to(folder / "manifests").parts
            # Names are shown as Ollama shows them: what it takes for granted is left out.
            before = () if host == _HOST and owner == _OWNER else (owner,) if host == _HOST else (host, owner)
            yield f"{'/'.join((*before, name))}:{tag}", manifest


def _blob(manifest: Path) -> Path:
    """The file with the weights that a manifest of Ollama names."""
    layers = read_object(manifest).get("layers")
    kinds = {str(each.get("mediaType")): each for each in layers} if isinstance(layers, list) else {}
    if _ADAPTER in kinds:
        raise CheckpointError(f"{manifest}: the model has an adapter beside its weights; regard reads none")
    digest = _DIGEST.fullmatch(str(kinds.get(_MODEL, {}).get("digest")))
    if digest is None:
        raise CheckpointError(f"{manifest}: it names no file with weights; run `ollama pull` again")
    # The manifest lies four folders below `manifests`, beside which is `blobs`.
    return manifest.parents[4] / "blobs" / f"sha256-{digest[1]}"


def _of_lm_studio() -> Iterator[tuple[str, Path]]:
    for folder in _folders("LMSTUDIO_MODELS", "~/.lmstudio/models", "~/.cache/lm-studio/models"):
        for repository in sorted(folder.glob("*/*")):
            files = gguf_in(repository)
            name = "/".join(repository.relative_to(folder).parts)
            # A repository with several files, usually of several sizes, gets a name for each.
            yield from ((name if len(files) == 1 else f"{name}/{file.name}", file) for file in files)


def _of_llama_cpp() -> Iterator[tuple[str, Path]]:
    for folder in _folders("LLAMA_CACHE", "~/.cache/llama.cpp", "~/Library/Caches/llama.cpp"):
        yield from ((file.name.removesuffix(".gguf"), file) for file in gguf_in(folder))


_APPS: Mapping[str, Callable[[], Iterator[tuple[str, Path]]]] = MappingProxyType(
    {"ollama": _of_ollama, "lmstudio": _of_lm_studio, "llama.cpp": _of_llama_cpp}
)


APPS: Final = frozenset(_APPS)
"""The programs, as names begin with them."""


def kept_by_apps() -> Iterator[tuple[str, Path]]:
    """The names and files of all models that such programs keep here; of Ollama's the manifests."""
    for app, models in _APPS.items():
        yield from ((f"{app}:{name}", place) for name, place in models())


def of_app(name: str) -> Path | None:
    """The file of a model whose name begins with a program's, such as `ollama:llama3.2:1b`; None for others.

    Raises:
        ModelNotFoundError: the program keeps no model of that name here.
        CheckpointError: it has the name, but not the file, or something that regard does not read.
    """
    app, colon, wanted = name.partition(":")
    # Anything else may be a name of the hub; a colon alone does not make it a program's.
    if not colon or app not in _APPS:
        return None
    if app == "ollama":
        wanted = wanted.removeprefix(f"{_HOST}/").removeprefix(f"{_OWNER}/")
        # A tag only counts in the last part: a host may have a port behind a colon.
        wanted = wanted if ":" in wanted.rpartition("/")[2] else f"{wanted}:{_TAG}"
    models = dict(_APPS[app]())
    place = models.get(wanted)
    if place is None:
        there = f"it has {joined(sorted(models))}" if models else "it keeps no model in its usual folder"
        raise ModelNotFoundError(f"{app} has no model {wanted!r} here; {there}")
    file = _blob(place) if app == "ollama" else place
    if not file.is_file():
        # A manifest may outlive its blob, as when Ollama has removed it.
        raise CheckpointError(f"{place}: its file {file} is missing; run `ollama pull {wanted}` again")
    return file
