"""Jobs as processes of their own, which can be killed, with a work that needs no model."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from integration.forked import CONTEXT, SECONDS
from regard.cli import main
from regard.embedding import job
from unit.embedding.job.works import Hashed


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def start(texts: Path, out: Path, err: Path, **options: Any) -> BaseProcess:
    """Start a job; what it has to say of an error goes to the file `err`."""
    return _started(partial(_job, texts, out, err, **options))


def command(out: Path | None, err: Path, *arguments: str) -> BaseProcess:
    """Start `regard` with these arguments; without `out` nobody reads what it prints."""
    return _started(partial(_command, arguments, out, err))


def end_of(process: BaseProcess) -> int | None:
    """How a process ended: its exit code, or the signal that ended it, negative."""
    process.join(SECONDS)
    return process.exitcode


def run(texts: Path, out: Path, err: Path, **options: Any) -> int | None:
    return end_of(start(texts, out, err, **options))


def kill(process: BaseProcess) -> int | None:
    process.kill()
    return end_of(process)


def _started(work: Callable[[], int]) -> BaseProcess:
    process = CONTEXT.Process(target=_exit, args=(work,))
    process.start()
    return process


def _exit(work: Callable[[], int]) -> None:
    code = 1
    try:
        code = work()
    finally:
        os._exit(code)


def _command(arguments: tuple[str, ...], out: Path | None, err: Path) -> int:
    def open_model(name: str, wanted: object, earlier: Any) -> Hashed:
        return Hashed(earlier, slow=0.01)

    if out is None:
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(out, os.O_WRONLY | os.O_CREAT)
    os.dup2(writer, 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    job.open_model = open_model  # type: ignore[assignment]
    sys.argv = ["regard", *arguments]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    raise AssertionError("it always exits")


def _job(
    texts: Path,
    out: Path,
    err: Path,
    *,
    slow: float = 0.0,
    limit: int | None = None,
    hang: list[str] | None = None,
    peak: bool = False,
) -> int:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if hang is not None:
        _hang_at(*hang, err)
    try:
        characters, shard_rows = (100_000, 4096) if peak else (500, 64)
        work = partial(Hashed, slow=slow, characters=characters)
        job.run(job.Inputs([texts], job.Columns()), out, work, shard_rows=shard_rows)
    except BaseException as error:
        err.write_text(f"{type(error).__name__}: {error}")
        return 1
    if peak:
        # In kB. Not getrusage: it still knows the peak of the process that this one was forked from.
        status = Path("/proc/self/status").read_text()
        err.write_text(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    return 0


def _hang_at(name: str, moment: str, err: Path) -> None:
    """Have the process hang when it renames a file to a name: before it does, or after."""

    def hanging(real: Callable[..., object]) -> Callable[..., object]:
        def replace(source: object, target: object) -> None:
            there = str(target).endswith(name)
            if moment == "after":
                real(source, target)
            if there:
                err.write_text("there")
                time.sleep(10 * SECONDS)
            if moment == "before":
                real(source, target)

        return replace

    os.replace = hanging(os.replace)  # type: ignore[assignment]
    pathlib.Path.replace = hanging(pathlib.Path.replace)  # type: ignore[assignment, method-assign]
