"""What lies around an attention in its layer: residual additions, norms, the feed-forward network."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.blocks import DecoderLayer, PostNorm, PreNorm, SelfAttentionLayer
from regard.core import Taps
from regard.core.errors import RegardError
from regard.models import Kind, StackKind, bound_of, stack_of
from regard.tracing.record import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One vector on the way through a layer.

    Args:
        name: what it is: "LayerNorm", "x + attention", "feed-forward".
        vector: 1-D.
    """

    name: str
    vector: np.ndarray


def steps_around(trace: Trace, kind: Kind, index: int, row: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The steps of one position (`row`) before and after its attention, worked out in float64.

    First from the layer's input to what the attention reads, then from what it gave to the layer's output.
    Both are empty where they cannot be seen: see `sublayers`.
    """
    parts = sublayers(trace, stack_of(kind), index, [row], widen=True)
    walked = [step for part in parts for step in part.steps]
    if not walked:
        return (), ()
    middle = [step.name for step in walked].index("cross-attention" if kind == "cross" else "attention")
    steps = [Step(step.name, step.value[0].float().cpu().numpy()) for step in walked]
    return tuple(steps[:middle]), tuple(steps[middle + 1 :])


class Walked(NamedTuple):
    """Vectors on the way through a layer, (rows, d); `total`: x plus the step before."""

    name: str
    value: Tensor
    total: bool = False


class Sublayer(NamedTuple):
    """A sublayer inside its residual connection: the last of its steps is the residual stream after it."""

    name: str
    steps: list[Walked]


def sublayers(
    trace: Trace, kind: StackKind, index: int, rows: Sequence[int], *, widen: bool
) -> list[Sublayer]:
    """The way of some positions through a layer: its attentions, and its feed-forward network.

    The last ends with the stack's last norm. With `widen` it works in float64, on a copy of the layer's
    weights. There are none where they cannot be seen: a trace without its model, or one through the lens or
    of edits, and layers in which positions see each other outside attention (DeBERTa's convolution).
    """
    network = None if trace.loaded is None else trace.loaded.network
    stack = None if network is None or network.written else network.stack(kind)
    if stack is None:
        return []
    layer = stack.layers[index]
    if type(layer) not in (SelfAttentionLayer, DecoderLayer):
        return []
    traced = trace.stack(kind)
    dtype = torch.float64 if widen else next(layer.parameters()).dtype
    x = traced.hidden[index][rows].to(dtype)
    found: list[Sublayer] = []
    for name in ("attention", "cross_attention", "ffn"):
        if not hasattr(layer, name):
            continue
        said = _SAID[name]
        if name == "ffn":
            part = partial(_feed_forward, _widened(layer.ffn, widen))
        else:
            of: Kind = "cross" if name == "cross_attention" else kind
            given = trace.attention_of(index, of).output if index in trace.layers_of(of) else None
            if given is None:
                return []
            part = partial(_given, said, given[rows].to(dtype))
        steps = _around(getattr(layer, f"{name}_residual"), x, part, said, widen)
        found.append(Sublayer(said, steps))
        x = steps[-1].value
    if stack.norm is not None and index == len(stack.layers) - 1:
        found[-1].steps.append(_normed(stack.norm, x, widen, "final "))
    _check(found[-1].steps[-1].value, traced.hidden[index + 1][rows])
    return found


_SAID = {"attention": "attention", "cross_attention": "cross-attention", "ffn": "feed-forward"}

_Part = Callable[[Tensor], list[Walked]]


def _around(residual: nn.Module, x: Tensor, part: _Part, said: str, widen: bool) -> list[Walked]:
    """A sublayer inside its residual connection; the last is the residual stream after it."""
    if isinstance(residual, PostNorm):
        steps = part(x)
        total = Walked(f"x + {said}", x + steps[-1].value, total=True)
        return [*steps, total, _normed(residual.norm, total.value, widen)]
    before, after = (
        (residual.norm, None) if isinstance(residual, PreNorm) else (residual.before, residual.after)
    )
    first = _normed(before, x, widen)
    steps = [first, *part(first.value)]
    if after is not None:
        steps.append(_normed(after, steps[-1].value, widen))
    return [*steps, Walked(f"x + {said}", x + steps[-1].value, total=True)]


def _widened(module: Any, widen: bool) -> Any:
    return deepcopy(module).double() if widen else module


@torch.no_grad()
def _normed(norm: Any, x: Tensor, widen: bool, which: str = "") -> Walked:
    return Walked(which + type(norm).__name__, _widened(norm, widen)(x))


def _given(said: str, output: Tensor, x: Tensor) -> list[Walked]:
    del x  # what the attention made of it is known
    return [Walked(said, output)]


@torch.no_grad()
def _feed_forward(ffn: Any, x: Tensor) -> list[Walked]:
    hidden: list[Tensor] = []
    output = ffn(x[None], taps=Taps({"hidden": hidden.append}))
    return [Walked("hidden", hidden[0][0]), Walked("feed-forward", output[0])]


def _check(made: Tensor, recorded: Tensor) -> None:
    """The steps must lead to what the model handed on: what is shown is checked."""
    apart, largest = (made.double() - recorded.double()).abs().amax(-1), recorded.double().abs().amax(-1)
    error = float((apart / largest.clamp(min=1e-30)).max())
    bound = bound_of(recorded.dtype)
    if not error <= bound:
        raise RegardError(
            f"the residual does not add up: the layer's steps lead to a vector that differs by {error:.1e} "
            f"of the largest entry from the one that was recorded (rounding explains {bound:.0e})."
        )
