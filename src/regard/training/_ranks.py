"""The processes of a run: one alone, or several under torchrun, by torch's own engine."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Event, Thread
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from regard.core.errors import InputError, OtherProcessError
from regard.core.wording import reason
from regard.models import Network, Transformer, new_network
from regard.training.tasks._task import Task

_START = timedelta(minutes=5)
"""How long a process looks for the others when a run begins."""

_PATIENCE = timedelta(minutes=30)
"""How long processes wait for the first without hearing of it. That is torch's time for a step too."""

_BEAT = 60.0
"""Seconds between two signs of life of the first, which may have many texts to encode."""

_GRACE = 2.0
"""Seconds that a process with nothing to say stays: torchrun ends all of them as soon as one has ended."""

_ANSWER = 10.0
"""Seconds that a process which fails waits to hear whether another has failed before it."""


def is_first_process() -> bool:
    """Whether this process of a run is the one that writes files and speaks; one alone is."""
    return os.environ.get("RANK", "0") == "0"


class Ranks:
    """This process among those of a run.

    Under `torchrun` the processes find each other by its environment variables; without, there is one.

    Attributes:
        rank, world: which process this is, and how many there are.
        device: where it computes.
    """

    def __init__(self) -> None:
        # torchrun's variables; "local" counts the processes of one machine, and so its GPUs.
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        on_gpu = torch.cuda.is_available()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
        self._store: Any = None
        if self.world > 1 and not dist.is_initialized():
            if on_gpu:
                torch.cuda.set_device(self.device)
            # GPUs exchange by NCCL, processors by gloo.
            backend = "nccl" if on_gpu else "gloo"
            try:
                # torchrun tells by environment variables where the others are.
                self._store, _, _ = next(rendezvous("env://", timeout=_START))
                dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.world)
            except (ValueError, dist.DistError) as error:
                cause = reason(error).split(" Exception raised from")[0]  # a trace of C++ follows
                raise InputError(
                    f"WORLD_SIZE is {self.world}, and the other processes cannot be found ({cause}); start "
                    "the run by torchrun, or without WORLD_SIZE."
                ) from error
        # On the processor and with its own patience, also where steps exchange gradients between GPUs.
        self._waiting = dist.new_group(backend="gloo", timeout=_PATIENCE) if self.world > 1 else None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and speaks."""
        return self.rank == 0

    def end(self) -> None:
        """Leave the other processes."""
        if self._store is not None:
            dist.destroy_process_group()

    def once(self, error: Exception) -> Exception:
        """The error itself in the process that fails first; in the others, one that says nothing.

        An error may be everyone's, as a loss that is no number, or that of one process, from which the
        others learn only that it is gone.
        """
        # One process alone: its error is the first.
        if self._store is None:
            return error
        if not isinstance(error, OtherProcessError):
            # The process that keeps the store (torchrun, or the first process) may hang, or be gone. So a
            # thread asks it, and may be left behind.
            # `add` counts the processes that failed: 1 is the first.
            answers: list[int] = []

            def ask() -> None:
                with suppress(dist.DistError):
                    answers.append(self._store.add("failed", 1))

            asking = Thread(target=ask, daemon=True)
            asking.start()
            # No answer in that time is no reason to stay silent.
            asking.join(_ANSWER)
            by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            if answers == [1] or asking.is_alive() or (by_torchrun and not answers):
                return error
        # Time for the first to speak, before torchrun ends all.
        time.sleep(_GRACE)
        return OtherProcessError("another process of the run has ended, and says why.")

    def together(self, work: Callable[[], None]) -> None:
        """Let the first process work while the others wait; where it fails, all fail."""
        error = None
        if self.is_first:
            try:
                with self._heartbeat():
                    work()
            except Exception as raised:
                # Kept until the others know.
                error = raised
        # Also after a failure: the others wait for this answer.
        has_failed = self.from_first(error is not None)
        if error is not None:
            raise error
        if has_failed:
            raise OtherProcessError("the first process of the run has ended, and says why.")

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sum over processes of each value; all must name the same ones in the same order."""
        if self.world == 1:
            return dict(values)
        # One exchange for all values; in float64, so that counts of tokens stay exact.
        # Order is what names them on the way: the same on all.
        summed = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(summed)
        return dict(zip(values, summed.tolist(), strict=True))

    def from_first(self, value: Any) -> Any:
        """The value of the first process, on all."""
        is_last = self.world == 1
        while not is_last:  # signs of life come before the value
            value, is_last = self._broadcast(value, is_last=True)
        return value

    def _broadcast(self, value: Any, *, is_last: bool) -> tuple[Any, bool]:
        box = [value, is_last]
        dist.broadcast_object_list(box, src=0, group=self._waiting)
        return box[0], box[1]

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Signs of life to the others while the first process works."""
        over = Event()

        def beat() -> None:
            with suppress(RuntimeError):  # the others are gone, as the first will see
                # Until the work is done: the others wait for a message no longer than _PATIENCE.
                while self.world > 1 and not over.wait(_BEAT):
                    self._broadcast(None, is_last=False)

        with ThreadPoolExecutor(1) as beside:
            beside.submit(beat)
            try:
                yield
            finally:
                over.set()

    def spread(self, task: Task, *, shard: bool) -> nn.Module:
        """The task on its device: alone, copied to each process (DDP), or its parameters divided (FSDP2).

        Source: Zhao et al. 2023, arXiv 2304.11277 (FSDP); Li et al. 2020, arXiv 2006.15704 (DDP).
        """
        # Alone, that is all.
        task.to(self.device)
        if self.world == 1:
            return task
        # Each process holds everything, and gradients are averaged.
        if not shard:
            where = [self.device] if self.device.type == "cuda" else None
            return DistributedDataParallel(task, device_ids=where)
        whole = MixedPrecisionPolicy()  # autocast alone decides about precision, as on one process
        # Layers first, then what is left of the task.
        for network in task.modules():
            if isinstance(network, Network):
                for kind in network.prefixes:
                    stack = network.stack(kind)
                    # A layer at a time is gathered whole, so no process ever holds all parameters.
                    for layer in () if stack is None else stack.layers:
                        fully_shard(layer, mp_policy=whole)
        fully_shard(task, mp_policy=whole)
        return task

    def gathered(self, network: Transformer, module: nn.Module) -> Transformer:
        """A network of the task with all of its parameters here; of use in the first process only."""
        if not isinstance(module, FSDPModule):
            return network
        # On the CPU: a GPU need not hold all parameters.
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(network, options=options)
        if not self.is_first:
            return network
        # The network itself keeps its divided parameters, since training goes on with them.
        fresh = new_network(cast(Any, network.config))
        fresh.load_state_dict(state)
        return fresh

    @contextmanager
    def without_exchange(self, task: nn.Module) -> Iterator[None]:
        """Gradients stay in the process: for all micro-batches of a step but the last."""
        if isinstance(task, DistributedDataParallel):
            # Both kinds sum gradients until the exchange is on again.
            with task.no_sync():
                yield
        elif isinstance(task, FSDPModule):
            task.set_requires_gradient_sync(False)
            yield
            task.set_requires_gradient_sync(True)
        else:
            yield


def full_tensor(value: Tensor) -> Tensor:
    """A tensor that may be divided among processes, whole."""
    # DTensor has the method, plain tensors have not.
    full = getattr(value, "full_tensor", None)
    return cast(Tensor, full()) if full is not None else value
