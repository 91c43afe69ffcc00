"""What commands write goes where it can be read."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import _output
from regard.cli._app import app
from regard.core.errors import InputError, OutputError


def test_a_file_is_not_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _output.check_outputs({"--output": tmp_path})
    _output.check_outputs({"--output": tmp_path / "new"})
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        with pytest.raises(OutputError, match=f"'{name}' is where stdout goes; choose another file"):
            _output.check_outputs({"--output": Path(name)})
    link = tmp_path / "link"
    link.symlink_to("/dev/stdout")
    with pytest.raises(OutputError, match="is where stdout goes"):
        _output.check_outputs({"--output": link})


@pytest.mark.parametrize("output", ["out.txt", "out.NPZ", "out.gz"])
@pytest.mark.parametrize(
    "command",
    [
        "embed a.txt",
        "index a.txt",
        "tokenizer train a.txt",
        "prune 0.1",
        "train clm a.txt",
        "train word2vec a.txt",
    ],
)
def test_a_folder_is_not_called_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a river\n")
    done = CliRunner().invoke(app, [*command.split(), "-o", output])
    assert isinstance(done.exception, InputError), done.output
    ending = Path(output).suffix
    assert f"--output must be a folder, and {output!r} is a file's name: leave {ending} out" in str(
        done.exception
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_may_have_a_dot(tmp_path: Path) -> None:
    for name in ("out", "model-v1.5", "vectors.parquet", ".txt"):
        _output.check_folder(tmp_path / name)
    (tmp_path / "old.txt").mkdir()
    _output.check_folder(tmp_path / "old.txt")  # an earlier command's, which goes on


def test_json_is_strict_and_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    _output.print_json({"text": "河 \x1b\u202e", "number": 0.5})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"text": "河 \x1b\u202e", "number": 0.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        _output.print_json(float("nan"))


def test_a_path_is_printed_byte_for_byte(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    _output.print_path(Path(os.fsdecode(b"/a \xff/b")))
    assert capfdbinary.readouterr().out == b"/a \xff/b\n"


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("80", 80), ("300", 100)])
def test_results_have_at_most_100_columns(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert _output.console().width == width
    monkeypatch.delenv("COLUMNS")
    assert _output.console().width <= 100


@pytest.mark.parametrize("message", ["[/x]", "[bold]x", "\x1b[31m", "河"])
def test_spinner_takes_any_name_and_is_silent_off_a_terminal(
    capfd: pytest.CaptureFixture[str], message: str
) -> None:
    with _output.status(message):
        pass
    assert capfd.readouterr() == ("", "")
