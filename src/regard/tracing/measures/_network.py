"""Where in a network an attention layer stands: its taps, and its output projection."""

from regard.core.errors import InputError
from regard.models import Kind, Network, Projection, attention_name, stack_of
from regard.tracing.record import Trace


def attention_tap(network: Network, kind: Kind, layer: int) -> str:
    """What stands before the names of a layer's taps of attention."""
    return f"{network.prefixes[stack_of(kind)]}layers.{layer}.{attention_name(kind)}"


def projection_of(trace: Trace, kind: Kind, layer: int) -> Projection:
    """The output projection of one attention layer of a trace's model.

    Raises:
        InputError: the model is not at hand, or its projection cannot be seen.
    """
    found = trace.require_model().network.projection(kind, layer)
    if found is None:
        raise InputError(
            f"this is a function of the output projection, and that of {trace.model} in {kind} layer {layer} "
            "is no plain linear layer on the joined heads that could be seen; ask for weights or context."
        )
    return found
