"""The folder of a run: its files, whose settings it belongs to, and errors of memory and disk."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from regard.core.arguments import built
from regard.core.errors import CheckpointError, InputError, OutputError, RegardError, TrainingError
from regard.core.files import write_whole
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
        # The file's settings as ours would be written, defaults of today included.
        theirs, ours = _theirs(file, settings), as_mapping(settings)
        left = dict.fromkeys(free(theirs))  # None on both sides: not compared
        different = _differences({**theirs, **left}, {**ours, **left})
        # There is a checkpoint: other settings would go on with it.
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
        # Nothing to write.
        if theirs == ours:
            return
    else:
        # Nothing of the user's is mixed with a run.
        strange = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
        if strange:
            raise InputError(f"{folder} must be a new folder, or that of a run; it holds {strange[0]}.")
    write_whole(file, json.dumps(as_mapping(settings), indent=2).encode() + b"\n")


def _theirs(file: Path, ours: AnySettings) -> dict[str, Any]:
    try:
        # Read by the rules of today: an unknown key is an error.
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


MORE_ROOM = (
    "Go on with shard=true on more processes; or begin in another folder with lower batch.tokens, batch.rows "
    "or batch.length, and batch.accumulate higher by as much."
)
"""The way out where memory ran out."""


@contextmanager
def in_words(
    more_room: str = MORE_ROOM, choose: Callable[[Exception], Exception] = lambda error: error
) -> Iterator[None]:
    """Raise errors of memory, disk or other processes as one line with the way out; others as they are.

    `choose` may put another error in their place.
    """
    try:
        yield
    except Exception as error:
        chosen = choose(_in_words(error, more_room))
        if chosen is error:
            raise
        raise chosen from error


def _in_words(error: Exception, more_room: str) -> Exception:
    # These say it themselves, or need no words.
    if isinstance(error, RegardError | BrokenPipeError):
        return error
    # torch tells some errors by their text only.
    text = str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
        return TrainingError(f"memory ran out; what was saved stays. {more_room}")
    if isinstance(error, dist.DistError) or "gloo" in text:
        return TrainingError(
            "another process of the run ended without a word, or cannot be reached; what was saved stays. "
            "Type the same command to go on."
        )
    # A file name that is no Unicode.
    if isinstance(error, UnicodeEncodeError):
        around = error.object[max(0, error.start - 20) : error.end + 20]
        return InputError(f"names of files must be valid Unicode; got {around!r}. Rename it.")
    if isinstance(error, OSError):
        where = "the folder of the run" if error.filename is None else repr(str(error.filename))
        return OutputError(
            f"{where} cannot be written ({reason(error)}); what was saved stays. Mend that, then type the "
            "same command to go on."
        )
    return error


def why(error: BaseException) -> str:
    """Why a checkpoint failed, in a few words: of several processes, by the first error.

    Example:
        >>> why(RuntimeError("unexpected pos 704 vs 598"))  # torch's writer drops what the system said
        'is the disk full? unexpected pos 704 vs 598'
    """
    if isinstance(error, CheckpointException):
        error = next((each for each, *_ in error.failures.values()), error)
    words = reason(error)
    return f"is the disk full? {words}" if "unexpected pos" in words else words
