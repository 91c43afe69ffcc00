"""The trace with everything that can be asked of it: where the rooms of tracing meet."""

from collections.abc import Sequence
from dataclasses import fields
from os import PathLike
from typing import Any, Self

from regard.models import Ids, Loaded
from regard.text import Encoding
from regard.tracing import edits, measures, pages, record, run
from regard.tracing.patterns import heads_of_trace

_FOR_ROOMS = frozenset(
    [
        "attention",
        "attention_of",
        "head_index",
        "kind",
        "layer_index",
        "layers_of",
        "of",
        "origin",
        "passage",
        "require_model",
        "sides",
        "source",
    ]
)


class Trace(record.Trace):
    """The record of one run of a model on a text, and everything that can be asked of it.

    `model.trace(text)` makes one. It keeps queries, keys, values and hidden states, and computes weights and
    measures from them on demand.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.weights(layer=0, head=3, query="flies").shape
        torch.Size([1, 7])
    """

    save = record.save

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

    difference_page = pages.difference_page
    explain = pages.explain
    page = pages.page
    plot = pages.plot
    widget = pages.widget
    write_page = pages.write_page
    _repr_mimebundle_ = pages.mimebundle
    _display_ = pages.display  # of marimo

    def __dir__(self) -> list[str]:
        """What is asked of a trace; what the rooms of tracing ask of it besides is left out."""
        return sorted(set(super().__dir__()) - _FOR_ROOMS)

    @classmethod
    def of(cls, recorded: record.Trace) -> Self:
        """The same trace, with all methods."""
        return cls(**{field.name: getattr(recorded, field.name) for field in fields(recorded)})

    @classmethod
    def open(cls, path: str | PathLike[str], model: record.HasLoaded | Loaded | None = None) -> Self:
        """Open a trace that `save` wrote: see `regard.tracing.record.open_trace`."""
        return cls.of(record.open_trace(path, model))


def trace_text(
    loaded: Loaded,
    text: str,
    pair: str | None = None,
    *,
    target: str | None = None,
    keeping: record.Keeping = record.EVERYTHING,
) -> Trace:
    """Trace a text, or a pair of texts, through a model: see `regard.tracing.run.trace_text`."""
    return Trace.of(run.trace_text(loaded, text, pair, target=target, keeping=keeping))


def trace_texts(
    loaded: Loaded, texts: Sequence[str], *, keeping: record.Keeping = record.EVERYTHING
) -> list[Trace]:
    """Trace several texts, those of like length in one pass: see `regard.tracing.run.trace_texts`."""
    return [Trace.of(each) for each in run.trace_texts(loaded, texts, keeping=keeping)]


def trace_ids(
    loaded: Loaded,
    token_ids: Ids,
    target_ids: Ids | None = None,
    *,
    keeping: record.Keeping = record.EVERYTHING,
) -> Trace:
    """Trace token ids, which need no tokenizer: see `regard.tracing.run.trace_rows`."""
    return Trace.of(run.trace_ids(loaded, token_ids, target_ids, keeping=keeping))


def trace_rows(loaded: Loaded, token_ids: Ids, **others: Any) -> list[Trace]:
    """Trace rows of token ids as a tokenizer hands them out: see `regard.tracing.run.trace_rows`."""
    return [Trace.of(each) for each in run.trace_rows(loaded, token_ids, **others)]


def trace_read(
    loaded: Loaded,
    encoding: Encoding,
    target: Encoding | None = None,
    *,
    keeping: record.Keeping = record.EVERYTHING,
) -> Trace:
    """Trace what was encoded already: see `regard.tracing.run.trace_read`."""
    return Trace.of(run.trace_read(loaded, encoding, target, keeping=keeping))
