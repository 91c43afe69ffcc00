"""The command line as a process of its own: signals, pipes, closed streams, locales, and what it imports."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.forked import Forked
from unit.views.conftest import facts_of

FISHING = "Write a poem about a man fishing on a river bank."
REGARD = [sys.executable, "-m", "regard"]
SECONDS = 120


def run(command: list[Any], **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, timeout=SECONDS, **({"capture_output": True} | options))


def python(program: str, *arguments: str) -> list[str]:
    """A command that runs a program, and then `regard` with these arguments."""
    start = f"import sys; sys.argv[0] = 'regard'\n{program}\nfrom regard.cli import main; main()"
    return [sys.executable, "-c", start, *arguments]


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    # Ctrl-C reaches a program that was started in the background of a shell only if it listens again.
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def test_no_help_imports_torch() -> None:
    program = """
import json, sys
from regard.cli import main
codes = {}
for words in json.loads(sys.argv[1]):
    sys.argv = ["regard", *words.split()]
    try:
        main()
    except SystemExit as end:
        codes[words] = end.code
slow = ("torch", "numpy", "matplotlib", "pyarrow")
print(json.dumps([codes, [name for name in slow if name in sys.modules]]))
"""
    commands = (
        "",
        "look",
        "explain",
        "compare",
        "heads",
        "embed",
        "generate",
        "translate",
        "fill",
        "models",
        "models list",
        "tokenizer train",
        "eval",
        "models show",
        "models path",
    )
    wanted = {f"{command} -h": 0 for command in commands} | {"--version": 0, "look": 2, "nope": 2}
    done = run([sys.executable, "-c", program, json.dumps(list(wanted))])
    assert json.loads(done.stdout.splitlines()[-1]) == [wanted, []]


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("regard")
    assert command.exists()
    assert run([command, "--version"]).stdout == run([*REGARD, "--version"]).stdout


def test_shells_complete_commands_and_options() -> None:
    asked = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": "regard lo", "COMP_CWORD": "1"}
    assert run(REGARD, env=os.environ | asked).stdout.split() == [b"look"]
    asked |= {"COMP_WORDS": "regard look --li", "COMP_CWORD": "2"}
    assert run(REGARD, env=os.environ | asked).stdout.split() == [b"--live"]
    without_a_shell = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    printed = run([*REGARD, "--show-completion", "bash"], env=without_a_shell).stdout
    assert printed.rstrip().endswith(b"complete -o default -F _regard_completion regard")


def test_from_the_sentence_to_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    done = run([*REGARD, "look", "-", "-o", path], input=f"{FISHING}\n".encode(), env=environment)
    assert done.returncode == 0
    assert done.stdout == f"{path}\n".encode()
    assert done.stderr == b"There is no display here: open this file in a browser.\n"
    assert facts_of(path.read_text(encoding="utf-8"))["sides"]["encoder"]["text"] == FISHING


def test_a_reader_that_goes_away() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run([*REGARD, "--help"], capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    process = Forked("explain", "bank", "-w", "bank")
    process.stdout.close()
    assert process.end() == (1, "", "")


def test_a_full_disk_under_stdout() -> None:
    with open("/dev/full", "wb") as full:
        done = run([*REGARD, "--version"], capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"regard: stdout cannot be used (No space left on device)\n"


def test_closed_streams() -> None:
    shell = f'exec "{sys.executable}" -m regard "$@"'
    done = run(["sh", "-c", f"{shell} >&-", "sh", "--version"])
    assert (done.returncode, done.stderr) == (1, b"regard: stdout cannot be used (it is closed)\n")
    done = run(["sh", "-c", f"{shell} <&-", "sh", "explain", "-", "-w", "bank"])
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"regard: - reads the text from stdin, but stdin is closed.\n"
    done = run(["sh", "-c", f"{shell} 2>&-", "sh", "explain", " \xff", "-w", "bank", "--token", "1"])
    assert (done.returncode, done.stdout) == (2, b"")


def test_bytes_that_are_no_text() -> None:
    program = """
import io, sys
from regard.cli import main
for words in (["-"], ["--live", "-"], ["--generate", "-"], ["a", "--target", "\\udcff"]):
    sys.argv = ["regard", "look", *words]
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"a \\xff"))
    try:
        main()
    except SystemExit as end:
        assert end.code == 2
assert "torch" not in sys.modules
"""
    done = run([sys.executable, "-c", program])
    told = [*[b"stdin must be UTF-8; byte 2 is 0xff"] * 3, b"the text must be UTF-8; byte 0 is 0xff"]
    assert done.returncode == 0, done.stderr
    assert all(each in line for each, line in zip(told, done.stderr.splitlines(), strict=True))
    done = run([*REGARD, "explain", b"a \xff", "-w", "a"])
    assert (done.returncode, done.stdout) == (2, b"")
    assert (
        done.stderr
        == b"regard: the text must be UTF-8; byte 2 is 0xff. Convert it, for example with iconv -t utf-8.\n"
    )


def test_a_terminal_that_knows_only_ascii() -> None:
    text = "“河岸” bank 👍"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = run([*REGARD, "explain", text.encode(), "-w", "bank"], env=os.environ | plain)
    assert (done.returncode, done.stderr) == (0, b"")
    printed = done.stdout.decode("ascii")
    assert '""\\u6cb3\\u5cb8" bank \\U0001f44d"' in printed
    assert "1/sqrt 32" in printed
    assert "... 384 numbers" in printed
    assert " ##" in printed


def test_interrupted() -> None:
    program = """
import time, types, regard
def load(name):
    print("ready", file=sys.stderr, flush=True)
    time.sleep(600)
sys.modules["regard.api"] = types.SimpleNamespace(load=load)
"""
    process = start(python(program, "look", "bank", "--no-open"))
    assert process.stderr is not None
    assert process.stderr.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (130, b"", b"")


# A model whose page is written by what writes every file of regard's.
PAGE = """
import types
from regard.cli import look
from regard.core.files import write_whole
page = types.SimpleNamespace(write=lambda path: write_whole(path, b"a page"))
look._traced = lambda *given: None
look._page = lambda *given, **options: (page, {})
"""


def test_killed_in_the_middle_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("what was there before")
    program = f"""{PAGE}
import os, time
def hang(*arguments, **options):
    print("ready", file=sys.stderr, flush=True)
    time.sleep(600)
os.replace = hang
main()
"""
    process = Forked("look", "bank", "--no-open", "-o", str(path), program=program)
    assert process.stderr.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    assert process.end()[:2] == (-signal.SIGKILL, "")
    assert path.read_text() == "what was there before"
    [left] = [file for file in tmp_path.iterdir() if file != path]
    assert (left.suffix, left.read_text()) == (".tmp", "a page")  # whole, but not yet in its place


def test_interrupted_in_the_middle_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("what was there before")
    program = f"""{PAGE}
import os, signal
def interrupt(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
    import time; time.sleep(600)
os.replace = interrupt
main()
"""
    process = Forked("look", "bank", "--no-open", "-o", str(path), program=program)
    assert process.end() == (130, "", "")
    assert path.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_spinner_only_on_a_terminal(on_terminal: bool) -> None:
    program = """
import time, types, regard
def load(name):
    time.sleep(0.3)
    raise regard.InputError("no")
sys.modules["regard.api"] = types.SimpleNamespace(load=load)
"""
    reader, writer = pty.openpty() if on_terminal else os.pipe()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")}
    done = run(
        python(program, "look", "bank", "-m", "[/x]"),
        capture_output=False,
        stdout=subprocess.PIPE,
        stderr=writer,
        env=environment | {"TERM": "xterm"},
    )
    shown = os.read(reader, 100_000)
    os.close(writer)
    os.close(reader)
    assert (done.returncode, done.stdout) == (2, b"")
    assert (b"loading [/x]" in shown) == on_terminal
    assert shown.replace(b"\r", b"").endswith(b"regard: no\n")
    assert on_terminal or shown == b"regard: no\n"
