"""A job on Ray: workers, here or on a cluster, embed blocks; this process reads them and writes the shards.

Plain actors and not Ray Data: a block is the same rows on any number of machines, blocks are written in
order, and what is under way is bounded. Ray Data cuts as it likes; an actor embeds what it is handed.
"""

import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from regard.core.arguments import whole
from regard.core.errors import InputError, RegardError
from regard.core.extras import missing
from regard.embedding._cores import cores
from regard.embedding.job._job import OpenWork
from regard.embedding.job._ray_worker import Worker, processor, versions
from regard.embedding.job._rows import Block
from regard.embedding.job._work import Piece, Work

# Blocks that a worker has been handed: the next one is there when one is done.
_HANDED = 2
# Blocks a worker that are read and not yet written. One may take long, and those behind it wait for it.
_UNDER_WAY = 3
# So many workers may die of one block, or one after the other before they are ready.
_DEATHS = 3
# Seconds of silence after which it is said what is waited for.
_SILENCE = 30.0
# So often a Ray of this machine may fail to start in time.
_ATTEMPTS = 4
# Seconds in which a cluster must answer.
_ANSWER = 10.0


@dataclass(eq=False)
class _Task:
    """A block on its way, with Ray's references: to a sign that it is done, and to its piece."""

    block: Block
    done: bool
    sign: Any = None
    piece: Any = None
    deaths: int = 0

    def again(self) -> None:
        self.done, self.sign, self.piece = False, None, None


@dataclass(eq=False)
class _Member:
    """A worker; what it has said of itself once it is ready."""

    actor: Any
    ready: Any
    deaths: int
    about: dict[str, Any] | None = None
    tasks: list[_Task] = field(default_factory=list)


class RayWorkers:
    """Where blocks are embedded: by processes that Ray starts, each of which holds the model.

    The result is that of one process, byte for byte on processors of one kind. A worker that dies is
    replaced, and what it had is embedded again. One that cannot do what the manifest states (other versions,
    another model, too few cores, no arithmetic for the type) is refused, and the others go on.

    Args:
        open_work: as in `run`. It is sent to the workers, so it must be something that can be pickled.
        address: of a Ray cluster, as `ray.init` takes it; None is what the environment names as RAY_ADDRESS,
            and else, as "local" is, a Ray of this machine, which ends with the job.
        workers: how many; None is as many as find room with the job's threads each.
        tell: is called with what a user should know.

    Raises:
        MissingExtraError: Ray is not installed.
        InputError: the number of workers.

    Example:
        with RayWorkers(open_work) as workers:
            run(inputs, Path("vectors"), open_work, spread=workers)
    """

    def __init__(
        self,
        open_work: OpenWork,
        *,
        address: str | None = None,
        workers: int | None = None,
        tell: Callable[[str], object] = lambda message: None,
    ) -> None:
        self._ray = _ray()
        self._open_work, self._tell = open_work, tell
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._workers = None if workers is None else whole("workers", workers, least=1)
        self._work: Work | None = None
        self._connected = False
        self._members: list[_Member] = []
        self._refused: dict[str, str] = {}
        self._others: set[str] = set()

    def __enter__(self) -> "RayWorkers":
        return self

    def __exit__(self, *error: object) -> None:
        for member in self._members:
            self._end(member)
        self._members = []
        if self._connected:
            self._connected = False
            self._ray.shutdown()

    def __call__(self, work: Work, blocks: Iterable[Block]) -> Iterator[tuple[Block, Piece | None]]:
        """Each block with its piece, in order; see `Spread`. Ray is started for the first one."""
        waiting: deque[_Task] = deque()
        for block in blocks:
            if self._work is None:
                self._begin(work)
            waiting.append(_Task(block, done=not block.texts))
            self._listen(waiting, 0.0)
            while waiting and (waiting[0].done or len(waiting) >= _UNDER_WAY * len(self._members)):
                yield self._taken(waiting)
        while waiting:
            yield self._taken(waiting)

    def _begin(self, work: Work) -> None:
        threads = work.threads
        if self._ray.is_initialized():
            count = self._workers or self._room(threads)
        elif self._address == "local":
            count = self._workers or cores() // threads
            if not count:
                raise InputError(
                    f"threads is {threads}, and this machine has {_some(cores(), 'core')} for Ray; give "
                    f"--threads {cores()}, or the address of a cluster."
                )
            self._connect(num_cpus=count * threads, include_dashboard=False)
        else:
            self._connect()
            count = self._workers or self._room(threads)
        self._work = work
        self._actor = self._ray.remote(num_cpus=threads, max_restarts=0, max_task_retries=0)(Worker)
        self._members = [self._start() for _ in range(count)]
        self._tell(f"{_some(count, 'worker')} on Ray, with {_some(threads, 'core')} each")

    def _connect(self, **options: Any) -> None:
        # Of the user's job nothing is to be sent anywhere.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Else Ray warns of it; no worker has an accelerator.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        _check_address(self._address)
        in_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM)
        try:
            self._init(options)
        except Exception as error:  # there are a dozen kinds
            what = (
                "Ray does not start here"
                if self._address == "local"
                else f"there is no Ray at {self._address} that can be used from here"
            )
            raise RegardError(f"{what} ({_first_line(error)}).") from error
        finally:
            if in_main and handler is not None:
                signal.signal(signal.SIGTERM, handler)  # Ray puts its own
        self._connected = True

    def _init(self, options: Mapping[str, Any]) -> None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._ray.init(
                    address=self._address, log_to_driver=False, logging_level=logging.ERROR, **options
                )
                return
            except Exception as error:
                # It gives itself half a minute to start here, which a busy machine may not do.
                if not left or self._address != "local" or "timed out" not in str(error):
                    raise
                self._ray.shutdown()

    def _room(self, threads: int) -> int:
        """How many workers find room on the nodes that there are."""
        nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        count = sum(int(cpus // threads) for cpus in nodes)
        if not count:
            raise RegardError(
                f"no node of the Ray cluster has the {threads} cores that threads asks for; the largest has "
                f"{max(nodes, default=0):.0f}. Give --threads a smaller number; or --workers, "
                "to wait for nodes that are still to come."
            )
        return count

    def _start(self, deaths: int = 0) -> _Member:
        assert self._work is not None
        settled = dict(self._work.settled)
        started = self._actor.remote(self._open_work, settled, self._work.threads, versions())
        return _Member(actor=started, ready=started.make_ready.remote(), deaths=deaths)

    def _end(self, member: _Member) -> None:
        with suppress(Exception):  # it may be gone already, or Ray
            self._ray.kill(member.actor)

    def _taken(self, waiting: deque[_Task]) -> tuple[Block, Piece | None]:
        """The first block and its piece, as soon as that is there."""
        first = waiting[0]
        while True:
            while not first.done:
                self._listen(waiting, _SILENCE)
            piece: Piece | None = None
            if first.piece is not None:
                try:
                    piece = self._ray.get(first.piece)
                except self._ray.exceptions.RayError as error:
                    # It went with the node that had it, after it was done.
                    first.again()
                    self._died_of(first, error)
                    continue
            waiting.popleft()
            return first.block, piece

    def _listen(self, waiting: deque[_Task], seconds: float) -> None:
        """Hands out blocks, and waits until a worker has something to say."""
        self._hand_out(waiting)
        starting = {member.ready: member for member in self._members if member.about is None}
        running = {task.sign: member for member in self._members for task in member.tasks}
        refs = [*starting, *running]
        if not refs:
            return  # all are idle
        heard, _ = self._ray.wait(refs, num_returns=1, timeout=seconds)
        for ref in heard:
            if ref in starting:
                self._hear_ready(starting[ref])
            else:
                self._hear_done(running[ref], ref)
            self._hand_out(waiting)
        if not heard and seconds and not running:
            assert self._work is not None
            free = _some(self._work.threads, "free core")
            self._tell(f"waiting for Ray to start a worker, which takes {free} of a node")

    def _hand_out(self, waiting: Iterable[_Task]) -> None:
        ready = [member for member in self._members if member.about is not None]
        for task in waiting:
            if task.done or task.sign is not None:
                continue
            member = min(ready, key=lambda each: len(each.tasks), default=None)
            if member is None or len(member.tasks) >= _HANDED:
                return
            task.sign, task.piece = member.actor.embed.options(num_returns=2).remote(task.block.texts)
            member.tasks.append(task)

    def _hear_ready(self, member: _Member) -> None:
        errors = self._ray.exceptions
        try:
            about = self._ray.get(member.ready)
        except errors.RayTaskError as error:
            # What it needs could not even be imported: another version of regard, or none.
            about = {"host": "a node", "refused": _first_line(error.cause or error)}
        except errors.RayError as error:
            member.deaths += 1
            if member.deaths < _DEATHS:
                self._replace(member, f"a worker died before it was ready ({_first_line(error)})")
                return
            about = {"host": "a node", "refused": f"{_DEATHS} workers died there before they were ready"}
        if about["refused"] is None:
            member.about, member.deaths = about, 0
            self._compare_processors(about)
            return
        self._members.remove(member)
        self._end(member)
        host = about["host"]
        if host not in self._refused:
            self._refused[host] = about["refused"]
            self._tell(f"{host} is refused: {about['refused']}")
        if not self._members:
            told = "; ".join(f"{host}: {reason}" for host, reason in self._refused.items())
            raise RegardError(f"no worker can do what the manifest states. {told}.")

    def _compare_processors(self, about: dict[str, Any]) -> None:
        if about["processor"] != processor() and about["host"] not in self._others:
            self._others.add(about["host"])
            self._tell(
                f"{about['host']} has another processor, {about['processor']} and not {processor()}: its "
                "vectors differ in their last bits from those that would be computed here"
            )

    def _hear_done(self, member: _Member, sign: Any) -> None:
        task = next(each for each in member.tasks if each.sign == sign)
        errors = self._ray.exceptions
        try:
            self._ray.get(sign)
        except errors.RayTaskError as error:
            if isinstance(error.cause, RegardError):
                raise error.cause from error
            raise
        except errors.RayError as error:
            first = member.tasks[0]
            for each in member.tasks:
                each.again()
            member.tasks = []
            assert member.about is not None
            told = f"the worker with process {member.about['process']} on {member.about['host']} died"
            self._replace(member, f"{told}; its rows are embedded again")
            self._died_of(first, error)
            return
        member.tasks.remove(task)
        task.done = True

    def _replace(self, member: _Member, message: str) -> None:
        self._tell(message)
        self._end(member)
        self._members[self._members.index(member)] = self._start(member.deaths)

    def _died_of(self, task: _Task, error: Exception) -> None:
        task.deaths += 1
        if task.deaths >= _DEATHS:
            rows = task.block.rows
            raise RegardError(
                f"{task.deaths} workers in a row died of rows {rows[0]} to {rows[-1]} "
                f"({_first_line(error)}). If it was for want of memory, give the workers more, or "
                "--batch-tokens a smaller number and a new folder."
            ) from error


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _check_address(address: str) -> None:
    """Whether anybody answers there: Ray itself would ask for ever."""
    host, _, port = address.removeprefix("ray://").strip("[]").rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise RegardError(
            f"nobody answers at {address} ({error}). Start Ray there, such as by `ray start --head`."
        ) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise missing("--ray needs", error, "ray") from error
