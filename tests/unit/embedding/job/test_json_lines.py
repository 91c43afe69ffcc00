"""JSON lines for stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from regard.embedding.job import Columns, Inputs, json_lines
from unit.embedding.job.works import Hashed, vector


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    when = pa.array([1, 2, 3, 4, 5], pa.timestamp("ns"))
    table = pa.table({"text": ["one", None, "refuse", "four", " "], "id": [7, 8, 9, 10, 11], "when": when})
    pq.write_table(table, path)
    rejected: list[dict[str, Any]] = []
    inputs = Inputs([path], Columns(id="id", keep=("when",)))
    found = list(json_lines(inputs, Hashed(), on_rejected=rejected.append))
    lines = json.loads(json.dumps(found))
    assert [(line["row"], line["id"]) for line in lines] == [(0, 7), (3, 10)]
    assert lines[0]["when"] == "1970-01-01 00:00:00.000000001"
    assert (np.array(lines[0]["vector"], np.float32) == vector("one")).all()
    assert [(row["id"], row["reason"]) for row in rejected] == [
        (8, "the text is null"),
        (9, "no token is left"),
        (11, "the text is empty"),
    ]
