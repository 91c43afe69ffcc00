"""The folder of a run: its files, and the settings by which it belongs to one run alone."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError, InputError, OutputError
from regard.core.files import write_whole
from regard.core.schema import built
from regard.core.wording import reason
from regard.training._configuration import AnySettings, as_mapping, type_of

SETTINGS, TOKENIZER, DATA, LABELS = "settings.json", "tokenizer", "data", "labels.json"
CHECKPOINTS, MODEL, WATCH = "checkpoints", "model", "watch"

Say = Callable[[str], None]
"""Called with what is being done, in words."""


def make_folder(folder: Path) -> None:
    """Make the folder of a run, if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{str(folder)!r} cannot be made ({error.strerror}); choose another.") from error


def lock_settings(
    folder: Path,
    settings: AnySettings,
    say: Say,
    *,
    step: int,
    free: Callable[[Mapping[str, Any]], Sequence[str]],
    made: Sequence[str],
) -> None:
    """Write the settings into a new folder; in that of a run, refuse others than its own.

    Args:
        folder: of the run.
        settings: of the run that is to have the folder.
        say: is told what is being done.
        step: of the last checkpoint; 0 for none.
        free: gives, from the settings that are there, the names of those that may differ now.
        made: names of what a run makes before its first step; removed where the run there never took one.
    """
    file = folder / SETTINGS
    if file.exists():
        theirs, ours = _theirs(file, settings), as_mapping(settings)
        left = dict.fromkeys(free(theirs))  # None on both sides: not compared
        different = _differences({**theirs, **left}, {**ours, **left})
        if different and step:
            raise InputError(
                f"{folder} holds a run with other settings: {'; '.join(different)}. Give the same "
                "settings to go on with it, or another folder: start (--from) begins there with its model."
            )
        if different:  # it never got anywhere, as with a setting that could not be
            say(f"{folder} holds a run that made no checkpoint: beginning anew")
            for name in made:
                if (folder / name).is_dir():
                    shutil.rmtree(folder / name, ignore_errors=True)
                else:
                    (folder / name).unlink(missing_ok=True)
        if theirs == ours:
            return
    else:
        strange = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
        if strange:
            raise InputError(f"{folder} must be a new folder, or that of a run; it holds {strange[0]}.")
    write_whole(file, json.dumps(as_mapping(settings), indent=2).encode() + b"\n")


def _theirs(file: Path, ours: AnySettings) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        objective = values["objective"]
        if type(ours) is type_of(objective):
            return as_mapping(built("", values, type(ours)))
    except (OSError, ValueError, KeyError, TypeError) as error:  # also an InputError
        raise CheckpointError(
            f"{file} cannot be read ({reason(error)}); choose another folder, or put back what it held."
        ) from error
    raise InputError(f"{file.parent} holds a run of {objective}; choose another folder.")


def _differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        names = sorted({*theirs, *ours})
        found = (_differences(theirs.get(name), ours.get(name), f"{path}.{name}") for name in names)
        return [each for one in found for each in one]
    return [] if theirs == ours else [f"{path[1:]} is {theirs!r} there and {ours!r} here"]
