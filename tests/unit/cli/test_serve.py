"""`regard serve`: wrong command lines, refused before a model is loaded."""

import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.cli import main

WRONG = {
    "--port 99999": "--port must be a whole number, from 0 to 65535; got 99999.",
    "--port abc": "--port must be a whole number; got 'abc'.",
    "--api-key-file missing": "--api-key-file 'missing' cannot be read (No such file or directory).",
    "--api-key-file empty": "--api-key-file 'empty' must hold a key, one a line; it is empty.",
    "--dimensions 64,x": "--dimensions must be whole numbers with commas; got '64,x'.",
    "--dimensions 0": "--dimensions must be a whole number, at least 1; got 0.",
    "--precision int3": "--precision must be one of float32, bfloat16, int16, int8, fast; got 'int3'.",
    "--max-queue 0": "--max-queue must be a whole number, at least 1; got 0.",
    "--timeout 0": "--timeout must be more than 0 seconds; got 0.0.",
    "--port 0 -m nosuch": "'nosuch' is not a folder",
    "--port 0 -m all-MiniLM-L6-v2 -m all-MiniLM-L6-v2": "--model 'all-MiniLM-L6-v2' is there twice",
    "--port 0 --max-memory 1000": "--max-memory must be at least 90,868,376, the bytes of",
}


def refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int = 2
) -> str:
    monkeypatch.setattr(sys, "argv", ["regard", "serve", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    return capsys.readouterr().err.strip()


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_said_in_a_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("\n", "utf-8")
    told = refused(words.split(), monkeypatch, capsys)
    assert told.startswith(f"regard: {WRONG[words]}")
    assert "\n" not in told


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(["--port", str(port)], monkeypatch, capsys)
    assert (
        told == f"regard: port {port} of 127.0.0.1 cannot be used (Address already in use); choose another."
    )


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The command takes them for its process."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


ABSENT = {
    "fastapi": "serving needs fastapi, uvicorn, httptools, orjson and prometheus-client, which are not all",
    "prometheus_client": "serving needs fastapi, uvicorn,",
    "starlette.exceptions": "the server cannot start: import of starlette.exceptions halted",
    "regard.serving._limits": "the server cannot start: import of regard.serving._limits halted",
}


@pytest.mark.parametrize("absent", ABSENT)
def test_what_cannot_be_imported_is_named(
    absent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("regard.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("regard.serving", raising=False)
    monkeypatch.setitem(sys.modules, absent, None)
    told = refused([], monkeypatch, capsys, code=1)
    assert told.startswith(f"regard: {ABSENT[absent]}")
