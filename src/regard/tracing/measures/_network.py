"""Where in a network an attention layer stands: its taps, and its output projection."""

from torch import nn

from regard._lens import LensNetwork, Projection, read_projection
from regard.core.errors import InputError
from regard.models import Kind, Network, Transformer, attention_name, stack_of
from regard.tracing.record import Trace


def attention_tap(network: Network, kind: Kind, layer: int) -> str:
    """What stands before the names of a layer's taps of attention."""
    return f"{network.prefixes[stack_of(kind)]}layers.{layer}.{attention_name(kind)}"


def find_projection(network: Network, kind: Kind, layer: int, num_heads: int) -> Projection | None:
    """The output projection of a layer, or None where it cannot be told."""
    module = _output_module(network.plain, kind, layer)
    return None if module is None else read_projection(module, num_heads)


def projection_of(trace: Trace, kind: Kind, layer: int) -> Projection:
    """The output projection of one attention layer of a trace's model.

    Raises:
        InputError: the model is not at hand, or its projection cannot be seen.
    """
    heads = trace.attention_of(layer, kind).inputs.num_heads
    found = find_projection(trace.require_model().network, kind, layer, heads)
    if found is None:
        raise InputError(
            f"this is a function of the output projection, and that of {trace.model} in {kind} layer {layer} "
            "is no plain linear layer on the joined heads that could be seen; ask for weights or context."
        )
    return found


def _output_module(network: Network, kind: Kind, layer: int) -> nn.Module | None:
    if isinstance(network, LensNetwork):
        # The survey takes a module for the projection only where it was given the joined heads, bit for bit.
        point = network.layout.points.get(f"{attention_tap(network, kind, layer)}.output")
        return None if point is None else point.execution.module
    if not isinstance(network, Transformer):
        return None
    attention = getattr(network.stack(stack_of(kind)).layers[layer], attention_name(kind))
    output: nn.Module = attention.output
    return output
