"""Reading a model as it runs: the trace, the worked calculation, one word between sentences."""

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
