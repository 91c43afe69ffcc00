"""What commands read: texts from arguments and stdin, and models."""

import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints import to_hf
from regard.cli import _input
from regard.cli._input import (
    check_lines,
    count_lines,
    parse_heads,
    parse_heads_or_layers,
    read_lines,
    read_messages,
)
from regard.cli.embed import _opener
from regard.core.errors import InputError
from regard.models import family_of
from unit.models.folders import REMOVED, network, write, write_tokenizer


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes | None) -> None:
    monkeypatch.setattr(sys, "stdin", None if data is None else io.TextIOWrapper(io.BytesIO(data)))


def test_arguments_are_texts() -> None:
    assert _input.read_texts(["a", "", "--", "河\n"]) == ["a", "", "--", "河\n"]


def test_the_name_of_a_file_is_a_text_too_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("essay.txt").write_text("a bank")
    Path("run").mkdir()
    assert _input.read_texts(["essay.txt", "run", "a bank", "x" * 9999]) == [
        "essay.txt",
        "run",
        "a bank",
        "x" * 9999,
    ]
    of_file, of_folder = capsys.readouterr().err.splitlines()
    assert "to read the file: - < essay.txt" in of_file
    assert "--model" in of_folder


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a bank\n", "a bank"),
        (b"a bank\r\n\r\n", "a bank"),
        (b" a\nbank ", " a\nbank "),
        ("河岸\n".encode(), "河岸"),
        (b"\xef\xbb\xbfbank", "bank"),
        (b"", ""),
    ],
)
def test_dash_is_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes, text: str) -> None:
    give_stdin(monkeypatch, data)
    assert _input.read_texts(["one", "-"]) == ["one", text]


@pytest.mark.parametrize(
    ("texts", "data", "message"),
    [
        (["-"], b"ab\xff", r"^stdin must be UTF-8; byte 2 is 0xff\. Convert it"),
        (["-"], b"\xe6\xb2", "byte 0 is 0xe6"),
        (["-"], b"ab\0c", "byte 2 is NUL"),
        (["-"], "bank".encode("utf-16"), "If it is UTF-16, convert it"),
        (["-", "a", "-"], b"bank", "- can stand for one text only"),
        (["-"], None, "stdin is closed"),
    ],
)
def test_stdin_that_gives_no_text(
    monkeypatch: pytest.MonkeyPatch, texts: list[str], data: bytes | None, message: str
) -> None:
    give_stdin(monkeypatch, data)
    with pytest.raises(InputError, match=message):
        _input.read_texts(texts)


def test_arguments_in_another_locale_are_utf8() -> None:
    undecoded = "河".encode().decode("ascii", "surrogateescape")
    assert _input.read_texts([undecoded]) == ["河"]
    with pytest.raises(InputError, match="the text must be UTF-8; byte 2 is 0xff"):
        _input.read_texts([os.fsdecode(b"a \xff")])


def test_how_a_model_was_read_is_said_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = to_hf(network("bert"), family_of("bert").keys)
    tensors = {f"module.{name}": tensor for name, tensor in stored.items()}
    write_tokenizer(write(tmp_path, tensors=dict.fromkeys(stored, REMOVED) | tensors), 7)
    said = "regard: note: 'module.' was taken off the names of the tensors\n"
    wanted = {"precision": "float32", "level": "word"}
    for load in (lambda: _input.load_model(str(tmp_path)), lambda: _opener(str(tmp_path), wanted)(None)):
        load()
        assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    ("words", "heads"),
    [("3.5", [(3, 5)]), ("0.0,11.7", [(0, 0), (11, 7)]), (" cross.1.0 , -1.-2", [("cross", 1, 0), (-1, -2)])],
)
def test_reads_heads(words: str, heads: list[Any]) -> None:
    assert parse_heads("--values", words) == heads


@pytest.mark.parametrize("words", ["", "3", "3.", "3.5;4.1", "3.5,", "1.2.3.4", "cross.x.1", "٣.٥", "--1.0"])
def test_refuses_what_names_no_head(words: str) -> None:
    with pytest.raises(InputError, match=r"--values must be layers and heads such as 3\.5,4\.1"):
        parse_heads("--values", words)


def test_a_layer_stands_for_its_heads() -> None:
    assert parse_heads_or_layers("--heads", "3.5, -1,cross.1.0") == [(3, 5), -1, ("cross", 1, 0)]
    with pytest.raises(InputError, match="--heads must be layers and heads"):
        parse_heads_or_layers("--heads", "3,x")


def test_lines_with_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_bytes("\ufeffa bank\n\n \t\r\n  河 \r\nlast".encode())
    assert list(read_lines(file, "--file")) == [(1, "a bank"), (4, "  河 "), (5, "last")]
    assert count_lines(file) == 3
    every = [text for _, text in read_lines(file, "--file", blank_too=True)]
    assert every == ["a bank", "", " \t", "  河 ", "last"]


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_bytes(b"good\nbad \xff\n")
    lines = read_lines(file, "--file")
    assert next(lines) == (1, "good")
    with pytest.raises(InputError, match=r"line 2 of .*; byte 4 is 0xff\. Convert it, .* iconv"):
        next(lines)


def test_a_file_is_refused_before_it_is_needed(tmp_path: Path) -> None:
    for name, why in (("gone", "No such file"), ("", "Is a directory"), ("a\0b", "null")):
        with pytest.raises(InputError, match=rf"--file '.*' cannot be read \(.*{why}"):
            check_lines(tmp_path / name, "--file")
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for who writes to it
    check_lines(tmp_path / "pipe", "--file")


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, b"one\ntwo\n")
    assert count_lines(Path("-")) is None
    assert [text for _, text in read_lines(Path("-"), "--file")] == ["one", "two"]
    give_stdin(monkeypatch, None)
    with pytest.raises(InputError, match="--file - reads stdin, but stdin is closed"):
        next(read_lines(Path("-"), "--file"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "'.*texts' holds no text; give a file with one text a line"),
        (b"\n \n", "holds no text"),
        (b"a\rb\r", r"line 1 of .* ends in CR alone; convert them, as with tr '\\r' '\\n'"),
        (b"a\0b\n", "line 1 of .* byte 1 is NUL. If it is UTF-16"),
        ("bank".encode("utf-16"), "line 1 of .* byte 3 is NUL"),
        (b"ok\n" + b"x" * 43 + b"\n", "line 2 of .* has more than 41 bytes"),
    ],
)
def test_what_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.setattr(_input, "_LINE_AT_MOST", 41)
    file = tmp_path / "texts"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_lines(file, "--file"))


@pytest.mark.parametrize("name", ["nowhere", ".", "a\0b", "x" * 300])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    assert count_lines(tmp_path / name) is None
    with pytest.raises(InputError, match=r"--target-file '.*' cannot be read"):
        list(read_lines(tmp_path / name, "--target-file"))


NO_MESSAGES = {
    b"{": r"must be a JSON list \(Expecting property name",
    b"{}": "must be a JSON list of messages; it is none",
    b"[" * 99_999: "must be a JSON list",
    b"\xff": "must be UTF-8",
}


@pytest.mark.parametrize(
    ("content", "message"), NO_MESSAGES.items(), ids=["broken", "other", "deep", "bytes"]
)
def test_what_is_no_list_of_messages(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "turns.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"--messages '.*' {message}"):
        read_messages(path)


def test_messages_are_read(tmp_path: Path) -> None:
    (tmp_path / "turns.json").write_text('[{"role": "user", "content": "Wh\\u00fd?"}]')
    assert read_messages(tmp_path / "turns.json") == [{"role": "user", "content": "Whý?"}]
    with pytest.raises(InputError, match="cannot be read"):
        read_messages(tmp_path / "none")
