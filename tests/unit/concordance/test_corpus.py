"""What is read of files of every kind."""

import gzip
from pathlib import Path

import pytest

from regard.concordance import Reading
from regard.core.errors import InputError
from regard.data import Csv, Tagged

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
        ("a.csv", b"x,y\n1,2\n", {}, "'text'"),
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
