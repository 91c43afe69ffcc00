"""Running a model on a text while listening, and running it again."""

from regard.tracing.run._again import run_again
from regard.tracing.run._forecast import Forecast, forecast
from regard.tracing.run._listening import run_quietly
from regard.tracing.run._run import trace_ids, trace_text

__all__ = [
    "Forecast",
    "forecast",
    "run_again",
    "run_quietly",
    "trace_ids",
    "trace_text",
]
