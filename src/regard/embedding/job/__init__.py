"""Files of texts in, a folder of Parquet shards with their vectors out: resumable, and the same every time.

    inputs = Inputs([Path("texts.parquet")], Columns(id="id"))
    run(inputs, Path("vectors"), lambda earlier: ModelWork(loaded, Request(level="word"), earlier))

The job knows the model only as a `Work`.
"""

from regard.embedding.job._forms import estimate, json_lines, run_to_array
from regard.embedding.job._inputs import Inputs
from regard.embedding.job._job import SHARD_ROWS, JobState, Summary, run
from regard.embedding.job._ray import RayWorkers
from regard.embedding.job._reading import Columns
from regard.embedding.job._work import ModelWork, Piece, Work, open_model

__all__ = [
    "Columns",
    "Inputs",
    "JobState",
    "RayWorkers",
    "Summary",
    "Work",
    "open_model",
    "run",
]
