"""Checkpoints of a run: whole or not there, the last ones and the best."""

import json
import re
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from regard.core.errors import CheckpointError, OutputError
from regard.core.files import folder_to_disk
from regard.training._folder import CHECKPOINTS, why
from regard.training._ranks import Ranks

_STATE, _SUMS = "state.json", "checksums.json"
_NAME = re.compile(r"step-(\d+)")


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Where a run stands.

    With the parameters, the state of the optimiser and the settings it is all that a run needs to go on:
    whatever is drawn depends on the seed and on the place in the run alone.
    """

    step: int = 0  # steps done
    epoch: int = 0
    done: int = 0  # micro-batches of the epoch that have been used, over all processes
    tokens: int = 0  # read in all
    best: float | None = None  # score so far
    best_step: int = 0
    waited: int = 0  # scores since the best


class Checkpoints:
    """The checkpoints in a folder, in torch's distributed format, which any number of processes reads.

    The last `keep` of them stay, and the best.
    """

    def __init__(self, folder: Path, *, keep: int, ranks: Ranks) -> None:
        self.folder, self.keep, self.ranks = folder, keep, ranks

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def save(self, task: nn.Module, made: Sequence[Optimizer], progress: RunState) -> None:
        """Write one, then remove those that need not stay. All processes call it together."""
        # Written under another name; only the last step gives it its own.
        target = self._path(progress.step)
        temporary = self.folder / f".{target.name}.tmp"

        def begin() -> None:
            shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed here
            temporary.mkdir(parents=True)

        def end() -> None:
            (temporary / _STATE).write_text(json.dumps(asdict(progress)), encoding="utf-8")
            (temporary / _SUMS).write_text(json.dumps(_checksums(temporary)), encoding="utf-8")
            # All of it is on disk before it gets the name of a checkpoint: what has that name is whole.
            folder_to_disk(temporary)
            temporary.rename(target)
            folder_to_disk(self.folder)
            self._prune(progress)

        try:
            # The first process makes the folder, all write into it, the first gives it its name.
            self.ranks.together(begin)
            state, optimiser = get_state_dict(task, made)
            self._write({"task": state, "optimiser": optimiser}, temporary)
            self.ranks.together(end)
        except (OSError, CheckpointException) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            # What is on disk is still good: the message says from where to go on.
            steps = _steps(self.folder)
            last = f"the last good one is {self._path(steps[-1])}" if steps else "there is none yet"
            raise OutputError(
                f"the checkpoint of step {progress.step} cannot be written to {self.folder} "
                f"({why(error)}); {last}. Make room, then type the same command to go on from there."
            ) from error

    def load_last(self, task: nn.Module, made: Sequence[Optimizer], say: Callable[[str], None]) -> RunState:
        """Give a task and its optimisers the state of the last whole checkpoint; without any the run begins.

        A damaged one is put aside where there is one before it, which leads to the same parameters. All
        processes call it together.
        """
        # What a killed run left half done gets out of the way first.
        self.ranks.together(lambda: self._put_aside(say))
        if not (steps := _steps(self.folder)):
            return RunState()
        folder = self._path(steps[-1])
        try:
            # torch reads into the tensors that it is given, and divides them as these are.
            progress = RunState(**json.loads((folder / _STATE).read_text(encoding="utf-8")))
            state, optimiser = get_state_dict(task, made)
            self._read({"task": state, "optimiser": optimiser}, folder)
            set_state_dict(task, made, model_state_dict=state, optim_state_dict=optimiser)
        except (OSError, ValueError, TypeError, CheckpointException) as error:
            raise _unreadable(folder, why(error)) from error
        return progress

    def _put_aside(self, say: Callable[[str], None]) -> None:
        for step in reversed(steps := _steps(self.folder)):
            folder = self._path(step)
            try:
                _compare(folder)
                break
            except CheckpointError as error:
                if step == steps[0]:
                    raise
                aside = folder.with_name(f"{folder.name}.damaged")
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
                say(f"{str(error).split(' Remove it')[0]} It is {aside.name} now; the one before goes on.")

    def load_mean(self, count: int, task: nn.Module) -> None:
        """Give a task the mean of the parameters of the last checkpoints.

        Source: Vaswani et al. 2017, arXiv 1706.03762, section 6.1.
        """
        # Fewer, where the folder holds fewer.
        steps = _steps(self.folder)[-count:]
        total: dict[str, Any] = {}
        # One at a time in memory, beside the sum.
        for step in steps:
            # Clones, since reading would overwrite the parameters themselves.
            state: Any = {name: value.clone() for name, value in _parameters(task).items()}
            self.ranks.together(partial(_compare, self._path(step)))
            self._read({"task": state}, self._path(step))
            for name, value in state.items():
                is_real = value.is_floating_point()
                # Whole numbers, such as counters, are the last ones.
                total[name] = total.get(name, 0.0) + value.double() if is_real else value
        now = _parameters(task)
        # Divided once: to divide each would round a mean that lies between two numbers by chance.
        mean = {name: each / len(steps) if each.is_floating_point() else each for name, each in total.items()}
        set_model_state_dict(task, {name: each.to(now[name].dtype) for name, each in mean.items()})

    def _write(self, state: dict[str, Any], folder: Path) -> None:
        with _without_remark():
            save(state, checkpoint_id=folder, no_dist=self.ranks.world == 1)

    def _read(self, state: dict[str, Any], folder: Path) -> None:
        with _without_remark():
            load(state, checkpoint_id=folder, no_dist=self.ranks.world == 1)

    def _prune(self, progress: RunState) -> None:
        # The best stays, however old, since `finish` may need it.
        steps = _steps(self.folder)
        for step in steps[: -self.keep]:
            if step != progress.best_step:
                gone = self.folder / ".old"
                shutil.rmtree(gone, ignore_errors=True)
                self._path(step).rename(gone)  # at once: what has the name of a checkpoint is whole
                shutil.rmtree(gone)


def _compare(folder: Path) -> None:
    """Refuse a checkpoint whose files have changed since they were written."""
    try:
        written, there = json.loads((folder / _SUMS).read_bytes()), _checksums(folder)
    except (OSError, ValueError) as error:
        raise _unreadable(folder, why(error)) from error
    # Missing and extra files differ as well.
    for name in sorted({*written, *there} - {_SUMS}):
        if written.get(name) != there.get(name):
            raise _unreadable(folder, f"{name} is not what was written: its checksum differs")


def last_checkpoint(folder: str | Path) -> int:
    """The step from which a run in a folder goes on; 0 where it begins."""
    # Only whole checkpoints have such a name.
    return max(_steps(Path(folder) / CHECKPOINTS), default=0)


def what_stays(folder: Path) -> str:
    """In words, the checkpoint that a failed run leaves."""
    step = last_checkpoint(folder)
    return f"the checkpoint of step {step} stays" if step else "there is no checkpoint yet"


def _steps(folder: Path) -> list[int]:
    """The steps of the whole checkpoints in a folder, in order."""
    if not folder.is_dir():
        return []
    found = (_NAME.fullmatch(each.name) for each in folder.iterdir())
    return sorted(int(each[1]) for each in found if each)


def _unreadable(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{folder} cannot be read ({reason}). Remove it to go on from the one before.")


def _checksums(folder: Path) -> dict[str, int]:
    """The CRC-32 of every file in a folder, by its name."""
    sums = {}
    for path in folder.iterdir():
        sums[path.name] = 0
        with path.open("rb") as file:
            # Piece by piece: a checkpoint may be larger than memory.
            while part := file.read(2**20):
                sums[path.name] = zlib.crc32(part, sums[path.name])
    return sums


@contextmanager
def _without_remark() -> Iterator[None]:
    """Without torch's warning that there is only one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield


def _parameters(task: nn.Module) -> Mapping[str, Any]:
    return get_model_state_dict(task)
