"""One token's attention in one head, worked out: every number between the text and the output."""

from dataclasses import replace

import numpy as np
from torch import Tensor

from regard.core import reference_attention
from regard.tracing._trace import Trace
from regard.views import Explanation


def explain(trace: Trace, token: int | str, layer: int = -1, head: int = 0) -> Explanation:
    """Work out one row of attention.

    Args:
        trace: the traced text.
        token: an index, or a word of the text; of a word of several pieces the first is worked out, and the
            record names them all.
        layer: attention layer.
        head: query head.

    Returns:
        Every step, as numpy arrays: see `regard.views.Explanation`.

    Raises:
        InputError: a layer, head, token or word that is not there.
    """
    pieces = trace.encoding.find(token)
    row, layer, head = pieces[0], trace.layer_index(layer), trace.head_index(head)
    inputs = trace.attention[layer].head(head)
    # In float64, as `trace.weights` computes them: the two must show the same digits.
    exact = replace(inputs, q=inputs.q.double(), k=inputs.k.double(), v=inputs.v.double())
    worked = reference_attention(exact, queries=range(row, row + 1))
    joined = trace.context(layer, query=row)
    return Explanation(
        model=trace.model,
        text=" | ".join(trace.encoding.texts),
        layer=layer,
        head=head,
        num_layers=trace.num_layers,
        num_heads=trace.num_heads,
        token=row,
        pieces=tuple(pieces),
        tokens=tuple(trace.tokens),
        token_ids=tuple(trace.token_ids),
        scale=inputs.factor,
        learned=_array(trace.learned[row]),
        position=_array(trace.positions[row]),
        token_type=None if trace.token_types is None else _array(trace.token_types[row]),
        x=_array(trace.hidden[layer][row]),
        q=_array(inputs.q[0, 0, row]),
        k=_array(inputs.k[0, 0]),
        v=_array(inputs.v[0, 0]),
        scores=_array(worked.scores[0, 0, 0]),
        scaled_scores=_array(worked.scaled_scores[0, 0, 0]),
        masked_scores=_array(worked.masked_scores[0, 0, 0]),
        weights=_array(worked.weights[0, 0, 0]),
        context=_array(worked.context[0, 0, 0]),
        joined=_array(joined.flatten()),
        output=_array(trace.outputs[layer][row]),
        contextual=_array(trace.hidden[layer + 1][row]),
    )


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
