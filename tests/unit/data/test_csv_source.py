"""CSV and TSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from regard.core.errors import InputError
from regard.data import Csv, _csv_source, _records
from regard.data._records import too_long
from regard.embedding.job import Columns, Inputs
from unit.embedding.job.reading import rows

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
        3: [None, "the record is not valid CSV (',' expected after '\"')"],
        4: ["5", "the text is empty"],
        5: ["6", "a line is not UTF-8: byte 5 is 0xff; name its encoding"],
        6: ["", "the id is empty (column 'id')"],
        7: ("last", "8", "3"),
    }
    assert csv.field_size_limit() == limit


def test_tabs_and_other_delimiters(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('text\tid\n"a, b"\t1\n')
    assert rows(tmp_path / "a.tsv", Columns(id="id")) == {0: ("a, b", "1")}
    path = tmp_path / "b.csv"
    path.write_text("text;id\na, b;1\n")
    assert rows(path, Columns(id="id"), csv=Csv(delimiter=";")) == {0: ("a, b", "1")}
    with pytest.raises(InputError, match=r"no column 'text'; it has 'text;id'.*end at ';'\? .*--delimiter"):
        Inputs([path], Columns())
    path.write_text("text\tid\na, b\t1\n")
    assert rows(path, Columns(id="id"), csv=Csv(delimiter=r"\t")) == {0: ("a, b", "1")}
    for form in ({"delimiter": ";;"}, {"delimiter": '"'}, {"escape": '"'}, {"escape": "ab"}, {"escape": ""}):
        with pytest.raises(InputError, match=f"{next(iter(form))} must be one character"):
            Csv(**form)
    assert Csv(delimiter=r"\t", escape=r"\\") == Csv(delimiter="\t", escape="\\")
    with pytest.raises(InputError, match="escape must not be the delimiter"):
        Csv(delimiter=";", escape=";")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (r'"said \"hi\" twice"', 'said "hi" twice'),
        (r'"at the end \""', 'at the end "'),
        (r'"<a href=\"x, y\">"', '<a href="x, y">'),
        ('"a ""double"" one"', 'a "double" one'),
        (r"C:\data\new", r"C:\data\new"),  # Spark writes it so where there are no quotes
        (r'"C:\\data, \"new\""', r'C:\data, "new"'),
        (r'"ends in one \\"', "ends in one \\"),
        (r"one\, field", "one, field"),
        ("two\\\nlines", "two\nlines"),
        ("two\\\r\nlines", "two\nlines"),
        ('"two\nlines \\"q\\""', 'two\nlines "q"'),
        (r"\N", None),
        (r"\Nothing", r"\Nothing"),
    ],
)
def test_escapes_of_spark_and_mysql(tmp_path: Path, field: str, text: str | None) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(f"text,id\n{field},1\n{field},2\nlast,3\n".encode())
    wanted = [(text, "1"), (text, "2")] if text else [["1", "the text is null"], ["2", "the text is null"]]
    found = rows(path, Columns(id="id"), csv=Csv(escape="\\"))
    assert found == {0: wanted[0], 1: wanted[1], 2: ("last", "3")}


def test_a_row_put_aside_for_an_escape_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\n"said \\"hi\\""\n"ends with \\""\nplain\n1,2\n')
    found = rows(path)
    assert all("give escape='\\' (--escape)" in found[row][1] for row in (0, 1))
    assert found[2] == "plain"
    assert "escape" not in found[3][1]
    path.write_text("text\nN\nNoneN\n\\N\n")
    assert rows(path) == {0: "N", 1: "NoneN", 2: r"\N"}


def test_no_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("the river\t1\nthe bank\t2\nodd\n")
    form = Csv(header=False)
    wanted = {0: ("the river", "1"), 1: ("the bank", "2"), 2: [None, "the record has 1 fields, the first 2"]}
    assert rows(path, Columns(text=("1",), id="2"), csv=form) == wanted
    with pytest.raises(InputError, match=r"no column 'text'; it has '1', '2'\. Name one"):
        Inputs([path], Columns(), csv=form)
    with pytest.raises(InputError, match=r"it has 'the river', '1'.*no header\? .*--no-header"):
        Inputs([path], Columns())


def test_a_carriage_return_among_line_feeds(tmp_path: Path) -> None:
    """In plain text it is a character of its line. CSV has it in quotes only."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\rstill two\nthree")
    assert rows(path) == {0: "one", 1: "two\rstill two", 2: "three"}
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\r\n"one\rstill one"\r\ntwo\rthree\nfour\r\n')
    found = rows(path)
    assert (found[0], found[2]) == ("one\rstill one", "four")
    assert "a carriage return is in a field without quotes; make it a line end with tr" in found[1][1]


def test_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("t\u00e9xt,id\nna\u00efve,1\n\u20ac 5,2\n".encode("cp1252"))
    columns = Columns(text=("t\u00e9xt",), id="id")
    assert rows(path, columns, encoding="cp1252") == {0: ("na\u00efve", "1"), 1: ("\u20ac 5", "2")}
    for encoding in ("no-such", "utf-16", "hex"):
        with pytest.raises(InputError, match="encoding must be one that Python knows"):
            Inputs([path], columns, encoding=encoding)


STRAY = [None, "a quotation mark in the line is not closed, or not at the end of its field"]


@pytest.mark.parametrize(
    ("bad", "closing"),
    [
        ('10,"text 10', "2990,text 2990"),  # never closed
        ('10,"text 10', '2990,"text 2990"'),  # closed by the next field that is quoted
        ('10,"text 10', '2990,text 2990"'),  # closed by another stray one, where a field ends
        ('10,"text" 10', "2990,text 2990"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_stray_quotation_mark_costs_one_row(tmp_path: Path, bad: str, closing: str, end: str) -> None:
    path = tmp_path / "a.csv"
    lines = [f"{n},text {n}" for n in range(3000)]
    lines[10], lines[2990] = bad, closing
    path.write_bytes(end.join(["id,text", *lines, ""]).encode())
    found = rows(path, Columns(id="id"))
    assert len(found) == 3000
    assert found.pop(10)[0] is None
    closed = found.pop(2990)[0]
    assert closed.strip('"') == "text 2990"
    assert all(each == (f"text {row}", str(row)) for row, each in found.items())


def test_honest_fields_of_many_lines(tmp_path: Path) -> None:
    """Also where each of a few lines, or some of many, would read as a record."""
    path = tmp_path / "a.csv"
    texts = ["Dear all,\nhello, there\nyours, me", "\n\n".join(f"line, {n}" for n in range(9))]
    texts.append("\n".join(f"line {n}" + ", and more" * (n % 2) for n in range(500)))
    texts.append('"quoted"\r\nand on')
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "id"], *([text, n] for n, text in enumerate(texts))])
    assert rows(path, Columns(id="id")) == {n: (text, str(n)) for n, text in enumerate(texts)}
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    assert rows(path) == dict(enumerate(texts))


def test_lines_and_fields_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_csv_source, _records):
        monkeypatch.setattr(module, "LONGEST", 30)
    path = tmp_path / "a.csv"
    path.write_text('text\none\n"open\n' + "three\n" * 9 + "four\n")
    assert rows(path) == {0: "one", 1: STRAY, **dict.fromkeys(range(2, 11), "three"), 11: "four"}
    path.write_text("text\none\n" + "x" * 50 + "\nthree\n")
    assert rows(path) == {0: "one", 1: [None, too_long("a line")], 2: "three"}
