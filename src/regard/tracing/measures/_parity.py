"""Whether a trace's parts give one another: its weights, contexts, and attention outputs."""

from dataclasses import replace

import torch

from regard.core.errors import InputError
from regard.models import Kind, LayerParity, Parity, bound_of, layer_parity
from regard.tracing.record import Trace


def parity(trace: Trace) -> Parity:
    """Check how exactly the trace agrees with what the model computed, in total and layer by layer.

    In float64, in O(N) memory:

    * softmax(scores) = weights: rows sum to one, and are exp(score - logsumexp(row)). Both sides are of
      scores that are worked out again from q and k: that is arithmetic, and a wrong scale would pass it;
    * weights x values = the recorded context, which the model computed: a wrong scale, mask or bias does not
      pass it;
    * the heads sum to the layer's output: sum_h context_h W_O^h + b = the recorded attention output.

    What cannot be checked is None, and told as "not checked": the heads without the model at hand, whatever
    the trace did not keep, and what an edit wrote. That the residual stream adds up is checked where its
    parts are shown, by `explain` and `direct_attribution`.

    Returns:
        The largest errors, in total and for each layer; `check` raises where one is more than rounding.

    Raises:
        InputError: the trace holds no attention, and there is nothing to check.

    Example:
        >>> import regard
        >>> parity = regard.load().trace("time flies like an arrow").parity()
        >>> len(parity.layers), parity.largest <= parity.bound
        (6, True)
    """
    with torch.no_grad():
        layers = tuple(
            _of_layer(trace, kind, layer) for kind in trace.kinds for layer in trace.layers_of(kind)
        )
    if not layers:
        raise InputError(
            'parity checks attention, of which this trace holds none: it was kept with keep="residual". '
            'Trace again with keep="qk", "qkv" or "all".'
        )
    # Any layer says in which type it was kept.
    first = trace.attention_of(layers[0].layer, layers[0].kind)
    return Parity(layers=layers, output=None, bound=bound_of(first.inputs.q.dtype))


def _of_layer(trace: Trace, kind: Kind, layer: int) -> LayerParity:
    traced, keeping = trace.attention_of(layer, kind), trace.sides(kind)[0].keeping
    context, output = traced.context if keeping.values else None, traced.output
    projection = None if trace.loaded is None else trace.loaded.network.projection(kind, layer)
    errors = layer_parity(
        kind,
        layer,
        traced.inputs,
        None if context is None else context[None],
        projection=projection,
        output=None if output is None or traced.output_written else output[None],
    )
    # What an edit wrote is not weights x values.
    return replace(errors, context=None) if traced.written_heads else errors
