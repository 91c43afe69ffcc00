"""What runs on a node of Ray: a process that holds the model, once it is sure that it obeys the manifest."""

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
import torch

from regard._version import __version__
from regard.blocks import is_native
from regard.core.errors import RegardError
from regard.embedding._workers import cores
from regard.embedding.job._folder import differences
from regard.embedding.job._job import OpenWork
from regard.embedding.job._work import Piece, Work


def versions() -> dict[str, str]:
    """What must be the same on every node, since the numbers depend on it."""
    return {
        "regard": __version__,
        "tokenizers": tokenizers.__version__,
        "torch": torch.__version__,
    }


def processor() -> str:
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
        os.environ["RAYON_NUM_THREADS"] = str(threads)

    def embed(self, texts: Sequence[str]) -> tuple[dict[str, Any], Piece | None]:
        """Where this is, with why it is `refused` (None where it obeys), and the piece; none of no texts."""
        about = {"host": socket.gethostname(), "process": os.getpid(), "processor": processor()}
        if self._work is None:
            try:
                self._work = self._opened()
            except RegardError as error:
                return {**about, "refused": str(error)}, None
        return {**about, "refused": None}, self._work.embed(texts) if texts else None

    def _opened(self) -> Work:
        if found := differences(versions(), self._stated):
            raise RegardError(f"{'; '.join(found)}. Install the same versions on all nodes")
        if cores() < self._threads:
            raise RegardError(f"threads is {self._threads}, and it may use {cores()} cores")
        if self._settled.get("precision") == "bfloat16" and not is_native(torch.bfloat16):
            raise RegardError("its processor has no arithmetic for bfloat16; give --precision float32")
        work = self._open_work({**self._settled, "threads": self._threads})
        if found := differences(work.settled, self._settled):
            raise RegardError("; ".join(found))
        return work
