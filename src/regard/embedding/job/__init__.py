"""Files of texts in, a folder of Parquet shards with their vectors out: resumable, and the same every time.

    inputs = Inputs([Path("texts.parquet")], Columns(id="id"))
    run(inputs, Path("vectors"), open_work)

A job knows the model only as a `Work`.
"""

from regard.embedding.job._columns import Columns
from regard.embedding.job._inputs import Inputs
from regard.embedding.job._job import SHARD_ROWS, OpenWork, Progress, Summary, run
from regard.embedding.job._opening import FORMATS
from regard.embedding.job._work import Piece, Work

__all__ = [
    "FORMATS",
    "SHARD_ROWS",
    "Columns",
    "Inputs",
    "OpenWork",
    "Piece",
    "Progress",
    "Summary",
    "Work",
    "run",
]
