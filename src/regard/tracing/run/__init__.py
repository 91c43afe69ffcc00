"""Running a model on a text while listening, and running it again."""

from regard.tracing.run._forecast import Forecast, forecast
from regard.tracing.run._passes import (
    Metric,
    check_mode,
    gradients_at,
    number_of,
    rerun,
    seen_at,
    watched_pass,
)
from regard.tracing.run._run import TraceOfRun
