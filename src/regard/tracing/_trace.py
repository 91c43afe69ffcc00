"""The trace with everything that can be asked of it: where the rooms of tracing meet."""

from regard.tracing import edits, measures, pages, reasons, run
from regard.tracing.patterns import heads_of_trace

# Names that must be public for other packages, but are no part of what users are promised.
_FOR_ROOMS = frozenset(
    [
        "attention",
        "attention_of",
        "head_index",
        "kind",
        "layer_index",
        "layers_of",
        "of_encoding",
        "of_ids",
        "of_rows",
        "of_text",
        "of_texts",
        "origin",
        "require_model",
        "sides",
        "source",
        "stack",
    ]
)
"""What the rooms of tracing ask of a trace and users do not: left out of `dir` and of the reference."""


class Trace(run.TraceOfRun):
    """One text's way through a model: queries, keys and values of every layer, and the residual stream.

    `model.trace(text)` makes one. Nothing of size tokens x tokens is kept: weights, scores and measures are
    computed when somebody asks, exactly as the model's own. Attention layers and heads count from 0 to L - 1
    and H - 1, embedding layers from 0 (the learned embedding) to L; negative numbers count from the end.
    Where a model has an encoder and a decoder, `kind` says which is meant.

    Args:
        model: the model's name.
        encoder, decoder: what each stack did; None where the model has none.
        loaded: the model itself, for what is a function of its parameters too; None where it is not at hand.
        origin: which model it is of, where it came from a file.
        edits: what each edit of an edited model did in this pass, in order.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.weights(layer=0, head=3, query="flies").shape
        torch.Size([1, 7])
    """

    attention_gradients = measures.attention_gradients
    direct_attribution = measures.direct_attribution
    flow = measures.flow
    gradients = measures.gradients
    integrated_gradients = measures.integrated_gradients
    logit_lens = measures.logit_lens
    loss = measures.loss
    norm_weighted = measures.norm_weighted
    norm_weighted_layer = measures.norm_weighted_layer
    parity = measures.parity
    relevance = measures.relevance
    rollout = measures.rollout
    statistics = measures.statistics
    value_zeroing = measures.value_zeroing

    ablation = edits.ablation

    heads = heads_of_trace

    why = reasons.why
    why_heads = reasons.why_heads

    difference_page = pages.difference_page
    explain = pages.explain
    page = pages.page
    plot = pages.plot
    table = pages.weight_table
    widget = pages.widget
    write_page = pages.write_page
    _repr_mimebundle_ = pages.mimebundle
    _display_ = pages.display  # of marimo

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - _FOR_ROOMS)


# The same as functions, of a `Loaded`: `regard.Model.trace` calls them.
trace_text = Trace.of_text
trace_texts = Trace.of_texts
trace_ids = Trace.of_ids
trace_rows = Trace.of_rows
trace_read = Trace.of_encoding
