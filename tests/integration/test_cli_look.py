"""`regard look` at a text that is too long for its page, and with `--live`."""

import json
from pathlib import Path

from integration import test_cli
from integration.live_models import live_model
from integration.test_cli import Run, refused
from unit.models.folders import write, write_tokenizer

run = test_cli.run

TEXT = "a man withdraws money from the bank, and goes fishing from the bank of the river " * 4


def test_holds_what_fits_and_what_is_asked_for(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    asked = ("look", TEXT, "--no-open", "-o", str(path), "--json")
    whole = json.loads(run(*asked).out)
    assert (whole["heads"], len(whole["held"])) == ("all", 72)
    most = str(whole["bytes"] / 1e6 - 0.9)  # all values and some heads
    done = run(*asked, "--max-mb", most, "--heads", "4.7,2", "--values", "3.9")
    facts = json.loads(done.out)
    assert facts["bytes"] <= float(most) * 1e6
    assert facts["heads"] == "some"
    assert {"encoder.4.7", "encoder.3.9", *(f"encoder.2.{head}" for head in range(12))} <= set(facts["held"])
    assert done.err.startswith(f"The page holds {len(facts['held'])} heads, since all would take more than")
    said = refused(run(*asked, "--max-mb", "0.5", "--heads", "0,1,2,3"), 2)
    assert "room for the 48 heads that are asked for" in said
    assert "--heads must be layers and heads" in refused(run(*asked, "--heads", "x"), 2)
    assert "heads: layer must be" in refused(run(*asked, "--heads", "9"), 2)


def test_a_page_of_one_head_has_nothing_else(run: Run, tmp_path: Path) -> None:
    asked = ("look", "time flies", "--no-open", "-o", str(tmp_path / "page.html"), "--json")
    done = run(*asked, "--only", "5.11")
    assert (json.loads(done.out)["held"], done.err) == (["encoder.5.11"], "")
    for more, said in (
        (("--only", "5.12"), "--only: head must be from 0 to 11"),
        (("--only", "5:11"), "--only must be layers and heads such as 3.5,4.1"),
        (("--only", "5.11", "--heads", "1.1"), "--only must be given alone: a page of chosen heads"),
    ):
        assert said in refused(run(*asked, *more), 2)


def test_a_live_page_opens_on_a_text_for_its_model(run: Run, tmp_path: Path) -> None:
    for family, text in (("bert", "The trophy does not fit"), ("gpt2", "The capital of France is")):
        path = tmp_path / f"{family}.html"
        live_model(tmp_path / family, family)
        done = run("look", "--live", "-m", str(tmp_path / family), "--no-open", "-o", str(path))
        assert done.code == 0, done.err
        assert f"<title>{text}" in path.read_text(encoding="utf-8")


def test_a_live_page_is_refused_in_words(run: Run, tmp_path: Path) -> None:
    write_tokenizer(write(tmp_path, "t5"), 31)
    said = refused(run("look", "w1", "--live", "-m", str(tmp_path)), 2)
    assert "runs models of the families bert, distilbert, gemma2, gemma3_text, gpt2" in said
    assert "without --live" in said


def test_a_text_is_written_and_shown(run: Run, tmp_path: Path) -> None:
    folder, page = tmp_path / "m", tmp_path / "page.html"
    folder.mkdir()
    write_tokenizer(write(folder, "gpt2"), 31)
    asked = ("look", "--generate", "w3 w5", "-m", str(folder), "--no-open", "-o", str(page))
    facts = json.loads(run(*asked, "--max", "4", "--beams", "2", "--json").out)
    assert (len(facts["steps"]), len(facts["branches"]), facts["prompt"]) == (4, 8, "w3 w5")
    assert facts["bytes"] == page.stat().st_size
    page.unlink()
    for more, said in (
        (("--max", "0"), "--max must be a whole number, at least 1; got 0"),
        (("--max", "99"), "--max must be at most 10"),
        (("--live",), "--live must be left out with --generate"),
        (("w7",), "TEXT2 must be left out with --generate"),
        (("-m", "all-MiniLM-L6-v2"), "--model must have a decoder and a language-model"),
    ):
        assert said in refused(run(*asked, *more), 2)
    assert not page.exists()
