"""Measures how far one attention pushes the peak of resident memory; run as a program, it prints JSON.

Each case runs in a fork of its own, taken before torch has started any thread, so that none inherits
another's peak. A small run first loads what only loads once.
"""

import json
import os
import resource
import sys

import torch

from regard.core import (
    AttentionInputs,
    Causal,
    Groups,
    Padding,
    Predicate,
    SeededDropout,
    Segments,
    Window,
    fused_attention,
    reference_attention,
    row_statistics,
)

HEADS, LENGTH, WIDTH = 4, 4096, 16
_UNIT = 1024 if sys.platform == "darwin" else 1


class _Slopes:
    def __init__(self) -> None:
        self.slopes = torch.linspace(0.01, 0.5, HEADS).requires_grad_()

    def block(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return -self.slopes[None, :, None, None] * (queries[:, None] - keys[None, :]).abs()

    def learned(self) -> tuple[torch.Tensor, ...]:
        return (self.slopes,)


def _differs_by_head(i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return ((i - j + torch.arange(HEADS)[:, None, None]) % 7 != 1)[None]


def _padding(length: int) -> Padding:
    return Padding((torch.arange(length) < length - length // 8)[None])


def _options(kind: str, length: int) -> dict[str, object]:
    options: dict[str, object] = {}
    for part in kind.split(" + "):
        match part:
            case "padding":
                options["mask"] = _padding(length)
            case "causal":
                options["mask"] = Causal()
            case "causal with a cache":
                options["mask"] = Causal(offset=3)
            case "causal & padding":
                options["mask"] = Causal() & _padding(length)
            case "window":
                options["mask"] = Window(left=5, right=5)
            case "window & causal":
                options["mask"] = Window(left=length // 8) & Causal()
            case "segments & padding":
                options["mask"] = Segments(torch.arange(length)[None] // 100) & _padding(length)
            case "predicate":
                options["mask"] = Predicate(lambda i, j: (i - j) % 7 != 1)
            case "predicate of heads":
                options["mask"] = Predicate(_differs_by_head)
            case "bias":
                options["bias"] = _Slopes()
            case "softcap":
                options["softcap"] = 20.0
            case "dropout":
                options["dropout"] = SeededDropout(0.1, seed=1)
            case "sinks":
                options["sinks"] = torch.zeros(HEADS).requires_grad_()
    return options


def _attend(kind: str, form: str, length: int, *, backward: bool) -> None:
    kv_heads = 2 if "grouped" in kind else HEADS
    q = torch.randn(1, HEADS, length, WIDTH)
    k = torch.randn(1, kv_heads, length, WIDTH)
    v = torch.randn(1, kv_heads, length, 2 * WIDTH if "wide values" in kind else WIDTH)
    if "transposed" in kind:
        q, k, v = (x.mT.contiguous().mT for x in (q, k, v))
    inputs = AttentionInputs(
        **{name: x.requires_grad_(backward) for name, x in zip("qkv", (q, k, v), strict=True)},
        **_options(kind, length),
    )
    if form == "statistics":
        _ask_everything(inputs, repetitive=kind == "causal")
        return
    with torch.set_grad_enabled(backward):
        context = fused_attention(inputs) if form == "fused" else reference_attention(inputs).context
    if backward:
        context.sum().backward()


def _ask_everything(inputs: AttentionInputs, *, repetitive: bool) -> None:
    at = torch.arange(inputs.q_len)
    # The same word over and over makes as many pairs as there are entries.
    group = torch.zeros_like(at) if repetitive else at % 997
    row_statistics(
        inputs,
        values=torch.ones(inputs.k_len, 7),
        places=at[:, None],
        positions=at,
        groups=[Groups(group, at // 2)],
        top_k=5,
    )


def _growth(kind: str, form: str, backward: bool) -> float:
    """MiB that the peak of a fork rises by."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _attend(kind, form, 64, backward=backward)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # What is written out needs less than all its length to be seen, and seconds for it.
        _attend(kind, form, LENGTH // 2 if form == "reference" else LENGTH, backward=backward)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        os.write(writing, str((after - before) / _UNIT / 1024).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit(f"{kind} failed with status {status}.")
    return float(answer)


if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    print(json.dumps([_growth(*case) for case in wanted]))
