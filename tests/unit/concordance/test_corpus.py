"""What is read of files of every kind."""

import gzip
from pathlib import Path

import pytest

from regard.concordance import Reading
from regard.concordance._corpus import Entry, conllu, vrt
from regard.core.errors import InputError
from regard.data import Csv

SPANISH = """# newdoc id = d1
# meta::date = 1999
# meta::genre = news
# newpar id = p1
# sent_id = s1
# text = Vámonos al mar.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\t_\t_\t_\t_\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t_\t_\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t_\t_\t_\t_
4\tel\tel\tDET\t_\t_\t_\t_\t_\t_
4.1\tausente\tausente\tADJ\t_\t_\t_\t_\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t_\t_\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t_\t_\t_\t_\t_\t_

# sent_id = s2
1\tSí\tsí\tINTJ\t_\t_\t_\t_\t_\t_
"""

VERTICAL = """<?xml version="1.0"?>
<!-- made by hand -->
<text id="A1" date="1990" title='He said "x > y" &amp; left'>
<s id="7">
R&amp;D\tNN\tr&d
<g/>
,\t,\t,
yes\tUH\tyes
</s>
<s id="8">
no\tUH\tno
<pb/>
more\tRB
</s>
</text>
<text id="A2">
end\tNN\tend
</text>
"""


def told(entry: Entry) -> list[tuple[str, str, str]]:
    assert entry.words is not None
    return [(entry.body[word.start : word.stop], word.lemma, word.pos) for word in entry.words]


def test_conllu() -> None:
    first, second = conllu(iter(SPANISH.splitlines()))
    assert first.body == "Vámonos al mar."
    assert told(first) == [
        ("Vámonos", "ir+nosotros", "VERB+PRON"),
        ("al", "a+el", "ADP+DET"),
        ("mar", "mar", "NOUN"),
        (".", ".", "PUNCT"),
    ]
    assert (first.place, first.date) == ("line 7", "1999")
    assert first.meta == {"document": "d1", "genre": "news", "paragraph": "p1", "sent_id": "s1"}
    assert (second.body, second.date, second.meta["genre"]) == ("Sí", "1999", "news")
    assert second.place == "line 18"


def rows(*tokens: tuple[str, str], text: str | None) -> list[str]:
    head = [] if text is None else [f"# text = {text}"]
    lines = enumerate(tokens, 1)
    return head + [f"{n}\t{form}\t_\tX\t_\t_\t_\t_\t_\t{misc}" for n, (form, misc) in lines]


@pytest.mark.parametrize(
    ("tokens", "text", "body"),
    [
        ([("don", "SpaceAfter=No"), ("'t", "_"), ("go", "_")], None, "don't go"),
        ([("New York", "_"), ("grew", "_")], "New  York grew", "New York grew"),  # words win over the text
        ([("a", "_"), ("b", "_")], "a  b", "a  b"),  # blanks may differ
        ([("a", "_"), ("b", "_")], "a x b", "a b"),  # what no word says is not the text
        ([("b", "_"), ("a", "_")], "a b", "b a"),
        ([("x", "SpaceAfter=No|Lang=en"), ("\u3000", "_")], "y", "x\u3000"),
    ],
)
def test_the_text_of_conllu(tokens: list[tuple[str, str]], text: str | None, body: str) -> None:
    [entry] = conllu(iter(rows(*tokens, text=text)))
    assert entry.body == body
    assert [form for form, _, _ in told(entry)] == [form for form, _ in tokens]


@pytest.mark.parametrize("line", ["EU\tNNP\tB-NP\tB-ORG", "1 The the DET", "1\tThe"])
def test_what_is_no_conllu(line: str) -> None:
    with pytest.raises(InputError, match="line 1 must have the columns of CoNLL-U, by tabs"):
        list(conllu(iter([line])))


def test_vrt() -> None:
    first, second, third = vrt(iter(VERTICAL.splitlines()), ("word", "pos", "lemma"))
    assert first.body == "R&D, yes"
    assert told(first) == [("R&D", "r&d", "NN"), (",", ",", ","), ("yes", "yes", "UH")]
    assert first.meta == {"id": "A1", "title": 'He said "x > y" & left', "s_id": "7"}
    assert (first.place, first.date) == ("line 5", "1990")
    assert (second.body, second.meta["s_id"], told(second)[1]) == ("no more", "8", ("more", "", "RB"))
    assert (third.body, third.meta, third.date) == ("end", {"id": "A2"}, None)
    with pytest.raises(InputError, match="line 1 must have a word in its columns"):
        list(vrt(iter(["one"]), ("pos", "word")))


CONLLU = "1\tbank\tbank\tNOUN\n"
LATIN = "café\n".encode("latin-1")


def read(
    folder: Path, name: str, content: bytes, **reading: object
) -> tuple[list[Entry], list[tuple[str, str]]]:
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
