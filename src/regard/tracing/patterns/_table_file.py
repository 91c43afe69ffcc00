"""What each head does, as a Parquet file: a row a head."""

import json
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.core.files import write_whole


def check_heads_file(path: Path) -> None:
    """Refuse a file that `HeadTable.write` could not write, before the work is done."""
    if path.suffix.lower() != ".parquet":
        raise InputError(f"the table's file must end in .parquet; got {str(path)!r}.")
    pyarrow()


def write_rows(rows: list[dict[str, Any]], about: dict[str, Any], path: Path) -> Path:
    """Write the rows of a table of heads, and what belongs to all of them: see `HeadTable.write`."""
    check_heads_file(path)
    pa, parquet = pyarrow()
    finding = {
        "pattern": pa.string(),
        "detail": pa.string(),
        **dict.fromkeys(("effect", "low", "high", "mass", "captured"), pa.float64()),
        "queries": pa.int64(),
    }
    example = {
        "text": pa.int64(),
        "tokens": pa.list_(pa.string()),
        "keys": pa.list_(pa.string()),
        "query": pa.int64(),
        "key": pa.int64(),
        "mass": pa.float64(),
    }
    schema = pa.schema(
        {
            "kind": pa.string(),
            "layer": pa.int64(),
            "head": pa.int64(),
            **finding,
            "findings": pa.list_(pa.struct(list(finding.items()))),
            "examples": pa.list_(pa.struct(list(example.items()))),
        },
        metadata={"regard": json.dumps(about)},
    )
    table = pa.Table.from_pylist(rows, schema=schema)
    write_whole(path, lambda temporary: parquet.write_table(table, temporary))
    return path
