"""`regard heads` in this process: the table, the card, the files, and what it says to bad input."""

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from integration import test_cli
from integration.test_cli import Run, columns, refused
from regard.checkpoints import DEFAULT_MODEL
from regard.tracing.patterns import RULE
from unit.views.conftest import facts_of

run = test_cli.run

CAT = "The cat sat on the mat, and the dog lay on the rug."


def test_a_table_of_a_sentence(run: Run) -> None:
    code, out, err = run("heads", CAT)
    assert (code, err) == (0, "")
    assert columns(out) <= 80
    assert out.startswith("sentence-transformers/all-MiniLM-L6-v2: 1 text, 17 tokens\n")
    assert len(re.findall(r"^ +layer \d", out, re.MULTILINE)) == 6
    assert len(re.findall(r"^ {1,3}\d+ \S", out, re.MULTILINE)) == 72
    assert re.search(r"^ +2 previous +0\.9\d 0\.9\d\.\.0\.9\d +\d+%", out, re.MULTILINE)
    assert re.search(r"^72 heads: \d+ delimiter sink, .*", out, re.MULTILINE)


def test_a_layer_and_a_card(run: Run) -> None:
    out = run("heads", CAT, "--layer", "-1").out
    assert re.findall(r"^ +layer (\d)", out, re.MULTILINE) == ["5"]
    assert "12 heads:" in out
    code, out, err = run("heads", "-", "-l", "0", "-n", "2", stdin=CAT.encode())
    assert (code, err) == (0, "")
    assert "encoder layer 0, head 2: previous" in out
    assert columns(out) <= 80
    names = {"previous", "duplicate", "positional", "induction", "broadcast", "self", "next", "delimiter"}
    assert {line.split()[0] for line in out.splitlines()[7:15]} == names
    assert out.splitlines()[7].startswith("previous ")
    assert re.search(r"^[01]\.\d\d  .*<\S+> \[\S+\]", out, re.MULTILINE)


def test_json_is_the_record(run: Run) -> None:
    code, out, err = run("heads", CAT, "--json", "--kind", "encoder", "--seed", "3")
    assert (code, err) == (0, "")
    plain = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert (plain["texts"], plain["tokens"], plain["refused"], plain["seed"], plain["unit"]) == (
        1,
        17,
        0,
        3,
        "query",
    )
    assert len(plain["cards"]) == 72
    card = plain["cards"][2]
    assert (card["kind"], card["layer"], card["head"], card["pattern"]) == ("encoder", 0, 2, "previous")
    best = card["findings"][0]
    assert best["low"] <= best["effect"] <= best["high"]
    example = card["examples"][0]
    assert example["key"] == example["query"] - 1
    assert example["tokens"][:3] == ["[CLS]", "The", "cat"]


def test_a_file_line_by_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.cli._output._EVERY", math.inf)
    lines = [f"{CAT} {number}." for number in range(11)]
    lines[3:3] = ["", "  ", "bank " * 600]
    file = tmp_path / "texts.txt"
    file.write_text("\ufeff" + "\n".join(lines) + "\n")
    code, out, err = run("heads", "--file", str(file), "--json")
    plain = json.loads(out)
    assert (code, plain["texts"], plain["refused"], plain["unit"]) == (0, 11, 1, "text")
    assert err.splitlines() == [
        "regard: line 6 is passed over: text has 602 tokens with the special ones, but "
        "sentence-transformers/all-MiniLM-L6-v2 takes at most 512; shorten it, or give its parts one by one. "
        "The first 510 words fit.",
        "regard: 1 line was passed over in all",
    ]
    assert json.loads(run("heads", "-f", "-", "--json", stdin=file.read_bytes()).out) == plain


def test_progress_where_there_is_no_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.cli._output._EVERY", 0.0)
    code, _, err = run("heads", "--repeat", "3", "-l", "0")
    assert code == 0
    assert re.fullmatch("".join(rf"regard: {count} of 3 texts, \d+ s left\n" for count in (1, 2, 3)), err)


def test_a_parquet_file(run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "heads.parquet"
    path.write_text("old")
    assert run("heads", CAT, "-o", str(path)) == (0, "", "")
    assert [each.name for each in tmp_path.iterdir()] == ["heads.parquet"]
    plain = json.loads(run("heads", CAT, "--json").out)
    rows = parquet.read_table(path).to_pylist()
    for row, card in zip(rows, plain["cards"], strict=True):
        assert {name: row[name] for name in card} == card
        assert row["effect"] == card["findings"][0]["effect"]
    about = json.loads(parquet.read_schema(path).metadata[b"regard"])
    assert about == plain | {"cards": 72}


def test_random_tokens_twice(run: Run) -> None:
    code, out, err = run("heads", "--repeat", "3", "-l", "0", "-n", "2")
    assert (code, err) == (0, "")
    assert "3 texts" in out
    assert "layer 0, head 2: previous" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a TEXT, a --file or --repeat, and one of them only"),
        ((CAT, "--file", "texts"), "one of them only"),
        (("--file", "texts", "--repeat", "3"), "one of them only"),
        (("",), "TEXT is empty"),
        (("bank " * 600,), "takes at most 512"),
        (("--file", "nowhere"), r"--file 'nowhere' cannot be read \(No such file"),
        (("--file", "."), r"--file '\.' cannot be read \(Is a directory"),
        (("--file", "empty"), "--file 'empty' holds no text"),
        (("--file", "blank"), "--file 'blank' holds no text"),
        (("--file", "binary"), "line 1 of --file 'binary' must be UTF-8; byte 1 is NUL"),
        (("--file", "latin"), r"line 1 of --file 'latin' must be UTF-8; byte 3 is 0xe9"),
        (("--file", "long"), "must hold at least one that the model can take; 1 were passed over"),
        ((CAT, "--target", "x"), "--target must be left out: this model has no decoder"),
        (("--repeat", "3", "--target", "x"), "--target goes with TEXT"),
        ((CAT, "--target-file", "x"), "--target-file goes with --file"),
        (("--file", "-", "--target-file", "-"), "stdin is read once"),
        (("--repeat", "0"), "--repeat must be at least 1; got 0"),
        ((CAT, "--kind", "cross"), 'kind must be "encoder"'),
        ((CAT, "--layer", "6"), "layer must be from 0 to 5"),
        ((CAT, "--head", "12"), "head must be from 0 to 11"),
        ((CAT, "--threshold", "2"), "threshold must be from 0 to below 1"),
        ((CAT, "-o", "heads.txt"), r"must end in \.csv, .*; got 'heads\.txt'"),
        ((CAT, "-o", "-"), "- is not a file to write to"),
    ],
)
def test_wrong_usage(
    run: Run, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "blank").write_bytes(b"\n \n\t\n")
    (tmp_path / "binary").write_bytes(b"\x80\0\x01")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "long").write_text("bank " * 600)
    code, out, err = run("heads", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err.splitlines()[-1])
    assert not any(path.name.startswith("heads") for path in tmp_path.iterdir())


def test_a_model_that_is_not_here(run: Run, tmp_path: Path) -> None:
    assert "does not exist" in refused(run("heads", CAT, "-m", "./nowhere"), 2)
    assert "--file 'nowhere'" in refused(run("heads", "-f", "nowhere", "-m", "./nowhere"), 2)


def test_a_folder_that_is_not_there(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert "cannot be written" in refused(run("heads", CAT, "-o", str(tmp_path / "no" / "a.parquet")), 1)


def test_without_pyarrow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "a.parquet"
    message = refused(run("heads", CAT, "-o", str(path)), 1)
    assert "need pyarrow, which is not installed; run: pip install pyarrow" in message
    assert not path.exists()


def test_hostile_text_is_not_obeyed(run: Run) -> None:
    hostile: Any = "[bold]x[/bold] \x1b[31m red \x07 \u202e [/x] \x9b and then red again"
    for arguments in ((), ("-l", "0", "-n", "2")):
        code, out, err = run("heads", hostile, *arguments)
        assert (code, err) == (0, "")
        assert not set(out) & set("\x1b\x07\u202e\x9b")
        assert columns(out) <= 80


def test_heads_of_two_texts_compared(run: Run) -> None:
    code, out, err = run("compare", CAT, "The cow sat on the mat.", "--heads")
    assert (code, err) == (0, "")
    assert columns(out) <= 80
    assert re.search(r"Jensen-Shannon divergence in bits, encoder attention, \d+ rows, \d\d% of tokens", out)
    assert len(re.findall(r"^\d {4}( \d\.\d{3}){12}$", out, re.MULTILINE)) == 6
    plain = json.loads(run("compare", CAT, "The cow sat on the mat.", "--heads", "--json").out)
    assert (len(plain["bits"]), len(plain["bits"][0])) == (6, 12)
    assert f"{plain['bits'][2][5]:.3f}" in out
    assert plain["names"] == [CAT, "The cow sat on the mat."]


def test_heads_of_two_models_compared(run: Run) -> None:
    plain = json.loads(run("compare", CAT, "--heads", "--against", DEFAULT_MODEL, "--json").out)
    assert (plain["coverage"], plain["rows"], plain["shared"]) == (1.0, 17, CAT)
    assert not any(any(row) for row in plain["bits"])  # the same model twice
    assert plain["names"] == [DEFAULT_MODEL] * 2


def test_the_page_of_a_difference(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "difference.html"
    code, out, err = run("compare", CAT, "The cow sat on the mat.", "--heads", "--page", str(page))
    assert (code, err) == (0, "")
    assert "Jensen-Shannon divergence in bits" in out
    assert out.splitlines()[-1] == str(page)
    assert facts_of(page.read_text(encoding="utf-8"))["compared"]["between"] == "texts"
    told = run("compare", CAT, "The cow sat on the mat.", "--heads", "--page", str(page), "--json")
    assert json.loads(told.out)["page"] == str(page)
    refused(run("compare", CAT, CAT, "--heads", "--page", str(tmp_path / "no" / "page.html")), 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((CAT, CAT), "give --word, whose vectors are compared, or --heads"),
        ((CAT, "--heads"), "--heads compares two texts in one model, or one text in two"),
        ((CAT, CAT, CAT, "--heads"), "--heads compares two texts"),
        ((CAT, CAT, "--heads", "--against", DEFAULT_MODEL), "--heads compares two texts"),
        ((CAT, CAT, "--heads", "-w", "cat"), "give --word or --heads, not both"),
        ((CAT, CAT, "--heads", "--plot", "a.png"), "give --heads or --plot, not both"),
        ((CAT, CAT, "-w", "cat", "--against", DEFAULT_MODEL), "--against goes with --heads"),
        ((CAT, "money", "--heads"), "tokens in common"),
        ((CAT, CAT, "--heads", "--kind", "cross"), 'kind must be "encoder"'),
    ],
)
def test_heads_that_cannot_be_compared(run: Run, arguments: tuple[str, ...], message: str) -> None:
    assert re.search(message, refused(run("compare", *arguments), 2))


def test_statistics_of_every_head(run: Run, tmp_path: Path) -> None:
    code, out, err = run("heads", "--statistics", CAT, "-l", "1")
    assert (code, err) == (0, "")
    wanted = regard.load(DEFAULT_MODEL).trace(CAT).statistics(layers=1)
    assert out.strip() == str(wanted)
    rows = json.loads(run("heads", "--statistics", CAT, "-l", "1", "--json").out)
    assert [(row["kind"], row["head"]) for row in rows] == [("encoder", head) for head in range(12)]
    assert rows[3]["entropy"] == pytest.approx(wanted.mean("entropy")[0, 3].item())
    path = tmp_path / "heads.jsonl"
    assert run("heads", "--statistics", CAT, "-l", "1", "-o", str(path)) == (0, "", "")
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == wanted.to_rows()
    for arguments, message in (
        ((), "--statistics goes with TEXT"),
        ((CAT, "--file", "x"), "one of them only"),
        ((CAT, "--head", "1"), "give --statistics or --head, not both"),
        ((CAT, "--threshold", "0.2"), "give --statistics or --threshold, not both"),
        ((CAT, "-l", "9"), "--layer must be from 0 to 5"),
    ):
        assert message in refused(run("heads", "--statistics", *arguments), 2)


def test_the_threshold_that_help_shows_is_the_rule(run: Run) -> None:
    _, _, said = run("heads", "--help").out.partition("--threshold")
    assert f"[default: {RULE.threshold}]" in said.split("--seed")[0]
