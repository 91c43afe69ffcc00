"""Running a model on a text while listening, and running it again."""

from regard.tracing.run._forecast import Forecast, forecast
from regard.tracing.run._passes import check_mode, rerun
from regard.tracing.run._run import TraceOfRun

__all__ = [
    "Forecast",
    "TraceOfRun",
    "check_mode",
    "forecast",
    "rerun",
]
