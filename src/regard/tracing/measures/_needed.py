"""What a measure reads of a trace and its network; refused by name where that is not there."""

from collections.abc import Sequence
from copy import deepcopy
from typing import TypeVar

from torch import Tensor, nn

from regard.core.errors import InputError
from regard.models import Kind, Network, Projection, StackKind, attention_name, stack_of
from regard.tracing.record import Trace

M = TypeVar("M", bound=nn.Module)


def hidden_of(trace: Trace, kind: "StackKind") -> Sequence[Tensor]:
    """The residual stream of a stack: L + 1 tensors (tokens, d_model)."""
    hidden = trace.stack(kind).hidden
    if not hidden:
        raise InputError(
            f"this needs the hidden states of the {kind}, and the trace of {trace.model} has none: trace "
            'with keep="all", or, through the lens, where they cannot be seen, ask for weights or context.'
        )
    return hidden


def output_of(trace: Trace, kind: Kind, layer: int) -> Tensor:
    """What an attention layer gave: (queries, d_model)."""
    output = trace.attention_of(layer, kind).output
    if output is None:
        raise InputError(
            f"this needs the attention output of {kind} layer {layer}, which the trace of {trace.model} does "
            'not have; trace with keep="all".'
        )
    return output


def attention_tap(network: Network, kind: Kind, layer: int) -> str:
    """What stands before the names of a layer's taps of attention."""
    return f"{network.prefixes[stack_of(kind)]}layers.{layer}.{attention_name(kind)}"


def projection_of(trace: Trace, kind: Kind, layer: int) -> Projection:
    """The output projection of one attention layer; an InputError without the model, or where it is not
    visible.
    """
    found = trace.require_model().network.projection(kind, layer)
    if found is None:
        raise InputError(
            "this needs an output projection that is a plain linear layer on the joined heads; in "
            f"{kind} layer {layer} of {trace.model} none can be seen. Ask for weights or context."
        )
    return found


def widened(module: M) -> M:
    """A copy in float64."""
    return deepcopy(module).double().requires_grad_(False)
