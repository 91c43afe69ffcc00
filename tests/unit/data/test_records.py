"""Plain text and JSON lines."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.core.errors import InputError
from regard.data import _records
from regard.embedding.job import Columns, Inputs, _reading
from unit.embedding.job.reading import blocks, rows

ODD = b"one\n\n  \nthree\xff\nfo\0ur\r\nfive\r\nsix"
READ = {
    0: "one",
    1: [None, "the text is empty"],
    2: [None, "the text is empty"],
    3: [None, "the line is not UTF-8: byte 5 is 0xff; name its encoding"],
    4: [None, "the line holds a NUL"],
    5: "five",
    6: "six",
}


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Only the beginning is looked into, and a NUL there means that the file is binary.
    path = tmp_path / "odd.txt"
    path.write_bytes(b"x\n" * 33000 + ODD)
    return path


def test_a_row_is_a_line(odd: Path) -> None:
    found = rows(odd)
    assert {row - 33000: each for row, each in found.items() if row >= 33000} == READ
    assert all(found[row] == "x" for row in range(33000))


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
    ],
)
def test_compressed(tmp_path: Path, suffix: str, pack: object) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"one\ntwo\nthree\nfour\nfive\n"))  # type: ignore[operator]
    inputs = Inputs([path], Columns())
    assert rows(path) == {0: "one", 1: "two", 2: "three", 3: "four", 4: "five"}
    assert inputs.fingerprint()[0][0]["bytes"] == path.stat().st_size
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(InputError, match=r"a\.txt\S+ cannot be read"):
        rows(path)


def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_records, _reading):
        monkeypatch.setattr(module, "LONGEST", 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"123456789\n" + b"x" * 5000 + b"\n" + b"1234567890\n" + b"next\n" + b"y" * 4000)
    long = [None, "the line is longer than 10 bytes, the most that is read; divide it into several rows"]
    assert rows(path) == {0: "123456789", 1: long, 2: long, 3: "next", 4: long}


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        b'\xef\xbb\xbf{"text": "one", "id": 1, "year": 1999, "tags": ["x"], "more": {"deep": 1}}',
        b'{"text": "two", "id": 2, "year": null}',
        b'{"text": "three", "id": 3, "tags": "y"}',
        b'{"text": "four", "id": "4"}',
        b'{"text": "five"}',
        b"{broken",
        b"",
        b"[1]",
        b'"a string"',
        b'{"text": null, "id": 9}',
        b'{"text": 10, "id": 10}',
        b'{"text": "a \\ud800", "id": 11}',
        b'{"id": 12}',
        b'{"text": "\xff", "id": 13}',
        b'{"text": "14", "id": 14, "year": 1.5}',
        b'{"text": " \\n", "id": 15}',
        b"[" * 100_000,
    ]
    path.write_bytes(b"\n".join(lines))
    found = rows(path, Columns(id="id", keep=("year", "tags")))
    assert found == {
        0: ("one", "1", 1999.0, '["x"]'),
        1: ("two", "2", None, None),
        2: ("three", "3", None, '"y"'),
        3: ("four", '"4"', None, None),
        4: [None, "the id is null or missing (column 'id')"],
        5: [None, found[5][1]],
        6: [None, "the line is empty"],
        7: [None, "the line is JSON but not an object"],
        8: [None, "the line is JSON but not an object"],
        9: ["9", "the text is null"],
        10: ["10", "the text is a number, not a string"],
        11: ["11", "column 'text' holds half of a surrogate pair at character 2"],
        12: ["12", "there is no column 'text'"],
        13: [None, "the line is not UTF-8: byte 10 is 0xff; name its encoding"],
        14: ("14", "14", 1.5, None),
        15: ["15", "the text is empty"],
        16: [None, found[16][1]],
    }
    for row in (5, 16):
        assert found[row][1].startswith("the line is not valid JSON (")


def test_a_value_of_another_type_than_the_first_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = [json.dumps({"text": "x", "id": number, "good": True}) for number in range(1000)]
    last = [{"text": "x", "id": "a"}, {"text": "x", "id": 2**63}, {"text": "x", "id": 3, "good": 1}]
    path.write_text("\n".join(first + [json.dumps(each) for each in last]))
    found = rows(path, Columns(id="id", keep=("good",)))
    assert found[999] == ("x", 999, True)
    assert found[1000] == [None, "column 'id' holds \"a\", not int64 as in the first rows"]
    assert found[1001] == [None, f"column 'id' holds {2**63}, not int64 as in the first rows"]
    assert found[1002] == [3, "column 'good' holds 1, not bool as in the first rows"]


def test_a_column_that_comes_after_the_first_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x"}\n' * 1000 + '{"text": "y", "in": {"late": 7}}\n')
    assert rows(path, Columns(keep=("in.late",)))[1000] == ("y", "7")
    with pytest.raises(InputError, match=r"no column 'later'; it has 'text', 'in', 'in.late'\."):
        rows(path, Columns(keep=("later",)))


@pytest.mark.parametrize(
    ("name", "content", "columns", "found"),
    [
        ("a.txt", "\ufefffirst\n\ufeffsecond\n", Columns(), {0: "first", 1: "\ufeffsecond"}),
        ("a.jsonl", '"one"\n"two"\n', Columns(), {0: "one", 1: "two"}),
        (
            "a.jsonl",
            '{"text": "x", "title": "\\udc00"}\n{"text": "y", "title": "z"}\n',
            Columns(keep=("title",)),
            {0: [None, "column 'title' holds half of a surrogate pair at character 0"], 1: ("y", "z")},
        ),
        (
            "a.jsonl",
            '{"a": "x", "b": "y"}\n{"a": null, "b": "y"}\n{"a": null, "b": null}\n{"a": "x", "b": 1}\n',
            Columns(text=("b", "a")),
            {
                0: "y\nx",
                1: "y",
                2: [None, "the text is null"],
                3: [None, "the text is a number, not a string"],
            },
        ),
    ],
    ids=["byte order mark", "strings", "half a surrogate pair", "several columns"],
)
def test_what_is_read(tmp_path: Path, name: str, content: str, columns: Columns, found: object) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert rows(tmp_path / name, columns) == found


@pytest.mark.parametrize("packed", [False, True])
def test_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packed: bool) -> None:
    data = b'{"text": "one"}\n{"text": "two"}\n'
    sent = gzip.compress(data) if packed else data

    class Stdin:
        buffer = io.BytesIO(sent)

    monkeypatch.setattr(sys, "stdin", Stdin)
    inputs = Inputs([Path("-")], Columns(), copies=tmp_path)
    [stated], count = inputs.fingerprint()
    assert (stated["sha256"], count) == (hashlib.sha256(sent).hexdigest(), None if packed else 2)
    for _ in range(2):  # from the beginning, as often as anybody likes
        assert [block.texts for block in blocks(inputs, shard_rows=1)] == [["one"], ["two"]]
    assert list(tmp_path.iterdir()) == []  # the copy has no name
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["one", "two"]}), file)
    Stdin.buffer = io.BytesIO(file.getvalue())
    inputs = Inputs([Path("-")], Columns())
    for _ in range(2):
        assert [block.texts for block in blocks(inputs, shard_rows=1)] == [["one"], ["two"]]
    with pytest.raises(InputError, match="stdin is read once"):
        Inputs([Path("-"), Path("-")], Columns())


def test_fields_within_fields(tmp_path: Path) -> None:
    """By a dotted path, in JSON lines and Parquet; a column of that very name goes first."""
    made = [
        {"id": 1, "doc": {"body": "a bank", "by": {"name": "x"}}, "a.b": {"c": "deep"}},
        {"id": 2, "doc": {"body": None, "by": None}, "a.b": None},
        {"id": 3, "doc": None, "a.b": {"c": "last"}},
    ]
    table = pa.Table.from_pylist(made)
    lines, parquet = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    columns = Columns(text=("a.b.c",), id="id", keep=("doc.by.name",))
    for path in (lines, parquet):
        lines.write_text("".join(f"{json.dumps(row)}\n" for row in made))
        pq.write_table(table, parquet)
        null = [2, "the text is null" if path == parquet else "there is no column 'a.b.c'"]
        assert rows(path, columns) == {0: ("deep", 1, "x"), 1: null, 2: ("last", 3, None)}
        with pytest.raises(InputError, match=r"'doc\.body', 'doc\.by', 'doc\.by\.name'"):
            Inputs([path], Columns(text=("doc.bod",)))
        lines.write_text("".join(f"{json.dumps({**row, 'doc.body': 'own'})}\n" for row in made))
        pq.write_table(table.append_column("doc.body", pa.array(["own"] * 3)), parquet)
        assert rows(path, Columns(text=("doc.body",))) == {0: "own", 1: "own", 2: "own"}


def test_texts_that_are_cut_into_words(tmp_path: Path) -> None:
    """Lists of words, in JSON lines and Parquet, also within a field."""
    made = [["New York", "'s"], None, [], ["a", None], ["a", " "], ["last"]]
    reasons = {
        1: "the text is null",
        2: "the text is empty",
        3: "words[1] must be a text that is not blank; got None",
        4: "words[1] must be a text that is not blank; got ' '",
    }
    lines, parquet = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    lines.write_text("".join(f"{json.dumps({'doc': {'words': words}})}\n" for words in made))
    nested = pa.array([{"words": words} for words in made])
    for type in (pa.list_(pa.string()), pa.large_list(pa.large_string())):
        pq.write_table(pa.table({"doc": nested.cast(pa.struct([("words", type)]))}), parquet)
        for path in (lines, parquet):
            found = rows(path, Columns(text=("doc.words",)))
            assert {row: each[1] for row, each in found.items() if isinstance(each, list)} == reasons
            assert [found[row].words for row in (0, 5)] == [made[0], made[5]]
    bad = pa.array([["ok", "good"], ["\u00e9", "x"]], pa.list_(pa.string()))
    ends, data = pa.array([0, 2, 6, 7, 8], pa.int32()).buffers()[1], pa.py_buffer(b"okgood\xffx")
    inner = pa.Array.from_buffers(pa.string(), 4, [None, ends, data])
    odd = pa.Array.from_buffers(bad.type, 2, bad.buffers()[:2], children=[inner])
    pq.write_table(pa.table({"words": odd}), parquet)
    found = rows(parquet, Columns(text=("words",)))
    assert (found[0].words, found[1]) == (["ok", "good"], [None, "the text is not UTF-8"])
