"""Whether a trace's parts give one another: its weights, contexts, attention outputs and hidden states."""

import math

import torch

from regard._lens import LayerParity, Parity, bound_of, layer_parity
from regard.core.errors import InputError
from regard.models import Kind, Network, StackKind
from regard.tracing.measures._layers import attentions_of, outputs_again
from regard.tracing.record import Trace


def parity(trace: Trace) -> Parity:
    """How exactly what the trace holds is what the model computed, in total and layer by layer.

    In float64, in O(N) memory:

    * softmax(scores) = weights: rows sum to one, and are exp(score - logsumexp(row)). Both sides are of
      scores that are worked out again from q and k: that is arithmetic, and a wrong scale would pass it;
    * weights x values = the recorded context, which the model computed: a wrong scale, mask or bias does not
      pass it;
    * the heads sum to the layer's output: sum_h context_h W_O^h + b = the recorded attention output;
    * the residual adds up: the layer's recorded input and attention outputs, through its own residuals, norms
      and feed-forward network, which are worked out again, give what the next layer got (the last one,
      through the stack's last norm).

    What cannot be checked is None, and told as "not checked": the last two without the model at hand, the
    residual through the lens, whatever the trace did not keep, and what an edit wrote.

    Returns:
        The largest errors, in total and for each layer; `check` raises where one is more than rounding.

    Raises:
        InputError: the trace holds no attention, and there is nothing to check.

    Example:
        >>> import regard
        >>> parity = regard.load().trace("time flies like an arrow").parity()
        >>> len(parity.layers), parity.largest <= parity.bound, parity.residual is None
        (6, True, False)
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
    first = trace.attention_of(layers[0].layer, layers[0].kind)
    return Parity(layers=layers, output=None, bound=bound_of(first.inputs.q.dtype))


def _of_layer(trace: Trace, kind: Kind, layer: int) -> LayerParity:
    traced, keeping = trace.attention_of(layer, kind), trace.sides(kind)[0].keeping
    network = None if trace.loaded is None else trace.loaded.network
    written: frozenset[str] = frozenset() if network is None else network.written
    context = traced.context if keeping.values and not traced.written_heads else None
    heads = residual = None
    if network is not None and traced.output is not None:
        projection = network.projection(kind, layer)
        if projection is not None and not traced.output_written:
            heads = projection.error(traced.context, traced.output)
        if kind != "cross":
            residual = _residual(trace, network.plain, kind, layer, written)
    return layer_parity(
        kind,
        layer,
        traced.inputs,
        None if context is None else context[None],
        heads=heads,
        residual=residual,
    )


def _residual(
    trace: Trace, network: Network, kind: StackKind, layer: int, written: frozenset[str]
) -> float | None:
    hidden = trace.passage(kind).hidden
    module = network.layer(kind, layer)
    if not hidden or module is None:
        return None
    prefix, depth = network.prefixes[kind], network.depth(kind)
    at = f"{prefix}layers.{layer}"
    after = f"{prefix}output" if layer == depth - 1 else f"{prefix}layers.{layer + 1}.input"
    if not written.isdisjoint(
        (f"{at}.middle", f"{at}.ffn.hidden", f"{at}.ffn.output", f"{at}.output", after)
    ):
        return None  # what an edit wrote is no function of what was before
    crossed = any(is_cross for _, is_cross in attentions_of(module))
    if crossed and layer not in trace.layers_of("cross"):
        return None  # the trace does not have all that the layer adds
    wanted, apart = hidden[layer + 1].double(), 0.0
    norm = network.final_norm(kind) if layer == depth - 1 else None
    for rows, made in outputs_again(trace, kind, module, layer, norm):
        difference = float((made - wanted[rows]).abs().max())
        apart = max(apart, difference) if math.isfinite(difference) else math.inf
    largest = float(wanted.abs().max())
    return apart / largest if 0.0 < largest < math.inf else apart
