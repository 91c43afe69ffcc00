"""Indexes: whole, stopped anywhere, added to, refused."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.concordance import Concordance, Reading, _building, build_index
from regard.concordance._store import FILE, Store
from regard.core.errors import InputError, OutputError
from regard.core.files import locked
from regard.data import Csv, Tagged
from unit.concordance.conftest import ROWS, Make, every_use, write_rows

TABLES = ("doc", "text", "form", "part", "block")
READING = Reading(date="date", meta=("genre",))


def content(folder: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(folder / FILE)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = {table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES}
        return found | {"manifest": dict(db.execute("SELECT * FROM manifest"))}  # type: ignore[dict-item]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl")


def test_a_corpus_of_another_encoding(tmp_path: Path) -> None:
    """The message says why nothing was read, and the folder can be given again with what it asks for."""
    (tmp_path / "old.txt").write_bytes("Café an der Bank\n".encode("cp1252"))
    corpus, index = [tmp_path / "old.txt"], tmp_path / "index"
    for _ in range(2):
        with pytest.raises(InputError, match=r"line 1 of old.txt is put aside: .* not UTF-8.* its encoding"):
            build_index(corpus, index)
    assert build_index(corpus, index, Reading(encoding="cp1252")).words == 4


def test_every_word_is_where_it_says(small: Concordance) -> None:
    bodies = [text for text, _, _ in ROWS]
    uses = every_use(small)
    for place, _, start, stop, form in uses:
        assert bodies[int(place.removeprefix("line ")) - 1][start:stop] == form
    assert [form for *_, form in uses[:5]] == ["She", "sat", "on", "the", "bank"]
    assert len(uses) == 65


@pytest.mark.parametrize(
    "text",
    [
        "One sentence of some length stands here. " * 90,
        "word " * 700,
        "line\n" * 500,
        "河岸上有一家銀行。" * 300,
        "x" * 2500 + " " + "y" * 900 + " end " + "z" * 1500,
        "ก" * 3000,
    ],
    ids=["sentences", "blanks", "lines", "chinese", "no-blank", "thai"],
)
@pytest.mark.parametrize("name", ["text.txt", "text.vrt"])
def test_long_texts_are_cut_between_words(made: Make, text: str, name: str) -> None:
    vertical = name == "text.vrt"
    source = "\n".join(text.split()) if vertical else text
    whole = " ".join(text.split()) if vertical else text
    concordance = made(source, name, unit="file")
    store = concordance._store
    parts = store.rows("SELECT start, body FROM text ORDER BY id")
    assert "".join(body for _, body in parts) == whole
    assert all(whole[start : start + len(body)] == body for start, body in parts)
    uses = every_use(concordance)
    assert all(form == body[start:stop] for _, body, start, stop, form in uses)
    longest = max(len(form) for *_, form in uses)
    assert all(len(body) <= max(_building.LONGEST, longest + 1) for _, body in parts)
    assert store.one("SELECT count(*) FROM doc") == 1


@pytest.mark.parametrize("stop", range(1, 5))
def test_stopped_anywhere_and_continued(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    monkeypatch.setattr(_building, "_TEXTS_AT_ONCE", 2)
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "A new Bank.", "genre": "news", "date": "1999"}\n')
    assert build_index([rows, other], tmp_path / "whole", READING).texts == 7
    calls = 0

    def stopping(texts: int, file: str) -> None:
        nonlocal calls
        calls += 1
        if calls == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index([rows, other], tmp_path / "index", READING, progress=stopping)
    with pytest.raises(InputError, match="is not finished: run the same `regard index` again"):
        Concordance(tmp_path / "index")
    build_index([rows, other], tmp_path / "index", READING)
    assert content(tmp_path / "index") == content(tmp_path / "whole")


def test_killed_before_the_file_has_its_name(rows: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    for name in (".writing", f"{FILE}.new", f"{FILE}.new-wal", f"{FILE}.new-shm"):
        (folder / name).write_text("rubbish")
    assert build_index([rows], folder, READING).texts == 6
    assert {each.name for each in folder.iterdir()} == {FILE}


def test_more_files_are_added(rows: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    build_index([rows], index, READING)
    before = content(index)
    assert build_index([rows], index, READING).texts == 6
    assert content(index) == before
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.jsonl").write_text(
            f'{{"text": "A bank {folder}.", "genre": "", "date": ""}}\n'
        )
    both = [tmp_path / folder / "same.jsonl" for folder in "ab"]
    assert build_index([rows, *both], index, READING).texts == 8
    assert (
        build_index(both[:1], index, READING).texts == 8
    )  # it is the file that is there, under another name
    found = Concordance(index).find("bank", k=None)
    assert [line.place.source for line in found][-2:] == ["a/same.jsonl", "b/same.jsonl"]
    assert len(found) == 8


def test_case_of_lemmas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One form, with a lemma in two spellings; also in the second transaction, and after a stop."""
    monkeypatch.setattr(_building, "_TEXTS_AT_ONCE", 1)
    path = tmp_path / "a.conllu"
    path.write_text("\n".join(f"1\tApples\t{lemma}\tNOUN\n" for lemma in ("Apple", "apple", "APPLE")))

    def stopping(texts: int, file: str) -> None:
        if texts == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index([path], tmp_path / "index", progress=stopping)
    build_index([path], tmp_path / "index")
    assert Concordance(tmp_path / "index").count(by="lemma").to_rows() == [
        {"lemma": "apple", "count": 3, "per_million": 1e6}
    ]


TABLE = (
    "text,,genre,genre, year,long\na bank,1,news,x,1990," + "-" * 1001 + "\na bank,2,fiction,y,1991,short\n"
)


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("a.csv", TABLE, {"2": "2", "genre_3": "fiction", "genre_4": "y", "year": "1991", "long": "short"}),
        ("a.tsv", "text\tgenre\nriver\t\na bank\tnews\n", {"genre": "news"}),
        (
            "a.jsonl",
            '{"text": "a"}\n' * 1200
            + '{"text": "a bank", "meta": {"by": {"name": "B"}, "n": 1}, "t": ["x"]}',
            {"meta.by.name": "B", "meta.n": 1, "t": ["x"]},
        ),
        ("a.txt", "a bank\n", {}),
    ],
)
def test_all_columns_are_kept(tmp_path: Path, name: str, content: str, fields: dict[str, object]) -> None:
    (tmp_path / name).write_text(content)
    done = build_index([tmp_path / name], tmp_path / "index")
    found = Concordance(tmp_path / "index").find("bank", k=None)
    assert json.loads(found[-1].place.meta) == fields
    assert done.fields == sorted(fields)
    assert done.left_out == (
        []
        if "long" not in fields
        else [
            (
                "column 'long' of a.csv",
                "without 1 value of more than 1,000 characters, unless --meta names it",
            )
        ]
    )
    assert build_index([tmp_path / name], tmp_path / "none", Reading(meta=())).fields == []
    conditions = [f"{field}={value}" for field, value in fields.items() if not isinstance(value, list)]
    assert len(Concordance(tmp_path / "index").find("bank", where=conditions)) == 1


def test_all_columns_of_parquet_are_kept(tmp_path: Path) -> None:
    inner = [{"n": 1, "page": "x" * 1001}, None]
    columns = {"text": ["a bank", "a bank"], "genre": ["news", None], "inner": inner, "v": [[1.0] * 400] * 2}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    done = build_index([tmp_path / "a.parquet"], tmp_path / "index")
    assert done.fields == ["genre", "inner.n"]
    assert [place for place, _ in done.left_out] == [
        f"column {name!r} of a.parquet" for name in ("inner.page", "v")
    ]
    found = Concordance(tmp_path / "index").find("bank", where=["inner.n=1"])
    assert [json.loads(line.place.meta) for line in found] == [{"genre": "news", "inner.n": 1}]


def test_an_index_that_has_chosen_columns_goes_on_with_them(rows: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    build_index([rows], index, READING)
    more, less = tmp_path / "more.csv", tmp_path / "less.csv"
    more.write_text("text,date,genre,year\na bank,1999,news,1999\n")
    less.write_text("text,date\na bank,1999\n")
    before = content(index)
    with pytest.raises(InputError, match=r"less.csv has no column 'genre'"):
        build_index([rows, less], index, Reading(date="date"))
    assert content(index) == before
    assert build_index([rows, more], index, Reading(date="date")).fields == ["genre"]
    with pytest.raises(
        InputError, match=r"genre; got 'year2'\. An index that is made anew without --meta has"
    ):
        Concordance(index).find("bank", where=["year2=1999"])
    build_index([more], tmp_path / "all")
    with pytest.raises(InputError, match=r"meta must be what the index was made with, all columns; got \['"):
        build_index([more], tmp_path / "all", Reading(meta=("genre",)))


def test_what_is_refused_leaves_the_index_as_it_was(rows: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    build_index([rows], index, READING)
    before = content(index)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(rows.read_bytes())

    def refused(match: str, paths: list[Path], reading: Reading = READING, folder: Path = index) -> None:
        with pytest.raises((InputError, OutputError), match=match):
            build_index(paths, folder, reading)

    refused("meta must be what the index was made with", [rows], Reading(date="date", meta=()))
    refused("cannot be read", [tmp_path / "missing.jsonl"])
    refused("name a file once; 'copy.jsonl' and 'rows.jsonl' hold the same", [rows, copy])
    refused("cannot be read", [tmp_path / "missing.jsonl"], folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    refused("holds something else", [rows], folder=tmp_path)
    with locked(index, ".writing"):
        refused("is being written to by another job", [rows])
    rows.write_text('{"text": "Something else.", "genre": "x", "date": "y"}')
    refused("'rows.jsonl' has changed", [rows])
    assert content(index) == before
    (tmp_path / "empty.txt").write_text("...\n")
    refused("corpus must have a word", [tmp_path / "empty.txt"], Reading(), tmp_path / "none")


def test_what_is_no_index(rows: Path, tmp_path: Path) -> None:
    def refused(match: str, folder: Path) -> None:
        with pytest.raises(InputError, match=match):
            Concordance(folder)

    refused("must be a folder that `regard index` has made", tmp_path)
    refused("must be a folder that `regard index` has made", tmp_path / "missing")
    index = tmp_path / "index"
    build_index([rows], index, READING)
    store = Store(index)
    with store.writing():
        store.note(version=0)
    store.db.close()
    refused("must be of version 2; .* is of 0. Make it again", index)
    (index / FILE).write_bytes(b"SQLite format 3\0" + b"rubbish" * 99)
    refused("is damaged", index)
    (index / FILE).write_bytes(b"rubbish" * 99)
    refused("is damaged", index)


CONLLU = "1\tbank\tbank\tNOUN\n"
LATIN = "café\n".encode("latin-1")


def read(
    folder: Path, name: str, content: bytes, **reading: object
) -> tuple[list[Tagged], list[tuple[str, str]]]:
    (folder / name).write_bytes(content)
    chosen, aside = Reading(**reading), list[tuple[str, str]]()  # type: ignore[arg-type]
    [(source, kind)] = chosen.sources([folder / name])
    return list(chosen.entries(source, kind, lambda *why: aside.append(why))), aside


@pytest.mark.parametrize(
    ("name", "content", "reading", "bodies"),
    [
        ("a.txt", b"one\n\ntwo\r\n", {}, ["one", "two"]),
        ("a.txt", b"one\ntwo\n \n\nthree\n", {"unit": "paragraph"}, ["one\ntwo", "three"]),
        ("a.txt", b"one\r\n\r\ntwo\n", {"unit": "file"}, ["one\r\n\r\ntwo\n"]),
        ("a.txt", LATIN, {"encoding": "latin-1"}, ["café"]),
        ("a.csv", b"body;x\none;1\ntwo;2\n", {"text": "body", "csv": Csv(delimiter=";")}, ["one", "two"]),
        ("a.conllu", CONLLU.encode(), {}, ["bank"]),
        ("a.conllu.gz", gzip.compress(CONLLU.encode(), mtime=0), {}, ["bank"]),
        ("a.dat", CONLLU.encode(), {"format": "conllu"}, ["bank"]),
        ("a.vrt", b"NN\tbank\n", {"columns": ("pos", "word")}, ["bank"]),
        ("a.xml", b"<p>bank</p>\n", {"format": "text"}, ["<p>bank</p>"]),
        ("a.txt", b"<TEI> bank\n", {"format": "text"}, ["<TEI> bank"]),
        ("a.txt", b"<p> is no <TE\n", {}, ["<p> is no <TE"]),
    ],
)
def test_files(
    tmp_path: Path, name: str, content: bytes, reading: dict[str, object], bodies: list[str]
) -> None:
    entries, aside = read(tmp_path, name, content, **reading)
    assert ([entry.body for entry in entries], aside) == (bodies, [])


def test_a_folder_of_conllu(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.conllu").write_text(CONLLU)
    assert [kind for _, kind in Reading().sources([tmp_path])] == ["conllu", "conllu"]


def test_rows_that_are_no_texts_are_put_aside(tmp_path: Path) -> None:
    lines = [
        '{"text": "good", "y": 3}',
        "{",
        '{"text": 7}',
        '{"other": ""}',
        '{"text": " "}',
        '{"text": "also"}',
    ]
    entries, aside = read(tmp_path, "a.jsonl", "\n".join(lines).encode(), date="y")
    assert [(entry.body, entry.place, entry.date) for entry in entries] == [
        ("good", "line 1", "3"),
        ("also", "line 6", None),
    ]
    assert [place for place, _ in aside] == ["line 2", "line 3", "line 4"]
    assert aside[1][1] == "column 'text' is a number, not a string"
    halves = b'{"text": "a", "y": 1, "g": "\\ud800"}\n{"text": "a", "y": "\\udc00", "g": 1}\n'
    entries, aside = read(tmp_path, "b.jsonl", halves, date="y", meta=("g",))
    assert not entries
    assert [why for _, why in aside] == [
        f"column {name!r} holds half of a surrogate pair at character 0" for name in "gy"
    ]
    _, aside = read(tmp_path, "a.txt", b"one\n" + LATIN, unit="paragraph")
    assert aside == [("line 2", "the line is not UTF-8: byte 3 is 0xe9; name its encoding")]


@pytest.mark.parametrize(
    ("name", "content", "reading", "message"),
    [
        ("a.xml", b"<TEI/>", {}, "TEI or other XML"),
        ("a.xml", b"<p/>", {}, "TEI or other XML"),
        ("a.txt", b'<?xml version="1.0"?>\n<TEI xmlns="http://www.tei-c.org/ns/1.0">', {}, "is TEI"),
        ("a.txt", b"\xef\xbb\xbf  <!-- x -->\n<teiCorpus>", {}, "is TEI .* Convert it"),
        ("corpus", b'<t:text xmlns:t="http://www.tei-c.org/ns/1.0">', {}, "is TEI"),
        ("a.conllu", b"1\tcaf\xe9\t_\t_\n", {}, "line 1 of .*not UTF-8"),
        ("a.csv", b"x,y\n1,2\n", {}, r"'text'; .*Name the one of the text \(--text-column\)"),
        ("a.csv", b"text,y\n1,2\n", {"meta": ("z",)}, r"'z'; it has 'text', 'y'\. Or has"),
        ("a.jsonl", b'{"text": "a"}', {"meta": ("genre",)}, "'genre'"),
        ("a.txt", b"a\n", {"date": "year"}, "plain text"),
        ("a.txt", b"a\n", {"unit": "sentence"}, "unit must be one of line, paragraph, file"),
        ("a.txt", b"a\n", {"format": "tei"}, "format must be one of"),
        ("a.vrt", b"a\n", {"columns": ("pos",)}, "columns must name word once"),
        ("a.vrt", b"a\n", {"columns": ("word", "tag")}, "columns must be one of"),
        ("a.txt", b"a\n", {"lemmas": "xx"}, "lemmas"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, name: str, content: bytes, reading: dict[str, object], message: str
) -> None:
    def all_of_it() -> None:
        read(tmp_path, name, content, **reading)
        Reading(**reading).splitter()  # type: ignore[arg-type]

    with pytest.raises((InputError, ImportError), match=message):
        all_of_it()
