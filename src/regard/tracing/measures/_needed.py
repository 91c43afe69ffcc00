"""What a measure reads of a trace; refused by name where the trace did not keep it, or cannot see it."""

from collections.abc import Sequence

from torch import Tensor

from regard.core.errors import InputError
from regard.models import Kind, StackKind
from regard.tracing.record import Trace


def hidden_of(trace: Trace, kind: "StackKind") -> Sequence[Tensor]:
    """The residual stream of a stack: L + 1 tensors (tokens, d_model).

    Raises:
        InputError: the trace has none.
    """
    hidden = trace.passage(kind).hidden
    if not hidden:
        raise InputError(
            f"this needs the hidden states of the {kind}, and the trace of {trace.model} has none: trace "
            'with keep="all", or, through the lens, where they cannot be seen, ask for weights or context.'
        )
    return hidden


def output_of(trace: Trace, kind: Kind, layer: int) -> Tensor:
    """What an attention layer gave: (queries, d_model).

    Raises:
        InputError: the trace has it not.
    """
    return _needed(trace, trace.attention_of(layer, kind).output, f"attention output of {kind} layer {layer}")


def context_of(trace: Trace, kind: Kind, layer: int) -> Tensor:
    """The context of an attention layer: (heads, queries, v_dim).

    Raises:
        InputError: the trace has it not.
    """
    return _needed(trace, trace.attention_of(layer, kind).context, f"context of {kind} layer {layer}")


def _needed(trace: Trace, value: Tensor | None, what: str) -> Tensor:
    if value is None:
        raise InputError(
            f'this needs the {what}, which the trace of {trace.model} does not have; trace with keep="all".'
        )
    return value


def values_of(trace: Trace, kind: Kind, layer: int) -> Tensor:
    """The values of an attention layer: (kv_heads, keys, v_dim).

    Raises:
        InputError: the trace has them not.
    """
    v: Tensor | None = trace.attention_of(layer, kind).inputs.v
    return _needed(trace, v, f"values of {kind} layer {layer}")[0]
