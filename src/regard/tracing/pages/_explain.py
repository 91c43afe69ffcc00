"""One token's attention in one head, worked out: every number between the text and the output."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from regard.core import reference_attention
from regard.core.errors import InputError
from regard.models import Kind, stack_of
from regard.tracing.pages._explanation import Explanation
from regard.tracing.pages._page_extras import as_array
from regard.tracing.pages._sublayers import steps_around
from regard.tracing.record import Trace, WordOrToken, token_of


def explain(
    trace: Trace, token: WordOrToken, layer: int = -1, head: int = 0, *, kind: Kind | None = None
) -> Explanation:
    """Work out one token's attention in one head, every number from its id to the layer's output.

    Args:
        trace: the traced text.
        token: an index, a word of the text, or a span of it, such as (16, 20); if a word has several pieces,
            the first is worked out, and the record names them all.
        layer: attention layer.
        head: query head.
        kind: "encoder", "decoder" or "cross"; needed only where there are several.

    Returns:
        Every step, as numpy arrays: see `Explanation`. `print` walks through it.

    Raises:
        InputError: a layer, head, token or word that is not there, a kind that is not said, or a layer whose
            weights, contexts or outputs an edit wrote: one step does not give the next there.
    """
    kind = trace.kind(kind)
    of_queries, of_keys = trace.sides(kind)
    pieces = token_of("token", of_queries.encoding, token)
    row, layer, head = pieces[0], trace.layer_index(layer, kind), trace.head_index(head, kind, layer)
    traced = trace.attention_of(layer, kind)
    if head in traced.written_heads or traced.output_written:
        what = "output" if traced.output_written else f"contexts of head {head}"
        raise InputError(
            f"an edit wrote the {what} of {kind} attention layer {layer}, which weights and values do not "
            "explain; explain another head or layer, or a trace of the model without the edit."
        )
    inputs = traced.inputs.head(head)
    # In float64, as `trace.weights` computes them: the two must show the same digits.
    exact = replace(inputs, q=inputs.q.double(), k=inputs.k.double(), v=inputs.v.double())
    with torch.no_grad():  # a bias may be learned
        worked = reference_attention(exact, queries=range(row, row + 1))
        left, right = exact.scorer.factors(exact.q[:, :, row : row + 1], exact.k)
    learned = of_queries.embeddings(0)
    before, after = steps_around(trace, kind, layer, row)
    # A sink is a column of the softmax, and no key: it has no token, no value and no share in the context.
    keys = exact.k_len
    sink = None if exact.sinks is None else float(worked.weights[0, 0, 0, keys])
    return Explanation(
        model=trace.model,
        text=" | ".join(of_queries.encoding.texts) or " ".join(of_queries.tokens),
        kind=kind,
        layer=layer,
        head=head,
        num_layers=of_queries.depth,
        num_heads=traced.inputs.num_heads,
        token=row,
        pieces=tuple(pieces),
        tokens=tuple(of_queries.tokens),
        token_ids=tuple(of_queries.encoding.token_ids),
        key_tokens=tuple(of_keys.tokens),
        scale=inputs.factor,
        formula=exact.scorer.formula,
        left=as_array(left[0, 0, 0, 0]),
        right=as_array(right[0, 0, 0]),
        learned=as_array(learned[row]),
        scaled=_row(of_queries.scaled, row),
        position=_row(of_queries.positions, row),
        token_type=_row(of_queries.token_types, row),
        embedded=as_array(of_queries.hidden[0][row]),
        embedding_norm=_embedding_norm(trace, kind),
        x=as_array(of_queries.hidden[layer][row]),
        made_from=_made_from(trace, kind),
        before=before,
        q=as_array(inputs.q[0, 0, row]),
        k=as_array(inputs.k[0, 0]),
        v=as_array(inputs.v[0, 0]),
        scores=as_array(worked.scores[0, 0, 0]),
        scaled_scores=as_array(worked.scaled_scores[0, 0, 0]),
        masked_scores=as_array(worked.masked_scores[0, 0, 0, :keys]),
        weights=as_array(worked.weights[0, 0, 0, :keys]),
        sink=sink,
        context=as_array(worked.context[0, 0, 0]),
        joined=as_array(traced.context[:, row].flatten()),
        output=_row(traced.output, row),
        after=after,
        contextual=as_array(of_queries.hidden[layer + 1][row]),
    )


def _made_from(trace: Trace, kind: Kind) -> str:
    """What the query is made of, where no steps lead to it."""
    if kind != "cross":
        return "x"
    return "x after the decoder's own attention" if "decoder" in trace.kinds else "the state before x is read"


def _embedding_norm(trace: Trace, kind: Kind) -> str | None:
    stack = None if trace.loaded is None else trace.loaded.network.stack(stack_of(kind))
    norm = None if stack is None else stack.embeddings.norm
    return None if norm is None else type(norm).__name__


def _row(values: Tensor | None, row: int) -> np.ndarray | None:
    return None if values is None else as_array(values[row])
