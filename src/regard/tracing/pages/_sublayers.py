"""What lies around an attention in its layer: residual additions, norms, the feed-forward network."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard._lens import bound_of
from regard.blocks import DecoderLayer, PostNorm, PreNorm, SelfAttentionLayer
from regard.core import Taps
from regard.core.errors import RegardError
from regard.models import Kind, stack_of
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
    """The steps of one position before and after its attention, worked out in float64.

    Args:
        trace: the trace; what its attentions gave is taken from it.
        kind: the attention in the middle.
        index: its layer.
        row: the position.

    Returns:
        The steps from the layer's input to what the attention reads, and from what it gave to the layer's
        output. Both are empty where they cannot be seen: a trace without its model, or one through the lens
        or of edits, and layers in which positions see each other outside attention (DeBERTa's convolution).

    Raises:
        RegardError: the steps do not lead to the recorded output.
    """
    network = None if trace.loaded is None else trace.loaded.network
    stack = None if network is None or network.written else network.stack(stack_of(kind))
    if stack is None:
        return (), ()
    layer = stack.layers[index]
    if type(layer) not in (SelfAttentionLayer, DecoderLayer):
        return (), ()
    passage = trace.passage(stack_of(kind))
    x = passage.hidden[index][row].double()
    walked: list[_Walked] = []
    for name in ("attention", "cross_attention", "ffn"):
        if not hasattr(layer, name):
            continue
        if name == "ffn":
            part = partial(_feed_forward, layer.ffn)
        else:
            given = trace.attention_of(index, "cross" if name == "cross_attention" else stack_of(kind)).output
            if given is None:
                return (), ()
            part = partial(_given, name, given[row].double())
        walked += _around(getattr(layer, f"{name}_residual"), x, part, _SAID[name])
        x = walked[-1].value
    if stack.norm is not None and index == len(stack.layers) - 1:
        walked.append(_normed(stack.norm, x, "final "))
    _check(walked[-1].value, passage.hidden[index + 1][row])
    middle = [step.name for step in walked].index("cross_attention" if kind == "cross" else "attention")
    steps = [Step(step.name, step.value.float().cpu().numpy()) for step in walked]
    return tuple(steps[:middle]), tuple(steps[middle + 1 :])


_SAID = {"attention": "attention", "cross_attention": "cross-attention", "ffn": "feed-forward"}


class _Walked(NamedTuple):
    name: str
    value: Tensor


_Part = Callable[[Tensor], list[_Walked]]


def _around(residual: nn.Module, x: Tensor, part: _Part, said: str) -> list[_Walked]:
    """A sublayer inside its residual connection; the last is the residual stream after it."""
    if isinstance(residual, PostNorm):
        steps = part(x)
        total = _Walked(f"x + {said}", x + steps[-1].value)
        return [*steps, total, _normed(residual.norm, total.value)]
    before, after = (
        (residual.norm, None) if isinstance(residual, PreNorm) else (residual.before, residual.after)
    )
    first = _normed(before, x)
    steps = [first, *part(first.value)]
    if after is not None:
        steps.append(_normed(after, steps[-1].value))
    return [*steps, _Walked(f"x + {said}", x + steps[-1].value)]


@torch.no_grad()
def _normed(norm: Any, x: Tensor, which: str = "") -> _Walked:
    return _Walked(which + type(norm).__name__, deepcopy(norm).double()(x))


def _given(name: str, output: Tensor, x: Tensor) -> list[_Walked]:
    del x  # what the attention made of it is known
    return [_Walked(name, output)]


@torch.no_grad()
def _feed_forward(ffn: Any, x: Tensor) -> list[_Walked]:
    hidden: list[Tensor] = []
    output = deepcopy(ffn).double()(x[None, None], taps=Taps({"hidden": hidden.append}))
    return [_Walked("hidden", hidden[0][0, 0]), _Walked("feed-forward", output[0, 0])]


def _check(made: Tensor, recorded: Tensor) -> None:
    """The steps must lead to what the model handed on: what is shown is checked."""
    error = float((made - recorded.double()).abs().max() / recorded.abs().max().clamp(min=1e-30))
    bound = bound_of(recorded.dtype)
    if not error <= bound:
        raise RegardError(
            f"the residual does not add up: the layer's steps lead to a vector that differs by {error:.1e} "
            f"of the largest entry from the one that was recorded (rounding explains {bound:.0e})."
        )
