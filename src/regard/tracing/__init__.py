"""Reading a model as it runs: the trace, the worked calculation, one word between sentences.

Importing the package imports nothing of it; the first use of a name does. So whoever loads a model only to
embed with it does not wait for what traces it.
"""

from typing import TYPE_CHECKING

from regard._on_use import on_use as _on_use

if TYPE_CHECKING:
    from regard.tracing._compare import compare
    from regard.tracing._difference import difference, difference_page
    from regard.tracing._divergence import Divergence, divergence
    from regard.tracing._edits import (
        Add,
        Edit,
        Mean,
        Metric,
        Numbers,
        Patching,
        Per,
        Positions,
        Progress,
        Replace,
        Resample,
        Scale,
        SiteName,
        Zero,
        activation_patching,
        attribution_patching,
        edited,
    )
    from regard.tracing._explain import explain
    from regard.tracing._forecast import Forecast, bytes_at, forecast
    from regard.tracing._heads import (
        Alignment,
        Broadcast,
        DelimiterSink,
        DuplicateToken,
        HeadPattern,
        Induction,
        KeyPattern,
        Offset,
        RowPattern,
        Sides,
        TextOrIds,
        default_patterns,
        heads,
        heads_of_trace,
        repeated_tokens,
    )
    from regard.tracing._importance import ExampleMetric, ImportanceMethod, head_importance
    from regard.tracing._keep import Keep, Keeping
    from regard.tracing._kinds import Kind
    from regard.tracing._lens import LensNetwork, lens
    from regard.tracing._likeness import Likeness
    from regard.tracing._measures import DirectAttribution, IntegratedGradients, LogitLens, Trajectory
    from regard.tracing._movement import comparison_page, movement
    from regard.tracing._page import page_record
    from regard.tracing._parity import LayerParity, Parity
    from regard.tracing._passage import AttentionTrace, Passage
    from regard.tracing._run import trace_ids, trace_text
    from regard.tracing._selectors import Selector
    from regard.tracing._size import kept_bytes
    from regard.tracing._statistics import Statistics
    from regard.tracing._trace import Trace

_HOME = {
    "Add": "_edits",
    "Alignment": "_heads",
    "AttentionTrace": "_passage",
    "Broadcast": "_heads",
    "DelimiterSink": "_heads",
    "DirectAttribution": "_measures",
    "Divergence": "_divergence",
    "DuplicateToken": "_heads",
    "Edit": "_edits",
    "ExampleMetric": "_importance",
    "Forecast": "_forecast",
    "HeadPattern": "_heads",
    "ImportanceMethod": "_importance",
    "Induction": "_heads",
    "IntegratedGradients": "_measures",
    "Keep": "_keep",
    "Keeping": "_keep",
    "KeyPattern": "_heads",
    "Kind": "_kinds",
    "LayerParity": "_parity",
    "LensNetwork": "_lens",
    "Likeness": "_likeness",
    "LogitLens": "_measures",
    "Mean": "_edits",
    "Metric": "_edits",
    "Numbers": "_edits",
    "Offset": "_heads",
    "Parity": "_parity",
    "Passage": "_passage",
    "Patching": "_edits",
    "Per": "_edits",
    "Positions": "_edits",
    "Progress": "_edits",
    "Replace": "_edits",
    "Resample": "_edits",
    "RowPattern": "_heads",
    "Scale": "_edits",
    "Selector": "_selectors",
    "Sides": "_heads",
    "SiteName": "_edits",
    "Statistics": "_statistics",
    "TextOrIds": "_heads",
    "Trace": "_trace",
    "Trajectory": "_measures",
    "Zero": "_edits",
    "activation_patching": "_edits",
    "attribution_patching": "_edits",
    "bytes_at": "_forecast",
    "compare": "_compare",
    "comparison_page": "_movement",
    "default_patterns": "_heads",
    "difference": "_difference",
    "difference_page": "_difference",
    "divergence": "_divergence",
    "edited": "_edits",
    "explain": "_explain",
    "forecast": "_forecast",
    "head_importance": "_importance",
    "heads": "_heads",
    "heads_of_trace": "_heads",
    "kept_bytes": "_size",
    "lens": "_lens",
    "movement": "_movement",
    "page_record": "_page",
    "repeated_tokens": "_heads",
    "trace_ids": "_run",
    "trace_text": "_run",
}

__all__ = [
    "Add",
    "Alignment",
    "AttentionTrace",
    "Broadcast",
    "DelimiterSink",
    "DirectAttribution",
    "Divergence",
    "DuplicateToken",
    "Edit",
    "ExampleMetric",
    "Forecast",
    "HeadPattern",
    "ImportanceMethod",
    "Induction",
    "IntegratedGradients",
    "Keep",
    "Keeping",
    "KeyPattern",
    "Kind",
    "LayerParity",
    "LensNetwork",
    "Likeness",
    "LogitLens",
    "Mean",
    "Metric",
    "Numbers",
    "Offset",
    "Parity",
    "Passage",
    "Patching",
    "Per",
    "Positions",
    "Progress",
    "Replace",
    "Resample",
    "RowPattern",
    "Scale",
    "Selector",
    "Sides",
    "SiteName",
    "Statistics",
    "TextOrIds",
    "Trace",
    "Trajectory",
    "Zero",
    "activation_patching",
    "attribution_patching",
    "bytes_at",
    "compare",
    "comparison_page",
    "default_patterns",
    "difference",
    "difference_page",
    "divergence",
    "edited",
    "explain",
    "forecast",
    "head_importance",
    "heads",
    "heads_of_trace",
    "kept_bytes",
    "lens",
    "movement",
    "page_record",
    "repeated_tokens",
    "trace_ids",
    "trace_text",
]

__getattr__, __dir__ = _on_use(__name__, _HOME)
