"""A job on Ray: workers, here or on a cluster, embed blocks; this process reads them and writes the shards.

Plain actors and not Ray Data: a block is the same rows on any number of machines, blocks are written in
order, and what is under way is bounded. Ray Data cuts as it likes; an actor embeds what it is handed.
"""

import logging
import os
import platform
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import tokenizers
import torch

from regard._version import __version__
from regard.blocks import is_native
from regard.core.arguments import whole
from regard.core.errors import InputError, RegardError
from regard.core.extras import missing
from regard.embedding._packs import cores
from regard.embedding.job._folder import differences
from regard.embedding.job._inputs import Block
from regard.embedding.job._job import OpenWork
from regard.embedding.job._work import Piece, Work


def _versions() -> dict[str, str]:
    """What must be the same on every node, since the numbers depend on it."""
    return {
        "regard": __version__,
        "tokenizers": tokenizers.__version__,
        "torch": torch.__version__,
    }


def _processor() -> str:
    """What the last bits of the vectors depend on."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


class Worker:
    """An actor: makes the work ready when it is first called, and embeds texts.

    It obeys what was settled when the job was begun, and refuses where its versions are not those stated.
    """

    def __init__(
        self, open_work: OpenWork, settled: Mapping[str, Any], threads: int, stated: Mapping[str, str]
    ) -> None:
        self._open_work, self._settled, self._stated = open_work, dict(settled), dict(stated)
        self._threads = threads
        self._work: Work | None = None
        # Read when the tokenizer is first used. Else each worker of a node would take all its cores.
        # See the class: one worker must not take a node's cores.
        os.environ["RAYON_NUM_THREADS"] = str(threads)

    def embed(self, texts: Sequence[str]) -> tuple[dict[str, Any], Piece | None]:
        """Where this is, with why it is `refused` (None where it obeys), and the piece; none of no texts."""
        about = {"host": socket.gethostname(), "process": os.getpid(), "processor": _processor()}
        # The model is loaded in the actor, with its first call.
        if self._work is None:
            try:
                self._work = self._opened()
            except RegardError as error:
                return {**about, "refused": str(error)}, None
        return {**about, "refused": None}, self._work.embed(texts) if texts else None

    def _opened(self) -> Work:
        # Other versions would give other numbers.
        if different := differences(_versions(), self._stated):
            raise RegardError(f"{'; '.join(different)}. Install the same versions on all nodes")
        if cores() < self._threads:
            raise RegardError(f"threads is {self._threads}, and it may use {cores()} cores")
        if self._settled.get("precision") == "bfloat16" and not is_native(torch.bfloat16):
            raise RegardError("its processor has no arithmetic for bfloat16; give --precision float32")
        work = self._open_work({**self._settled, "threads": self._threads})
        # What the folder was begun with must come out again.
        if different := differences(work.settled, self._settled):
            raise RegardError("; ".join(different))
        return work


# Blocks that a worker has been handed: the next one is there when one is done.
_HANDED = 2
# Blocks for each worker that are read and not yet written: one may take long, and those behind it wait.
_UNDER_WAY = 3
# So many workers may die of one block, or before they are ready.
_DEATHS = 3
# Seconds of silence after which it is said what is waited for.
_SILENCE = 30.0
# Seconds in which a cluster must answer.
_ANSWER = 10.0


@dataclass(eq=False)
class _Task:
    """A block, and Ray's reference to its result once a worker has it."""

    block: Block
    is_done: bool
    result: Any = None


@dataclass(eq=False)
class _Member:
    """A worker, and what it has said of itself since it is ready."""

    actor: Any
    ready: Any
    about: dict[str, Any] | None = None
    tasks: list[_Task] = field(default_factory=list)


class RayWorkers:
    """Where blocks are embedded: by processes that Ray starts, each of which holds the model.

    The result is that of one process, byte for byte on processors of one kind. A worker that dies is
    started again by Ray, and what it had is embedded again. One that cannot do what the manifest states
    (other versions, another model, too few cores, no arithmetic for the type) is refused, and the others
    go on.

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
        # By host, so that each is told once.
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
            # With the first block: a job with nothing to do starts no Ray.
            if self._work is None:
                self._begin(work)
            waiting.append(_Task(block, is_done=not block.texts))
            self._listen(waiting, 0.0)
            # In order: the first block holds up those behind it.
            while waiting and (waiting[0].is_done or len(waiting) >= _UNDER_WAY * len(self._members)):
                yield self._taken(waiting)
        while waiting:
            yield self._taken(waiting)

    def _begin(self, work: Work) -> None:
        threads = work.threads
        if self._address == "local":
            # As many workers as fit on this machine.
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
        # Ray starts a worker again that died, and repeats its calls.
        kind = self._ray.remote(num_cpus=threads, max_restarts=-1, max_task_retries=_DEATHS - 1)(Worker)
        for _ in range(count):
            actor = kind.remote(self._open_work, dict(work.settled), threads, _versions())
            # An empty call tells when the worker is ready.
            self._members.append(_Member(actor, ready=actor.embed.remote([])))
        self._tell(f"{_some(count, 'worker')} on Ray, with {_some(threads, 'core')} each")

    def _connect(self, **options: Any) -> None:
        # Nothing about the user's job is to be sent anywhere.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Else Ray warns of it; no worker has an accelerator.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        _check_address(self._address)
        in_main = threading.current_thread() is threading.main_thread()
        # Only the main thread may set handlers.
        handler = signal.getsignal(signal.SIGTERM)
        try:
            self._ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR, **options)
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

    def _room(self, threads: int) -> int:
        """How many workers find room on the nodes that there are."""
        nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        # A worker's cores must be on one node.
        count = sum(int(cpus // threads) for cpus in nodes)
        if not count:
            raise RegardError(
                f"no node of the Ray cluster has the {threads} cores that threads asks for; the largest has "
                f"{max(nodes, default=0):.0f}. Give --threads a smaller number; or --workers, "
                "to wait for nodes that are still to come."
            )
        return count

    def _end(self, member: _Member) -> None:
        with suppress(Exception):  # it may be gone already, or Ray
            self._ray.kill(member.actor)

    def _taken(self, waiting: deque[_Task]) -> tuple[Block, Piece | None]:
        """The first block and its piece, as soon as that is there."""
        first = waiting[0]
        piece: Piece | None = None
        # Handed out again where a worker turned out to be refused.
        while first.block.texts and piece is None:
            while not first.is_done:
                self._listen(waiting, _SILENCE)
            piece = self._piece(first)
        waiting.popleft()
        return first.block, piece

    def _piece(self, task: _Task) -> Piece | None:
        """What became of a block; None where a worker came back on a node that is refused."""
        member = next(each for each in self._members if task in each.tasks)
        piece: Piece | None
        try:
            # An error of ours is raised as it was there.
            about, piece = self._ray.get(task.result)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RegardError):
                raise error.cause from error
            raise
        except self._ray.exceptions.RayError as error:
            rows = task.block.rows.numbers
            raise RegardError(
                f"{_DEATHS} workers in a row died of rows {rows[0]} to {rows[-1]} "
                f"({_first_line(error)}). If it was for want of memory, give the workers more, or "
                "--batch-tokens a smaller number and a new folder."
            ) from error
        self._hear(member, about)
        if piece is not None:
            member.tasks.remove(task)
        return piece

    def _listen(self, waiting: deque[_Task], seconds: float) -> None:
        """Hands out blocks, and waits until a worker is ready, or done with one."""
        self._hand_out(waiting)
        # By reference: workers that are not ready, and blocks under way.
        starting = {member.ready: member for member in self._members if member.about is None}
        running = {each.result: each for member in self._members for each in member.tasks if not each.is_done}
        refs = [*starting, *running]
        if not refs:
            return  # all are idle
        # What is done stays where it is until its turn comes.
        heard, _ = self._ray.wait(refs, num_returns=1, timeout=seconds, fetch_local=False)
        for ref in heard:
            if ref in starting:
                self._hear_ready(starting[ref])
            else:
                running[ref].is_done = True
            self._hand_out(waiting)
        # Nothing happens: the cluster has no room yet.
        if not heard and seconds and not running:
            assert self._work is not None
            free = _some(self._work.threads, "free core")
            self._tell(f"waiting for Ray to start a worker, which takes {free} of a node")

    def _hand_out(self, waiting: Iterable[_Task]) -> None:
        at_work = {id(member): sum(not each.is_done for each in member.tasks) for member in self._members}
        ready = [member for member in self._members if member.about is not None]
        for task in waiting:
            if task.is_done or task.result is not None:
                continue
            # The worker with the least to do.
            member = min(ready, key=lambda each: at_work[id(each)], default=None)
            # All have enough; the rest waits here.
            if member is None or at_work[id(member)] >= _HANDED:
                return
            task.result = member.actor.embed.remote(task.block.texts)
            member.tasks.append(task)
            at_work[id(member)] += 1

    def _hear_ready(self, member: _Member) -> None:
        try:
            about, _ = self._ray.get(member.ready)
        except self._ray.exceptions.RayTaskError as error:
            # What it needs could not even be imported: another version of regard, or none.
            about = {"host": "a node", "refused": _first_line(error.cause or error)}
        except self._ray.exceptions.RayError as error:
            refusal = f"{_DEATHS} workers died there before they were ready ({_first_line(error)})"
            about = {"host": "a node", "refused": refusal}
        self._hear(member, about)

    def _hear(self, member: _Member, about: dict[str, Any]) -> None:
        """Notes what a worker says of itself: it may be refused, or be another process than before."""
        host, before = about["host"], member.about
        # Ray has started it anew, perhaps elsewhere.
        if before is not None and before["process"] != about["process"]:
            self._tell(
                f"the worker with process {before['process']} on {before['host']} died; its rows are "
                "embedded again"
            )
        if about["refused"] is not None:
            self._refuse(member, host, about["refused"])
            return
        member.about = about
        # Told once for each host.
        if about["processor"] != _processor() and host not in self._others:
            self._others.add(host)
            self._tell(
                f"{host} has another processor, {about['processor']} and not {_processor()}: its "
                "vectors differ in their last bits from those that would be computed here"
            )

    def _refuse(self, member: _Member, host: str, reason: str) -> None:
        self._members.remove(member)
        self._end(member)
        for task in member.tasks:
            # Its blocks go to others.
            task.is_done, task.result = False, None
        if host not in self._refused:
            self._refused[host] = reason
            self._tell(f"{host} is refused: {reason}")
        if not self._members:
            reasons = "; ".join(f"{host}: {reason}" for host, reason in self._refused.items())
            raise RegardError(f"no worker can do what the manifest states. {reasons}.")


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _check_address(address: str) -> None:
    """Whether anybody answers there: Ray itself would ask for ever."""
    host, _, port = address.removeprefix("ray://").strip("[]").rpartition(":")
    # "auto", or a name without a port: nothing to ask.
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
