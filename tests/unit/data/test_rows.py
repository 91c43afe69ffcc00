"""Rows of chosen columns, each with its place, from every format; and files side by side."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.core.errors import InputError
from regard.data import ParallelRows, Rows

TEXT = b"\xef\xbb\xbfone\r\n\n \ntwo\nthree\n\n"
JSON = b'{"text": "one", "label": 1, "words": ["a", "b"]}\n{"text": "two", "label": 0, "words": []}\n'
CSV = b'label,text\n1,"one\nand more"\n0,two\n'


def write(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def read(rows: Rows | ParallelRows, folder: Path) -> list[tuple[Any, ...]]:
    return [(*row.values.values(), row.place.replace(f"{folder}/", "")) for row in rows]


@pytest.mark.parametrize(
    ("name", "content", "columns", "unit", "wanted"),
    [
        pytest.param(
            "a.txt",
            TEXT,
            ("text",),
            "line",
            [(text, f"line {n} of a.txt") for n, text in enumerate(["one", "", " ", "two", "three", ""], 1)],
            id="lines",
        ),
        pytest.param(
            "a.txt",
            TEXT,
            ("text",),
            "paragraph",
            [("one", "line 1 of a.txt"), ("two\nthree", "line 4 of a.txt")],
            id="paragraphs",
        ),
        pytest.param("a.txt", TEXT, ("text",), "file", [("one\r\n\n \ntwo\nthree\n\n", "a.txt")], id="file"),
        pytest.param(
            "a.jsonl",
            JSON,
            ("words", "label"),
            "line",
            [(["a", "b"], 1, "line 1 of a.jsonl"), ([], 0, "line 2 of a.jsonl")],
            id="json",
        ),
        pytest.param(
            "a.jsonl", b'"one"\n', ("text",), "line", [("one", "line 1 of a.jsonl")], id="json-strings"
        ),
        pytest.param(
            "a.csv",
            CSV,
            ("text", "label"),
            "line",
            [("one\nand more", "1", "line 2 of a.csv"), ("two", "0", "line 4 of a.csv")],
            id="csv",
        ),
    ],
)
def test_every_format(
    tmp_path: Path, name: str, content: bytes, columns: tuple[str, ...], unit: Any, wanted: list[Any]
) -> None:
    rows = Rows([write(tmp_path, name, content)], columns, unit=unit)
    assert read(rows, tmp_path) == wanted
    assert read(rows, tmp_path) == wanted  # and again, from the beginning


def test_parquet_counts_rows_through_its_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"t{n}" for n in range(2500)], "label": list(range(2500)), "more": [1] * 2500})
    pq.write_table(table, path)
    found = read(Rows([path], ("label", "text")), tmp_path)
    assert found[0] == (0, "t0", "row 1 of a.parquet")
    assert found[2499] == (2499, "t2499", "row 2500 of a.parquet")
    assert len(found) == 2500


def test_several_files_of_several_formats(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a.txt", b"one\n"), write(tmp_path, "b.csv", b"text,x\ntwo,1\n")]
    rows = Rows(paths)
    assert [row.text() for row in rows] == ["one", "two"]
    assert rows.name == f"{paths[0]} and 1 more"


def test_stdin_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b"one\ntwo\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    rows = Rows(["-"])
    for _ in range(2):
        assert [(row.text(), row.place) for row in rows] == [
            ("one", "line 1 of stdin"),
            ("two", "line 2 of stdin"),
        ]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"one\ntw\xff\n", r"line 2 of \S+a\.txt: the line is not UTF-8: byte 2 is 0xff"),
        ("a.jsonl", b'{"text": "one"}\n{\n', r"line 2 of \S+a\.jsonl: the line is not valid JSON"),
        ("a.jsonl", b'{"text": "one"}\n{"no": 1}\n', r"line 2 of \S+a\.jsonl: there is no column 'text'"),
        ("a.jsonl", b'{"text": "one"}\n{"text": 1}\n', r"line 2 of \S+: column 'text' is a number, not"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"line 1 of \S+: column 'text' holds half of a surrogate"),
        ("a.csv", b'text,x\n"one\n\n1",1\ntwo\n', r"line 5 of \S+a\.csv: the record has 1 fields"),
        ("a.csv", b"body\none\n", r"a\.csv has no column 'text'; it has 'body'\. Or has it no header\? "),
    ],
)
def test_a_broken_row_says_where_it_stands(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        [row.text() for row in Rows([write(tmp_path, name, content)])]


def test_half_of_a_surrogate_pair_in_any_column(tmp_path: Path) -> None:
    content = b'{"text": "one", "label": "\\ud800", "x": "\\udc00"}\n'
    path = write(tmp_path, "a.jsonl", content)
    with pytest.raises(InputError, match=r"line 1 of \S+: column 'label' holds half of a surrogate pair"):
        list(Rows([path], ("text", "label")))
    assert len(list(Rows([path]))) == 1  # of a column that nobody reads


def test_a_text_that_is_not_utf8_in_parquet(tmp_path: Path) -> None:
    bad = pa.array([b"good", b"a\xff"], pa.binary())
    text = pa.StringArray.from_buffers(2, bad.buffers()[1], bad.buffers()[2])
    pq.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"row 2 of \S+a\.parquet: column 'text' is not UTF-8"):
        list(Rows([tmp_path / "a.parquet"]))


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", JSON)
    with pytest.raises(InputError, match=r"unit must be one of line, paragraph, file; got 'word'"):
        Rows([path], unit="word")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"line 2 of \S+b\.txt: the line is not UTF-8: byte 1 is 0xff"):
        list(Rows([write(tmp_path, "b.txt", b"a\nb\xffc\nd")], unit="file"))
    with pytest.raises(InputError, match=r"unit must be 'line' except for plain text"):
        Rows([path], unit="paragraph")
    with pytest.raises(InputError, match=r"plain text, which has no columns, and so no 'label'"):
        Rows([write(tmp_path, "a.txt", TEXT)], ("text", "label"))
    with pytest.raises(InputError, match=r"sides must each have one column; got 'source'"):
        ParallelRows({"source": Rows([path], ("text", "label"))})


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ([b"a\nb\n"], [b"x\n\n"], None),
        ([b"a\n", b"b\n"], [b"x\n\n"], None),
        ([b"a\nb\nc\nd\n"], [b"x\n\n"], r"\S+s0 has 4 and \S+t0 has 2; line 3 of \S+s0 has no partner"),
        ([b"a\n", b"b\n"], [b"x\n\nz"], r"\S+s0 and 1 more has 2 and \S+t0 has 3; line 3 of \S+t0 has no"),
    ],
)
def test_files_side_by_side(
    tmp_path: Path, source: list[bytes], target: list[bytes], told: str | None
) -> None:
    sides = {"source": source, "target": target}
    rows = ParallelRows(
        {
            name: Rows([write(tmp_path, f"{name[0]}{n}", each) for n, each in enumerate(files)])
            for name, files in sides.items()
        }
    )
    if told is None:
        assert [row.values for row in rows] == [{"source": "a", "target": "x"}, {"source": "b", "target": ""}]
        assert next(iter(rows)).place == f"line 1 of {tmp_path / 's0'} and line 1 of {tmp_path / 't0'}"
    else:
        with pytest.raises(InputError, match=f"source and target must have as many rows: {told}"):
            list(rows)
