"""`regard prune`: heads as words, and the folder that it writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from integration import test_cli
from integration.test_cli import Run, refused
from regard.cli.prune import _parsed
from regard.core.errors import InputError
from regard.models import load_checkpoint, removed_words
from unit.models.folders import write, write_tokenizer

run = test_cli.run


@pytest.mark.parametrize(
    ("words", "heads"),
    [
        ("3.5", {3: [5]}),
        ("3.5,4.1, 3.0", {3: [5, 0], 4: [1]}),
        ("-1.-2", {-1: [-2]}),
        ("cross.3.5,encoder.0.1,cross.3.7", {"cross": {3: [5, 7]}, "encoder": {0: [1]}}),
    ],
)
def test_heads_as_words(words: str, heads: Any) -> None:
    assert _parsed(words) == heads


@pytest.mark.parametrize("words", ["", "3", "3.", ".5", "3.x", "3,5", "a.b.c.d", "cross.x.1", "²·1", "3.5,"])
def test_words_that_are_no_heads(words: str) -> None:
    with pytest.raises(InputError, match=r"HEADS must be layers and heads such as 3\.5,4\.1"):
        _parsed(words)


def test_a_kind_before_all_or_none() -> None:
    with pytest.raises(InputError, match="before all of them, or none"):
        _parsed("cross.3.5,4.1")


def test_it_writes_a_folder(run: Run, tmp_path: Path) -> None:
    full, folder = tmp_path / "full", tmp_path / "smaller"
    full.mkdir()
    write(full, "bert")
    code, out, err = run("prune", "0.1,1.2", "-m", str(full), "-o", str(folder))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2 heads removed",
        "4,208 parameters before, 3,578 after (15.0% less)",
        "loads in: regard; transformers 5 with trust_remote_code=True; transformers 4",
        str(folder),
    ]
    assert removed_words(load_checkpoint(folder).network) == ["0.1", "1.2"]
    said = refused(run("prune", "0.1", "-m", str(full), "-o", str(folder)), 2)
    assert "exists already; choose a new folder" in said


def test_as_json(run: Run, tmp_path: Path) -> None:
    full, folder = tmp_path / "full", tmp_path / "smaller"
    full.mkdir()
    write(full, "t5")
    words = "encoder.0.1,decoder.2.0,cross.1.2"
    code, out, _ = run("prune", words, "-m", str(full), "-o", str(folder), "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["heads_removed"], facts["loads_in"]) == (3, ["regard"])
    assert facts["parameters"][0] > facts["parameters"][1]
    assert removed_words(load_checkpoint(folder).network) == words.split(",")


def folder_with_words(folder: Path) -> Path:
    folder.mkdir()
    write(folder, "bert")
    write_tokenizer(folder, 31)
    return folder


def test_the_weakest_for_some_texts(run: Run, tmp_path: Path) -> None:
    full = folder_with_words(tmp_path / "full")
    texts = tmp_path / "texts"
    texts.write_text("w1 w2 w3 w4\n\nw7 w9 w2\n", encoding="utf-8")
    curve, folder = tmp_path / "curve.json", tmp_path / "smaller"
    words = ("--weakest", "2", "-f", str(texts), "--curve", str(curve), "-m", str(full), "-o", str(folder))
    code, out, err = run("prune", *words, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert (facts["heads_removed"], facts["texts"]) == (2, 2)
    points = json.loads(curve.read_text(encoding="utf-8"))
    assert [point["heads_removed"] for point in points] == [0, 1, 2, 3, 4]
    assert points[0]["metric"] == pytest.approx(1)
    assert points[2]["metric"] == facts["likeness"]
    removed = [f"{layer}.{head}" for layer, of in points[2]["removed"]["encoder"].items() for head in of]
    assert removed_words(load_checkpoint(folder).network) == removed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("9.1",), "must be from 0 to 1"),
        (("0.1.2",), "must be one of encoder"),
        ((), "give HEADS or --weakest, to say"),
        (("0.1", "--weakest", "2"), "give HEADS or --weakest, not both"),
        (("--weakest", "2"), "--weakest goes with --file"),
        (("0.1", "--file", "texts"), "--file goes with --weakest"),
        (("0.1", "--curve", "c.csv"), "--curve goes with --weakest"),
        (
            ("--weakest", "2", "--file", "texts", "--curve", "c.txt"),
            "--curve must end in .csv, .tsv, .json, .jsonl or .parquet; got 'c.txt'",
        ),
        (("--weakest", "2", "--file", "no"), "--file 'no' cannot be read"),
        (("--weakest", "5", "--file", "texts"), "number must be from 1 to 4"),
    ],
)
def test_what_is_refused(
    run: Run, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder_with_words(tmp_path / "full")
    (tmp_path / "texts").write_text("w1 w2", encoding="utf-8")
    assert message in refused(run("prune", *words, "-m", "full", "-o", "smaller"), 2)
    assert not (tmp_path / "smaller").exists()
