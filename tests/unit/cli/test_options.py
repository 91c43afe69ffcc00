"""What the commands share: texts from arguments and stdin, output that goes where it can be read."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from regard.checkpoints import DEFAULT_MODEL, to_hf
from regard.cli import _options as options
from regard.cli import _rows
from regard.cli.embed import _opener
from regard.core.errors import InputError, OutputError
from regard.models import family_of
from unit.models.folders import REMOVED, network, write, write_tokenizer


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_default_model_is_that_of_checkpoints() -> None:
    assert _rows.DEFAULT_MODEL == DEFAULT_MODEL


def test_arguments_are_texts() -> None:
    assert options.read_texts(["a", "", "--", "河\n"]) == ["a", "", "--", "河\n"]


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
    assert options.read_texts(["one", "-"]) == ["one", text]


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
        options.read_texts(["-"])


def test_stdin_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, b"bank")
    with pytest.raises(InputError, match="- can stand for one text only"):
        options.read_texts(["-", "a", "-"])


def test_stdin_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="stdin is closed"):
        options.read_texts(["-"])


def test_arguments_in_another_locale_are_utf8() -> None:
    undecoded = "河".encode().decode("ascii", "surrogateescape")
    assert options.read_texts([undecoded]) == ["河"]
    with pytest.raises(InputError, match="the text must be UTF-8; byte 2 is 0xff"):
        options.read_texts([os.fsdecode(b"a \xff")])


def test_a_file_is_not_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options.check_outputs({"--output": tmp_path})
    options.check_outputs({"--output": tmp_path / "new"})
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        with pytest.raises(OutputError, match=f"'{name}' is where stdout goes; choose another file"):
            options.check_outputs({"--output": Path(name)})
    link = tmp_path / "link"
    link.symlink_to("/dev/stdout")
    with pytest.raises(OutputError, match="is where stdout goes"):
        options.check_outputs({"--output": link})


def test_json_is_strict_and_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_json({"text": "河 \x1b\u202e", "number": 0.5})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"text": "河 \x1b\u202e", "number": 0.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        options.print_json(float("nan"))


def test_a_path_is_printed_byte_for_byte(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    options.print_path(Path(os.fsdecode(b"/a \xff/b")))
    assert capfdbinary.readouterr().out == b"/a \xff/b\n"


@pytest.mark.parametrize("message", ["[/x]", "[bold]x", "\x1b[31m", "河"])
def test_spinner_takes_any_name_and_is_silent_off_a_terminal(
    capfd: pytest.CaptureFixture[str], message: str
) -> None:
    with options.status(message):
        pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("80", 80), ("300", 100)])
def test_results_have_at_most_100_columns(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert options.console().width == width
    monkeypatch.delenv("COLUMNS")
    assert options.console().width <= 100


def test_how_a_model_was_read_is_said_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = to_hf(network("bert"), family_of("bert").keys)
    tensors = {f"module.{name}": tensor for name, tensor in stored.items()}
    write_tokenizer(write(tmp_path, tensors=dict.fromkeys(stored, REMOVED) | tensors), 7)
    said = "regard: note: 'module.' was taken off the names of the tensors\n"
    wanted = {"precision": "float32", "level": "word"}
    for load in (lambda: options.load_model(str(tmp_path)), lambda: _opener(str(tmp_path), wanted)(None)):
        load()
        assert capsys.readouterr() == ("", said)
