"""Training runs as processes of their own, which can be killed, of one process or of two."""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import resource
import signal
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from integration.forked import CONTEXT, SECONDS
from regard.text import write_tokenizer
from regard.training import Settings, _ranks, read_journal, read_settings, train
from regard.training._checkpoints import RunState
from regard.training._ranks import Ranks
from regard.training._run import prepare
from regard.training._scoring import evaluate
from regard.training._step import take_step
from regard.training.tasks import NextToken
from unit.training.small import SMALLEST, tokenizer

WORDS = ["a", "river", "bank", "of", "money", "sat", "by", "the", "loan", "fishing", "banks"]


def settings_of(folder: Path, objective: str = "clm", **changes: Any) -> Settings:
    """Of a tiny run on files in a folder, which are written if they are not there yet."""
    text = folder / "text.txt"
    if not text.exists():
        lines = [" ".join(WORDS[(n * k) % 11] for k in range(2, 4 + n % 7)) for n in range(47)]
        text.write_text("\n".join(lines) + "\n")
        (folder / "tokenizer").mkdir()
        write_tokenizer(tokenizer(), folder / "tokenizer")
    given: dict[str, Any] = {
        "data": {"train": [str(text)], "unit": "line", "valid_share": 0.2},
        "tokenizer": {"path": str(folder / "tokenizer")},
        "batch": {"length": 13, "rows": 3, "form": "packed", "accumulate": 2},
        "model": SMALLEST | {"dropout_p": 0.1, "attention_dropout_p": 0.1},
        "optimiser": {"lr": 0.01, "warmup": 2},
        "steps": 11,
        "evaluate_every": 4,
        "save_every": 3,
        "keep": 2,
    }
    for name, value in changes.items():
        given[name] = {**given[name], **value} if isinstance(given.get(name), dict) else value
    return read_settings(objective, **given)


class Started:
    """The processes of a run."""

    def __init__(self, processes: Sequence[BaseProcess], errors: Path) -> None:
        self.processes, self.errors = processes, errors

    def end(self) -> list[int | None]:
        """How each ended: its exit code, or the signal, negative."""
        for each in self.processes:
            each.join(SECONDS)
        return [each.exitcode for each in self.processes]

    def kill(self) -> list[int | None]:
        """SIGKILL to all."""
        for each in self.processes:
            each.kill()
        return self.end()

    def told(self) -> list[str]:
        """What was raised in each process that raised; first, what one of several has to say."""
        found = [path.read_text() for path in self.errors.glob("*.error")]
        return sorted(found, key=lambda told: told.startswith("OtherProcessError"))


def start(
    settings: Settings, folder: Path, errors: Path, *, world: int = 1, before: Sequence[Any] = ()
) -> Started:
    """Start a run; `before` is a function and its arguments, called first in each process."""
    return _started(world, _run, errors, settings, folder, before)


def _started(world: int, work: Callable[..., None], errors: Path, *arguments: Any) -> Started:
    errors.mkdir(exist_ok=True)
    processes = []
    for rank, environment in enumerate(environments(world)):
        process = CONTEXT.Process(target=_work, args=(environment, errors / f"{rank}.error", work, arguments))
        process.start()
        processes.append(process)
    return Started(processes, errors)


def environments(world: int) -> list[dict[str, str]]:
    """What torchrun tells each of several processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


def run(settings: Settings, folder: Path, errors: Path, **more: Any) -> Started:
    """A run to its end."""
    started = start(settings, folder, errors, **more)
    started.end()
    return started


def _work(
    environment: dict[str, str], error: Path, work: Callable[..., None], arguments: Sequence[Any]
) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    _ranks._GRACE = 0.1  # it is for torchrun, which is not here
    error.unlink(missing_ok=True)
    try:
        work(*arguments)
    except BaseException as raised:
        error.write_text(f"{type(raised).__name__}: {raised}")
        os._exit(1)
    os._exit(0)


def _run(settings: Settings, folder: Path, before: Sequence[Any]) -> None:
    if before:
        before[0](*before[1:])
    train(settings, folder)


def at(pattern: str, moment: str, act: Callable[..., object], *arguments: Any) -> None:
    """From now on, act in the first process before or after something gets a name like this."""
    if os.environ["RANK"] != "0":
        return
    for name in ("rename", "replace"):
        real = getattr(os, name)

        def renamed(source: Any, target: Any, real: Callable[..., Any] = real) -> None:
            is_meant = fnmatch.fnmatch(str(target), f"*/{pattern}")
            if not is_meant or moment == "after":
                real(source, target)
            if is_meant:
                act(*arguments)
                if moment == "before":
                    real(source, target)

        setattr(os, name, renamed)


def while_first(act: Callable[..., object], *arguments: Any) -> None:
    """The first process does something before the texts are there; the others wait 3 s for it."""
    _ranks._PATIENCE, _ranks._BEAT = timedelta(seconds=3), 0.5
    at("data/train", "before", act, *arguments)


def stop() -> None:
    """Stand still, as a machine does that is gone."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hang(mark: Path) -> None:
    """Leave a mark, and stand still."""
    mark.touch()
    time.sleep(SECONDS)


def allow(size: int) -> None:
    """No file may grow beyond a size: the system refuses, as it does where a disk is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run_out_of_memory(rank: int, calls: int) -> None:
    """After so many batches of a process its device has no memory left."""
    real, count = NextToken.forward, itertools.count()

    def forward(self: Any, batch: Any) -> Any:
        if os.environ["RANK"] == str(rank) and next(count) == calls:
            raise torch.OutOfMemoryError("tried to allocate more than there is")
        return real(self, batch)

    NextToken.forward = forward  # type: ignore[method-assign]


def left(folder: Path, scratch: Path) -> dict[str, Any]:
    """All that a run has left: metrics but for seconds, the model's files, each checkpoint's tensors."""
    found: dict[str, Any] = {
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in read_journal(folder)],
        "model": {path.name: path.read_bytes() for path in (folder / "model").iterdir()},
    }
    for checkpoint in sorted((folder / "checkpoints").glob("step-*")):
        dcp_to_torch_save(checkpoint, scratch)
        flat = _flat(torch.load(scratch, weights_only=False))
        found[checkpoint.name] = flat | {"state": json.loads((checkpoint / "state.json").read_text())}
    return found


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {name: each for key, inner in items for name, each in _flat(inner, f"{path}/{key}").items()}
    return {path: value.numpy().tobytes() if isinstance(value, torch.Tensor) else value}


def called(scratch: Path, world: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives in the first of several processes that all call it."""
    started = _started(world, _call, scratch, scratch / "result", function, arguments)
    assert started.end() == [0] * world, started.told()
    return torch.load(scratch / "result", weights_only=False)


def _call(out: Path, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    found = function(*arguments)
    if os.environ["RANK"] == "0":
        torch.save(found, out)


def an_epoch(settings: Settings, folder: Path) -> dict[str, Any]:
    """An epoch in double precision by plain descent, so that parameters move by the gradients themselves."""
    ranks = Ranks()
    with prepare(settings, folder, ranks, print) as made:
        module = ranks.spread(made.task.double(), shard=settings.shard)
        descent = [torch.optim.SGD(module.parameters(), lr=0.1)]
        progress, reports = RunState(), []
        for picked in made.train.steps(0):
            progress, report = take_step(made, module, descent, picked, progress)
            reports.append({name: report[name] for name in ("loss", "norm", "tokens")})
        assert made.valid is not None
        scores = evaluate(module, made, made.valid)
        state = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))
    ranks.end()
    return {"reports": reports, "scores": scores, "state": state, "last": picked}
