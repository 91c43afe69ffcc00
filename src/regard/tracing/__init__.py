"""Reading a model as it runs: the trace, the worked calculation, one word between sentences.

Importing the package imports nothing of it; the first use of a name does. So whoever loads a model only to
embed with it does not wait for what traces it.
"""

from typing import TYPE_CHECKING

from regard._lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from regard.tracing._trace import Trace, trace_ids, trace_read, trace_rows, trace_text, trace_texts
    from regard.tracing.comparison import (
        Comparison,
        Divergence,
        compare,
        difference,
        divergence,
        movement,
    )
    from regard.tracing.edits import (
        Add,
        Edit,
        ExampleMetric,
        ImportanceMethod,
        Layers,
        Likeness,
        Mean,
        Part,
        Patching,
        PatchingMethod,
        Per,
        Replace,
        Resample,
        Scale,
        SiteName,
        Write,
        Zero,
        edited,
        head_importance,
        patch,
    )
    from regard.tracing.measures import (
        DirectAttribution,
        IntegratedGradients,
        LogitLens,
        Statistics,
        TokenLens,
    )
    from regard.tracing.pages import (
        DraggedWeight,
        Explanation,
        PageRequest,
        Reads,
        Step,
        WriteRequest,
        comparison_page,
        difference_page,
        explain,
        live_page,
        page_answer,
        page_record,
        preview,
        senses_page,
        served_page,
        writing_bundle,
        writing_page,
        writing_widget,
    )
    from regard.tracing.patterns import (
        Alignment,
        Broadcast,
        DelimiterSink,
        DuplicateToken,
        HeadCard,
        HeadExample,
        HeadFinding,
        HeadOptions,
        HeadPattern,
        HeadTable,
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
    from regard.tracing.reasons import Feeds, Why, WhyHeads, WhyPart, Writer
    from regard.tracing.record import AttentionTrace, Keep, KeepPolicy, TracedStack, kept_bytes
    from regard.tracing.run import Forecast, Metric, forecast, rerun

__all__ = [
    "Add",
    "Alignment",
    "AttentionTrace",
    "Broadcast",
    "Comparison",
    "DelimiterSink",
    "DirectAttribution",
    "Divergence",
    "DuplicateToken",
    "Edit",
    "ExampleMetric",
    "Explanation",
    "Feeds",
    "Forecast",
    "HeadCard",
    "HeadExample",
    "HeadFinding",
    "HeadOptions",
    "HeadPattern",
    "HeadTable",
    "Induction",
    "IntegratedGradients",
    "Keep",
    "KeepPolicy",
    "KeyPattern",
    "Likeness",
    "LogitLens",
    "Mean",
    "Metric",
    "Offset",
    "Part",
    "Patching",
    "Replace",
    "Resample",
    "RowPattern",
    "Scale",
    "Sides",
    "SiteName",
    "Statistics",
    "Step",
    "TokenLens",
    "Trace",
    "TracedStack",
    "Why",
    "WhyHeads",
    "WhyPart",
    "Write",
    "Writer",
    "Zero",
    "compare",
    "default_patterns",
    "difference",
    "difference_page",
    "divergence",
    "edited",
    "explain",
    "forecast",
    "head_importance",
    "heads",
    "live_page",
    "movement",
    "patch",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "regard.tracing._trace": "Trace trace_ids trace_read trace_rows trace_text trace_texts",
        "regard.tracing.comparison": "Comparison Divergence compare difference divergence movement",
        "regard.tracing.edits": (
            "Add Edit ExampleMetric ImportanceMethod Layers Likeness Mean Part Patching PatchingMethod Per "
            "Replace Resample Scale SiteName Write Zero edited head_importance patch"
        ),
        "regard.tracing.measures": "DirectAttribution IntegratedGradients LogitLens Statistics TokenLens",
        "regard.tracing.pages": (
            "DraggedWeight Explanation PageRequest Reads Step WriteRequest comparison_page difference_page "
            "explain live_page page_answer page_record preview senses_page served_page writing_bundle "
            "writing_page "
            "writing_widget"
        ),
        "regard.tracing.patterns": (
            "Alignment Broadcast DelimiterSink DuplicateToken HeadCard HeadExample HeadFinding "
            "HeadOptions HeadPattern HeadTable Induction KeyPattern Offset RowPattern Sides TextOrIds "
            "default_patterns heads heads_of_trace repeated_tokens"
        ),
        "regard.tracing.reasons": "Feeds Why WhyHeads WhyPart Writer",
        "regard.tracing.record": "AttentionTrace Keep KeepPolicy TracedStack kept_bytes",
        "regard.tracing.run": "Forecast Metric forecast rerun",
    },
)
