"""The peak of memory of attentions, each in a fork of its own, taken by another process.

Each case runs in a fork that is taken before torch has started any thread, so that none inherits another's
peak. A small run first loads what only loads once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.core.errors import RegardError

_RESET = Path("/proc/self/clear_refs")
"""Linux has it, and no other system."""

Asked = tuple[str, int, int, int, bool]
"""The name of an attention; length, heads, head_dim, and whether it is causal."""


def peaks(asked: Sequence[Asked], advance: Callable[[], None]) -> list[int | None]:
    """Bytes that each takes at its peak, beside q, k and v; None where the system cannot tell.

    Raises:
        RegardError: a fork was ended, most often for want of memory.
    """
    # Without clear_refs the peak of a process cannot begin anew.
    if not os.access(_RESET, os.W_OK):
        return [None] * len(asked)
    command = [sys.executable, "-c", "from regard.scaling._memory import main; main()"]
    measured: list[int | None] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(list(asked)))
        child.stdin.close()
        # A line for each, as soon as it is known.
        for line in child.stdout:
            measured.append(json.loads(line))
            advance()
    # The child ended early: what it was at is the first without an answer.
    if len(measured) < len(asked):
        name, length, *_ = asked[len(measured)]
        raise RegardError(
            f"measuring the memory of {name} at {length:,} tokens was ended from outside, most often for "
            "want of memory; give shorter lengths."
        )
    return measured


def _peak(asked: Asked) -> int:
    """Measured in a fork."""
    from regard.scaling._cases import Shape, case_named

    reading, writing = os.pipe()
    # A fork has its own peak; torch is imported in it, not before.
    child = os.fork()
    if child == 0:
        import torch

        name, length, heads, head_dim, causal = asked
        case, shape = case_named(name), Shape(length=length, heads=heads, head_dim=head_dim, causal=causal)
        with torch.no_grad():
            # A small pass first: libraries and pools that load once are not the attention's.
            case.context(Shape(length=64, heads=heads, head_dim=head_dim, causal=causal).record())
            inputs = shape.record()
            before = _bytes("VmRSS:")
            # 5 in clear_refs: the peak resident size (VmHWM) begins anew.
            _RESET.write_text("5")
            context = case.context(inputs)
        grown = max(0, _bytes("VmHWM:") - before)
        # -1 for an answer that is not finite: its memory would mean nothing.
        os.write(writing, str(grown if context.isfinite().all() else -1).encode())
        # Without Python's clean-up, which belongs to the parent.
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or answer == "-1":
        raise SystemExit(1)
    return int(answer)


def _bytes(field: str) -> int:
    # Lines such as "VmRSS:   123456 kB".
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    """Measure what is asked on stdin, a line each."""
    for each in json.load(sys.stdin):
        print(json.dumps(_peak(tuple(each))), flush=True)
