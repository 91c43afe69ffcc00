"""Jobs as processes of their own, which can be killed: forked from one process that has imported all."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[3]
SECONDS = 120


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Nursery:
    """Starts jobs at once: a process of Python that imported torch for each would take seconds."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "unit.embedding.job.processes"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, texts: Path, out: Path, err: Path, **options: object) -> int:
        """Starts a job, and gives its process; what it has to say of an error goes to the file `err`."""
        return self._ask({"texts": str(texts), "out": str(out), "err": str(err), **options})

    def end_of(self, process: int) -> int:
        """How a process ended: its exit code, or the signal that ended it, negative."""
        return os.waitstatus_to_exitcode(self._ask({"wait": process}))

    def command(self, out: Path | None, err: Path, *arguments: str) -> int:
        """Starts `regard` with a work that needs no model, and gives its process."""
        return self._ask({"arguments": arguments, "out": None if out is None else str(out), "err": str(err)})

    def run(self, texts: Path, out: Path, err: Path, **options: object) -> int:
        return self.end_of(self.start(texts, out, err, **options))

    def kill(self, process: int) -> int:
        os.kill(process, signal.SIGKILL)
        return self.end_of(process)

    def close(self) -> None:
        self._process.communicate(timeout=SECONDS)

    def _ask(self, question: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


def wait_for(found: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < end
        time.sleep(0.002)


def _serve() -> None:
    import regard.cli
    import regard.embedding.job  # noqa: F401 - once, for all that are forked

    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            print(os.waitpid(asked["wait"], 0)[1], flush=True)
        elif (child := os.fork()) == 0:
            try:
                code = 1
                asked = {name: _path(name, value) for name, value in asked.items()}
                code = (_command if "arguments" in asked else _job)(**asked)
            finally:
                os._exit(code)
        else:
            print(child, flush=True)


def _path(name: str, value: Any) -> Any:
    return Path(value) if name in ("texts", "out", "err") and value is not None else value


def _command(arguments: list[str], out: Path | None, err: Path) -> int:
    """`regard` with a work that needs no model; without `out` nobody reads what it prints."""
    import regard.embedding.job
    from unit.embedding.job.works import Hashed

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
    regard.embedding.job.open_model = open_model  # type: ignore[assignment]
    sys.argv = ["regard", *arguments]
    try:
        regard.cli.main()
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
    from regard.embedding.job import Columns, Inputs, run
    from unit.embedding.job.works import Hashed

    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if hang is not None:
        _hang_at(*hang, err)
    try:
        characters, shard_rows = (100_000, 4096) if peak else (500, 64)
        work = partial(Hashed, slow=slow, characters=characters)
        run(Inputs([texts], Columns()), out, work, shard_rows=shard_rows)
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


if __name__ == "__main__":
    _serve()
