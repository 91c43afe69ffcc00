"""What commands read: texts from arguments and stdin, and models."""

import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints import to_hf
from regard.cli import _input
from regard.cli._input import parse_heads, parse_heads_or_layers
from regard.cli.embed import _opener
from regard.core.errors import InputError
from regard.models import family_of
from unit.models.folders import REMOVED, network, write, write_tokenizer


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_arguments_are_texts() -> None:
    assert _input.read_texts(["a", "", "--", "河\n"]) == ["a", "", "--", "河\n"]


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
    ("data", "message"),
    [
        (b"ab\xff", r"^stdin must be UTF-8; byte 2 is 0xff\. Convert it"),
        (b"\xe6\xb2", "byte 0 is 0xe6"),
        (b"ab\0c", "byte 2 is NUL"),
        ("bank".encode("utf-16"), "If it is UTF-16, convert it"),
    ],
)
def test_stdin_that_is_no_text(monkeypatch: pytest.MonkeyPatch, data: bytes, message: str) -> None:
    give_stdin(monkeypatch, data)
    with pytest.raises(InputError, match=message):
        _input.read_texts(["-"])


def test_stdin_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, b"bank")
    with pytest.raises(InputError, match="- can stand for one text only"):
        _input.read_texts(["-", "a", "-"])


def test_stdin_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="stdin is closed"):
        _input.read_texts(["-"])


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
    [
        ("3.5", [(3, 5)]),
        ("0.0,11.7", [(0, 0), (11, 7)]),
        (" cross.1.0 , -1.-2", [("cross", 1, 0), (-1, -2)]),
    ],
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
