"""Running a model on a text while listening, and running it again."""

from regard.tracing.run._forecast import Forecast, forecast
from regard.tracing.run._passes import check_mode, rerun
from regard.tracing.run._run import TraceOfRun
from regard.tracing.run._watching import Metric, gradients_at, number_of, seen_at, watched_pass
