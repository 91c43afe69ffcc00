"""Processes forked from one that has imported all: they start in milliseconds, and can be stopped and killed.

What a fresh interpreter does (its locale, its streams, what it imports) is tested in test_cli_process.py.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import IO

from regard.cli import main

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("regard.cli", "regard.api", "regard.concordance", "regard.training._train"),
        *("torch._dynamo", "torch.utils.tensorboard"),
    ]
)
SECONDS = 120
# As in tests/conftest.py, and here for the forked too: what is killed is a process, and never its machine.
os.fsync = os.fstat  # type: ignore[assignment]


def wait_for(condition: Callable[[], object]) -> None:
    """Until it holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


class Forked:
    """A program, or `regard` with some arguments after it, whose streams are read here.

    Attributes:
        stdout: what it prints.
        stderr: and what it says.
    """

    def __init__(self, *arguments: str, program: str = "main()") -> None:
        pipes = [CONTEXT.Pipe(duplex=False) for _ in range(2)]
        writers = [writer for _, writer in pipes]
        self._process = CONTEXT.Process(target=_run, args=(dict(os.environ), writers, program, arguments))
        self._process.start()
        self.stdout, self.stderr = (_file(*pipe) for pipe in pipes)

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def stop(self) -> None:
        """SIGTERM, unless it has ended already; then its end."""
        self._process.terminate()
        self.end()

    def end(self) -> tuple[int | None, str, str]:
        """Wait for its end: the exit code, or the signal, negative; and what it still printed and said."""
        rest = ["" if stream.closed else stream.read() for stream in (self.stdout, self.stderr)]
        self.stdout.close()
        self.stderr.close()
        self._process.join(SECONDS)
        return self._process.exitcode, rest[0], rest[1]


def _file(reader: Connection, writer: Connection) -> IO[str]:
    """The reading end of a pipe, whose writing end is another process's alone."""
    writer.close()
    file = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
    reader.close()
    return file


def _run(
    environment: dict[str, str], writers: Sequence[Connection], program: str, arguments: Sequence[str]
) -> None:
    os.environ.update(environment)
    for number, (name, writer) in enumerate(zip(("stdout", "stderr"), writers, strict=True), start=1):
        os.dup2(writer.fileno(), number)
        writer.close()
        # A line of stderr is there at once, as in a fresh interpreter.
        buffering = 1 if name == "stderr" else -1
        setattr(sys, name, os.fdopen(number, "w", buffering, encoding="utf-8", closefd=False))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["regard", *arguments]
    exec(program, {"main": main, "sys": sys})
