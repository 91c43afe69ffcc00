"""Running a model on a text while listening, and running it again."""

from regard.tracing.run._again import check_mode, rerun
from regard.tracing.run._forecast import Forecast, forecast
from regard.tracing.run._run import trace_ids, trace_read, trace_rows, trace_text, trace_texts

__all__ = [
    "Forecast",
    "check_mode",
    "forecast",
    "rerun",
    "trace_ids",
    "trace_read",
    "trace_rows",
    "trace_text",
    "trace_texts",
]
