"""Errors of memory, disk and processes as messages that say what to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from regard.core.errors import InputError, OutputError, RegardError, TrainingError
from regard.core.wording import reason

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
        told = choose(_in_words(error, more_room))
        if told is error:
            raise
        raise told from error


def _in_words(error: Exception, more_room: str) -> Exception:
    if isinstance(error, RegardError | BrokenPipeError):
        return error
    told = str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in told:
        return TrainingError(f"memory ran out; what was saved stays. {more_room}")
    if isinstance(error, dist.DistError) or "gloo" in told:
        return TrainingError(
            "another process of the run ended without a word, or cannot be reached; what was saved stays. "
            "Type the same command to go on."
        )
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
    told = reason(error)
    return f"is the disk full? {told}" if "unexpected pos" in told else told
