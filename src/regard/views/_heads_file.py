"""What each head does, as a Parquet file: a row a head."""

import json
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.core.files import write_whole
from regard.views._heads import HeadCard, HeadTable


def check_heads_file(path: Path) -> None:
    """Refuse a file that `write_heads` could not write, before the work is done.

    Raises:
        InputError: an ending other than .parquet.
        MissingExtraError: pyarrow is not installed.
    """
    if path.suffix.lower() != ".parquet":
        raise InputError(f"the table's file must end in .parquet; got {str(path)!r}.")
    pyarrow()


def write_heads(table: HeadTable, path: Path) -> None:
    """Write a table of heads, whole or not at all.

    A row has kind, layer, head, pattern, detail, effect, low, high, mass, captured, queries (of the named
    pattern, or of the strongest where there is none), `findings`, a list of the same for every pattern, and
    `examples`. What belongs to all rows (model, texts, level, ...) stands as JSON in the file's metadata,
    under "regard".

    Args:
        table: the table.
        path: the file, which ends in .parquet.

    Raises:
        InputError: another ending.
        MissingExtraError: pyarrow is not installed.
        OutputError: the file cannot be written.
    """
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
        metadata={"regard": json.dumps({**table.to_json(), "cards": len(table.cards)})},
    )
    rows = pa.Table.from_pylist([_row(card) for card in table.cards], schema=schema)
    write_whole(path, lambda temporary: parquet.write_table(rows, temporary))


def _row(card: HeadCard) -> dict[str, Any]:
    plain = card.to_json()
    return {**plain["findings"][0], **plain}  # the card's own pattern may be "none"
