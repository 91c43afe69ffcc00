"""Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.core.errors import InputError
from regard.embedding.job import Columns, Inputs
from unit.embedding.job.reading import rows

TEXTS = ["one", None, "three", "", "  ", "six", "seven"]


@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("row_group_size", [2, 100])
def test_every_kind_of_text(tmp_path: Path, type: pa.DataType, row_group_size: int) -> None:
    path = tmp_path / "a.parquet"
    when = pa.array([0, 1, None, 3, 4, 5, 10**15 + 1], pa.timestamp("us"))
    nested = pa.array([[{"x": row}] for row in range(7)])
    table = pa.table(
        {"t": pa.array(TEXTS, type), "id": pa.array(range(7), pa.int32()), "w": when, "n": nested}
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    columns = Columns(text=("t",), id="id", keep=("w", "n"))
    inputs = Inputs([path], columns)
    assert [field.type for field in inputs.fields[:2]] == [pa.int32(), pa.timestamp("us")]
    found = rows(path, columns)
    assert {row: each[0] for row, each in found.items() if isinstance(each, tuple)} == {
        0: "one",
        2: "three",
        5: "six",
        6: "seven",
    }
    assert found[1] == [1, "the text is null"]
    assert found[3] == [3, "the text is empty"]
    assert found[6][1:] == (6, when[6].as_py(), [{"x": 6}])


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bad = pa.array([b"good", b"a\xff", None, b"last"], pa.binary()).cast(pa.binary())
    text = pa.StringArray.from_buffers(4, bad.buffers()[1], bad.buffers()[2], bad.buffers()[0])
    pq.write_table(pa.table({"text": text, "other": text}), path)
    assert rows(path) == {
        0: "good",
        1: [None, "the text is not UTF-8"],
        2: [None, "the text is null"],
        3: "last",
    }
    pq.write_table(pa.table({"text": ["a", "b", "c", "d"], "other": text}), path)
    assert rows(path, Columns(keep=("other",))) == {
        0: ("a", "good"),
        1: [None, "column 'other' is not UTF-8"],
        2: ("c", None),
        3: ("d", "last"),
    }


def test_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "id": pa.array([None, "x"]), "f": [1.0, 2.0]}), path)
    assert rows(path, Columns(id="id")) == {0: [None, "the id is null (column 'id')"], 1: ("b", "x")}
    with pytest.raises(InputError, match="'f' must hold whole numbers or text to be the id; it holds double"):
        Inputs([path], Columns(id="f"))
    with pytest.raises(InputError, match="'f' must hold text, or lists of words; it holds double"):
        Inputs([path], Columns(text=("f",)))
    with pytest.raises(InputError, match=r"no column 'no'; it has 'text', 'id', 'f'"):
        Inputs([path], Columns(id="no"))


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(5000)]}), path, compression="zstd")
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    with pytest.raises(InputError, match="damaged, or not a Parquet file"):
        Inputs([path], Columns())
    path.write_bytes(data[:40] + bytes(2000) + data[2040:])
    with pytest.raises(InputError, match="is damaged"):
        rows(path)
    table = pa.table({"text": [f"text {n}" for n in range(50)]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    path.write_bytes(path.read_bytes().replace(b"text 17", b"text 77", 1))  # a bit that fell over
    with pytest.raises(InputError, match="is damaged"):
        rows(path)
