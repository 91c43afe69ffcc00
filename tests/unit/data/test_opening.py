"""What an input is: by its name, and by what it holds."""

from __future__ import annotations

import bz2
import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.core.errors import InputError, OutputError
from regard.data import Files, open_sources
from regard.embedding.job import Columns, Inputs
from unit.embedding.job.reading import rows


def parquet(path: Path) -> bytes:
    pq.write_table(pa.table({"text": ["a"]}), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.txt", b'{"text": "x"}\n', "text"),
        ("a.JSONL", b'{"text": "x"}\n', "jsonl"),
        ("a.json", b'{"text": "x"}\n', "jsonl"),
        ("a.csv", b"text\nx\n", "csv"),
        ("a.tsv", b"text\nx\n", "tsv"),
        ("a", b'{"text": "x"}\n', "jsonl"),
        ("a", b"just words\n", "text"),
        ("a.dat.gz", gzip.compress(b"just words\n", mtime=0), "text"),
        ("a.csv.gz", gzip.compress(b"text\nx\n", mtime=0), "csv"),
        ("a.dat", gzip.compress(b'{"text": "x"}\n', mtime=0), "jsonl"),
    ],
)
def test_formats(tmp_path: Path, name: str, content: bytes, format: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert open_sources(Files([tmp_path / name]))[0].opened.format == format


def test_what_is_said_goes_before_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text,id\nx,1\n")
    assert rows(path, Columns(id="id"), format="csv") == {0: ("x", "1")}
    (tmp_path / "b.dat").write_bytes(parquet(tmp_path / "c"))
    assert rows(tmp_path / "b.dat") == {0: "a"}


JSONL = '{"body": "one", "id": 1}\n{"body": "two", "year": 2}\n'
TWICE = "body,id,id\nx,1,2\n"


@pytest.mark.parametrize(
    ("name", "content", "columns", "told"),
    [
        ("a.txt", "", {}, "is empty"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), {}, "is empty"),
        ("a.parquet", '{"text": "x"}\n', {}, "should be a Parquet file, and is JSON lines"),
        ("a.jsonl", "text,id\nx,1\n", {}, "should be JSON lines, but none of its first 2 is an object"),
        ("a.json", '[{"text": "x"},\n{"text": "y"}]\n', {}, "one JSON array; write one object a line"),
        ("a.txt", "x\n".encode("utf-16"), {}, "is UTF-16; convert it"),
        ("a.txt", b"one\rtwo\r", {}, r"a\.txt ends its lines in CR alone; convert it, .* tr '\\r' '\\n'"),
        ("a.csv", b"text\rone", {}, "in CR alone"),
        ("a.jsonl", b'{"text": 1}\r{"text": 2}', {}, "in CR alone"),
        ("a.csv", b"text\n\0\n", {}, "should be CSV, and is binary: byte 5 is NUL"),
        ("a.txt", "one\n", {"id": "id"}, "plain text, which has no columns"),
        ("a.txt", "one\n", {"keep": ("year",)}, "plain text, which has no columns"),
        ("a.txt", "one\n", {"text": ("body",)}, "plain text, which has no columns"),
        ("a.jsonl", '"one"\n"two"\n', {"id": "id"}, "no column 'id'; it has none"),
        ("a.jsonl", JSONL, {}, r"no column 'text'; it has 'body', 'id', 'year'\..*--text-column"),
        ("a.jsonl", JSONL, {"text": ("body",), "id": "no"}, r"no column 'no'; .*--id-column"),
        ("a.jsonl", JSONL, {"text": ("body",), "keep": ("no",)}, r"no column 'no'; .*--keep"),
        ("a.csv", TWICE, {}, "no column 'text'; it has 'body', 'id', 'id'"),
        ("a.csv", TWICE, {"text": ("body",), "id": "id"}, "several columns 'id'"),
        ("a.csv", "\n\n", {}, "no header"),
    ],
)
def test_what_a_file_does_not_have(tmp_path: Path, name: str, content: Any, columns: Any, told: str) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=told):
        Inputs([tmp_path / name], Columns(**columns))


def test_parquet_by_another_name(tmp_path: Path) -> None:
    data = parquet(tmp_path / "a.csv")
    assert rows(tmp_path / "a.csv") == {0: "a"}
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(data))
    with pytest.raises(InputError, match="Parquet file inside gzip"):
        Inputs([tmp_path / "a.parquet.gz"], Columns())


def test_folders_and_patterns(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "_SUCCESS", ".a.jsonl.crc"):
        (tmp_path / name).write_text(f'"{name}"\n')
    both = {0: "a.jsonl", 1: "b.jsonl"}
    assert rows(tmp_path) == rows(tmp_path / "[ab].jsonl") == both
    with pytest.raises(InputError, match=r"no file fits '.*\*\.csv'"):
        rows(tmp_path / "*.csv")
    (tmp_path / "c.txt").write_text("c.txt\n")
    with pytest.raises(InputError, match=r"holds files of several formats, such as 'b\.jsonl' and 'c\.txt'"):
        rows(tmp_path)
    assert rows(tmp_path, format="text")[2] == "c.txt"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty' is a folder without files of texts"):
        rows(tmp_path / "empty")


def test_no_room_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regard.data._opening.shutil.copyfileobj", full)
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"")).start()
    told = r"pipe cannot be copied to '.*' \(No space left on device\); make room"
    with pytest.raises(OutputError, match=told):
        Inputs([tmp_path / "pipe"], Columns(), copies=tmp_path)


@pytest.mark.parametrize(
    ("paths", "format", "told"),
    [
        ([Path("none.txt")], None, "No such file"),
        ([], None, "give at least one"),
        ([Path()], "xml", "format must be one of text, "),
        ([Path("a\0b")], None, "embedded null"),
    ],
)
def test_what_cannot_be_read(paths: list[Path], format: str | None, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Inputs(paths, Columns(), format=format)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"one\n" * 30_000))  # more than it holds
    writer.start()
    found = list(Inputs([path], Columns()).blocks(shard_rows=10_000, characters=10_000_000))
    assert sum(len(block.texts) for block in found) == 30_000
    assert [block.shard for block in found if block.closes] == [0, 1, 2]
    writer.join()


def test_several_inputs_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one", "year": 1}\n{"text": "", "year": 2}\n')
    pq.write_table(pa.table({"text": ["two"], "year": [3]}), tmp_path / "b.parquet")
    paths = [tmp_path / "a.jsonl", tmp_path / "b.parquet"]
    assert rows(paths, Columns(keep=("year",))) == {
        0: ("one", 1),
        1: [None, "the text is empty"],
        2: ("two", 3),
    }
    stated, count = Inputs(paths, Columns()).fingerprint()
    assert count == 3
    assert [each["name"] for each in stated] == ["a.jsonl", "b.parquet"]
    (tmp_path / "c.csv").write_text("text,year\nthree,4\n")
    with pytest.raises(InputError, match=r"'year' must have one type: it is int64 in .* and string in"):
        Inputs([*paths, tmp_path / "c.csv"], Columns(keep=("year",)))


def test_a_file_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    inputs = Inputs([path], Columns())
    path.write_text("one\nmore\n")
    with pytest.raises(InputError, match="was changed while it was read"):
        list(inputs.blocks(shard_rows=1, characters=10))


def test_a_text_may_begin_as_an_archive_does(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("BZh9 is how an archive of bzip2 begins.\n", "utf-8")
    (tmp_path / "packed").write_bytes(bz2.compress(b"a river bank\n"))
    sources = open_sources(Files([tmp_path / name for name in ("notes", "packed")]))
    assert [source.opened.packed for source in sources] == [None, "bz2"]
