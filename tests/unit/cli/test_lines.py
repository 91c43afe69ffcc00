"""Files of texts: a line each, read as it is needed, and what is no text."""

import io
import os
import sys
from pathlib import Path

import pytest

from regard.cli import _lines
from regard.cli._lines import check_lines, count_lines, read_lines
from regard.core.errors import InputError


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
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert count_lines(Path("-")) is None
    assert [text for _, text in read_lines(Path("-"), "--file")] == ["one", "two"]
    monkeypatch.setattr(sys, "stdin", None)
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
    monkeypatch.setattr(_lines, "_LINE_AT_MOST", 41)
    file = tmp_path / "texts"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_lines(file, "--file"))


@pytest.mark.parametrize("name", ["nowhere", ".", "a\0b", "x" * 300])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    assert count_lines(tmp_path / name) is None
    with pytest.raises(InputError, match=r"--target-file '.*' cannot be read"):
        list(read_lines(tmp_path / name, "--target-file"))
