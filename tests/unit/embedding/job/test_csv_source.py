"""CSV and TSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from regard.core.errors import InputError
from regard.embedding.job import Columns, Inputs, _csv_source, _line_sources
from unit.embedding.job.reading import check_from_every_shard, rows

ODD = (
    b'\xef\xbb\xbfid,text,year\r\n1,one,1999\r\n2,"two\nlines, and ""quotes""",\r\n\r\n3\r\n4,"bad"x,3\r\n'
    b"5,,4\r\n6,six\xff,3\r\n,seven,3\r\n8,last,3"
)


def test_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(ODD)
    limit = csv.field_size_limit()
    assert rows(path, Columns(id="id", keep=("year",))) == {
        0: ("one", "1", "1999"),
        1: ('two\nlines, and "quotes"', "2", ""),
        2: [None, "the record has 1 fields, the header 3"],
        3: [None, "the record is no CSV (',' expected after '\"')"],
        4: ["5", "the text is empty"],
        5: [None, "the record is not UTF-8: byte 5 of a line is 0xff"],
        6: ["", "the id is empty (column 'id')"],
        7: ("last", "8", "3"),
    }
    assert csv.field_size_limit() == limit
    check_from_every_shard(Inputs([path], Columns(id="id", keep=("year",))))


def test_tabs_and_other_delimiters(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('text\tid\n"a, b"\t1\n')
    assert rows(tmp_path / "a.tsv", Columns(id="id")) == {0: ("a, b", "1")}
    path = tmp_path / "b.csv"
    path.write_text("text;id\na, b;1\n")
    assert rows(path, Columns(id="id"), delimiter=";") == {0: ("a, b", "1")}
    with pytest.raises(InputError, match=r"no column 'text'; it has 'text;id'.*end at ';'\? .*--delimiter"):
        Inputs([path], Columns())
    with pytest.raises(InputError, match="--delimiter must be one character"):
        Inputs([path], Columns(), delimiter=";;")


def test_a_missing_or_doubled_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("body,id,id\nx,1,2\n")
    with pytest.raises(InputError, match=r"no column 'text'; it has 'body', 'id', 'id'"):
        Inputs([path], Columns())
    with pytest.raises(InputError, match=r"several columns 'id'"):
        Inputs([path], Columns(text=("body",), id="id"))


def test_a_header_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n\n")
    with pytest.raises(InputError, match="no header"):
        Inputs([path], Columns())


def test_a_quote_that_is_never_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_csv_source, _line_sources):
        monkeypatch.setattr(module, "LONGEST", 30)
    path = tmp_path / "a.csv"
    path.write_text('text\none\n"open\n' + "three\n" * 9 + "four\n")
    assert rows(path)[0] == "one"
    assert rows(path)[1] == [None, "the record is no CSV (field larger than field limit (30))"]
    assert rows(path)[6] == "four"
    path.write_text("text\none\n" + "x" * 50 + "\nthree\n")
    assert rows(path) == {0: "one", 1: [None, "a line is longer than 30 bytes"], 2: "three"}
