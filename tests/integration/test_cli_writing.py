"""`regard generate`, `translate` and `fill`: what they print, files that are gone on with, and bad input."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from integration import test_cli
from integration.forked import Forked
from integration.test_cli import Run, refused
from regard.cli import translate
from regard.models import write_checkpoint
from regard.text import write_tokenizer
from unit.models.folders import write_chat
from unit.training.small import network, tokenizer

run = test_cli.run

LINES = [
    "a river bank",
    "",
    "the money of the loan",
    " ",
    *(f"{'sat by ' * n}a bank" for n in range(1, 8)),
    "fish",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One of each kind that writes, and the default model's like, with words that they know."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for family, more in (("gpt2", {}), ("bart", {}), ("bert", {"head": "masked-lm"})):
        torch.manual_seed(2)
        made = network(family, **more)
        with torch.no_grad():
            for parameter in made.parameters():
                if parameter.ndim > 1 or family != "bart":
                    parameter.normal_(0.0, 0.5)
        found[family] = str(write_checkpoint(made, folder / family))
        write_tokenizer(tokenizer(), folder / family)
    run = folder / "run"
    run.mkdir()
    (run / "settings.json").write_text("{}")
    (run / "model").symlink_to(folder / "gpt2")
    return found | {"run": str(run), "other": str(folder)}


def test_generate_prints_what_python_writes(run: Run, models: dict[str, str]) -> None:
    model = regard.load(models["gpt2"])
    plain = model.generate("a river", max_length=9)
    assert len(plain.text) > 20
    given = ["generate", "a river", "-m", models["gpt2"], "--max", "9"]
    assert run(*given) == (0, f"{plain.text}\n", "")
    assert run(*given[:1], "-", *given[2:], stdin=b"a river\n").out == f"{plain.text}\n"
    assert run(*given[:3], models["run"], *given[4:]).out == f"{plain.text}\n"
    drawn = ["--temperature", "2", "--top-k", "9", "--seed", "3"]
    how = regard.Sampling(temperature=2.0, top_k=9, seed=3)
    several = model.generate(["a river", "money"], choice=how, count=2, max_length=9)
    done = run("generate", "a river", "money", *given[2:], *drawn, "--count", "2")
    assert done == (0, "\n\n".join(way.text for ways in several for way in ways) + "\n", "")
    first = several[0][0]
    assert run(*given, *drawn).out == f"{first.text}\n"
    stop = first.text[7:11]
    assert run(*given, *drawn, "--stop", stop).out == first.text[: first.text.find(stop)] + "\n"
    facts = json.loads(run(*given, "--beams", "3", "--count", "2", "--json").out)
    beams = model.generate("a river", choice=regard.Beams(3), count=2, max_length=9)
    assert facts == {"model": models["gpt2"], "texts": [[way.to_json() for way in beams]]}
    scored = run(*given, "--beams", "3", "--count", "2").out
    assert scored.startswith(f"{beams[0].score:.4f} {beams[0].text}\n\n{beams[1].score:.4f}")
    ruled = model.generate("a river", max_length=9, no_repeat=1, repetition_penalty=1.5, min_length=3)
    assert ruled.text != plain.text
    options = ["--no-repeat", "1", "--repetition-penalty", "1.5", "--min", "3"]
    assert run(*given, *options).out == f"{ruled.text}\n"


def test_generate_chats(run: Run, models: dict[str, str], tmp_path: Path) -> None:
    path = str(write_chat(tmp_path / "chat"))
    model, given = regard.load(path), ["generate", "-m", path, "--max", "9"]
    question = {"role": "user", "content": "Why?"}
    assert run(*given, "--chat", "Why?").out == f"{model.chat([question], max_length=9).text}\n"
    brief = model.chat([{"role": "system", "content": "Be brief."}, question], max_length=9)
    found = json.loads(run(*given, "-", "--system", "Be brief.", "--json", stdin=b"Why?\n").out)
    assert found == {"model": path, "texts": [[brief.to_json()]]}
    turns = tmp_path / "turns.json"
    turns.write_text(json.dumps(found["texts"][0][0]["messages"]))
    drawn = [
        model.chat([*brief.messages, message], choice=regard.Sampling(seed=1), count=2, max_length=9)
        for message in (question, {"role": "user", "content": "How?"})
    ]
    several = ["Why?", "How?", "--sample", "--seed", "1", "--count", "2", "--messages", str(turns)]
    assert run(*given, *several).out == "\n\n".join(way.text for ways in drawn for way in ways) + "\n"
    told = refused(run("generate", "Why?", "--chat", "-m", models["gpt2"]), 2)
    assert "--model must have a chat template" in told
    assert "each with a role" in refused(run(*given, "a", "--messages", "-", stdin=b"[1]"), 2)


def test_fill_prints_what_python_finds(run: Run, models: dict[str, str]) -> None:
    text = "the [MASK] of a [MASK]"
    filled = regard.load(models["bert"]).fill(text, top=3)
    done = run("fill", text, "-m", models["bert"], "--top", "3")
    assert (done.code, done.out.rstrip(), done.err) == (0, str(filled), "")
    facts = json.loads(run("fill", text, "-m", models["bert"], "--top", "3", "--json").out)
    assert facts["best"] == filled.best
    assert facts["guesses"] == filled.to_rows()


def test_line_n_belongs_to_line_n(run: Run, models: dict[str, str], tmp_path: Path) -> None:
    file, out = tmp_path / "in", tmp_path / "out"
    file.write_text("\n".join(LINES) + "\n")
    written = regard.load(models["bart"]).generate(LINES, max_length=12, min_length=4)
    expected = "".join(f"{way.text}\n" for way in written)
    assert not any(way.text for way, source in zip(written, LINES, strict=True) if not source.strip())
    assert len({way.text for way in written}) > 3
    given = ["-m", models["bart"], "--max", "12", "--min", "4"]
    assert run("translate", *given, stdin=file.read_bytes()) == (0, expected, "")
    assert run("translate", str(file), *given, "-o", str(out)) == (0, "", "")
    assert out.read_text() == expected
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}
    best = run("translate", str(file), *given, "--beams", "3", "--best", "2", "--json").out.splitlines()
    records = [json.loads(line) for line in best]
    assert [record["source"] for record in records] == LINES
    model, choice = regard.load(models["bart"]), regard.Beams(3)
    ways = model.generate(LINES, choice=choice, count=2, max_length=12, min_length=4)
    assert [[way["text"] for way in record["ways"]] for record in records] == [
        [way.text for way in each] for each in ways
    ]


KILLED = """
import os, signal
from regard.cli import translate as job
job._PORTION = 4
append, calls = job._append, []
def half(path, records):
    calls.append(path)
    if len(calls) < 3:
        return append(path, records)
    append(path, records)
    os.truncate(path, os.path.getsize(path) - 20)
    os.kill(os.getpid(), signal.SIGKILL)
job._append = half
main()
"""


def test_killed_and_gone_on_with(
    run: Run, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "_PORTION", 4)
    file, whole, out = tmp_path / "in", tmp_path / "whole", tmp_path / "out"
    file.write_text("\n".join(LINES) + "\n")
    given = [str(file), "-m", models["bart"], "--max", "12", "--min", "4", "--beams", "2", "--json"]
    assert run("translate", *given, "-o", str(whole)).code == 0
    assert Forked("translate", *given, "-o", str(out), program=KILLED).end()[0] == -signal.SIGKILL
    unfinished = tmp_path / "out.unfinished"
    begun = unfinished.read_bytes()
    assert begun.count(b"\n") == 12  # one of settings, two portions, and three of the four of another
    assert not out.exists()
    other = ["--beams", "3", "--json", "-o", str(out)]
    error = refused(run("translate", *given[:7], *other), 2)
    assert "out.unfinished' was begun with another choice; give the same command, or remove" in error
    file.write_text("\n".join([*LINES[:5], "a loan", *LINES[6:]]) + "\n")
    error = refused(run("translate", *given, "-o", str(out)), 2)
    assert error.startswith("regard: line 6 of FILE is not what was translated before; give the same file")
    file.write_text("\n".join(LINES[:6]) + "\n")
    assert "the end of FILE is not what was" in refused(run("translate", *given, "-o", str(out)), 2)
    file.write_text("\n".join(LINES) + "\n")
    written: list[int] = []
    generate: Any = regard.Model.generate

    def counted(self: regard.Model, texts: list[str], **how: Any) -> Any:
        written.append(len(texts))
        return generate(self, texts, **how)

    monkeypatch.setattr(regard.Model, "generate", counted)
    done = run("translate", *given, "-o", str(out))
    assert (done.code, done.err) == (0, "regard: went on after 8 lines\n")
    assert written == [4]
    assert out.read_bytes() == whole.read_bytes()
    assert not unfinished.exists()


def test_weights_stored_smaller_and_tokens_guessed_ahead(
    run: Run, models: dict[str, str], tmp_path: Path
) -> None:
    given = ["generate", "a river bank by a river", "-m", models["gpt2"], "--max", "11"]
    plain = run(*given).out
    for more in (["--lookup"], ["--draft", models["gpt2"]], ["--lookup", "--json"]):
        found = run(*given, *more).out
        assert (json.loads(found)["texts"][0][0]["text"] + "\n" if "--json" in more else found) == plain
    stored = run(*given, "--precision", "int8", "--json")
    assert (stored.code, len(json.loads(stored.out)["texts"][0][0]["token_ids"])) == (0, 11)
    for more, told in {
        ("--lookup", "--beams", "2"): "--lookup writes the greedy text; leave --beams out",
        ("--lookup", "--draft", "gpt2"): "--lookup writes the greedy text; leave --draft out",
        ("--precision", "int4"): "--precision must be one of float32, bfloat16, int8; got 'int4'",
        ("--draft", models["bart"]): "--draft must be a decoder with the model's",
    }.items():
        assert told in refused(run(*given, *more), 2)
    file, out = tmp_path / "in", tmp_path / "out"
    file.write_text("\n".join(LINES) + "\n")
    given = ["translate", str(file), "-m", models["bart"], "--max", "7"]
    assert run(*given, "--lookup").out == run(*given).out
    assert run(*given, "--precision", "int8", "-o", str(out)).code == 0
    assert out.read_text().count("\n") == len(LINES)


def test_a_reader_that_goes_away_and_a_key_that_ends_it(models: dict[str, str]) -> None:
    slowly = """
import time
from regard.decoding import _steps
apply = _steps.Rules.apply
def slow(*given):
    time.sleep(0.2)
    return apply(*given)
_steps.Rules.apply = slow
main()
"""
    words = ["generate", "a river", "-m", models["gpt2"], "--max", "29", "--no-repeat", "2"]
    process = Forked(*words, program=slowly)
    assert process.stdout.read(1) == " "
    process.send_signal(signal.SIGINT)
    code, _, err = process.end()
    assert (code, err) == (130, "")
    process = Forked(*words)
    process.stdout.close()
    code, _, err = process.end()
    assert (code, err) == (1, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fill", "a [MASK]"], "--model must be given, such as bert-base-uncased"),
        (["generate", "a", "-m", "bert"], "--model must have a decoder and .* it fills gaps, which"),
        (["fill", "a [MASK]", "-m", "gpt2"], "--model must have a masked-LM head, .* gpt2 writes on"),
        (["fill", "a bank", "-m", "bert"], r"TEXT must have a mask, which this model spells \[MASK\]"),
        (["translate", "-m", "gpt2"], "--model must be an encoder-decoder, .* `regard generate` goes on"),
        (["generate", " ", "-m", "gpt2"], "TEXT.* is empty"),
        (["generate", "a", "b", "-m", "gpt2", "--max", "99"], r"--max must be at most 30 for texts\[0\]"),
        (["generate", "bank " * 40, "-m", "gpt2"], r"TEXT\[0\] must have at most 31 tokens"),
        (["generate", "a", "-m", "x", "--beams", "2", "--top-p", "1"], "--top-p draws and --beams searches"),
        (["generate", "a", "-m", "x", "--seed", "2"], "--seed goes with --sample"),
        (["generate", "a", "-m", "x", "--count", "2"], "--count goes with --sample or --beams"),
        (["generate", "a", "-m", "x", "--length-penalty", "2"], "--length-penalty goes with --beams"),
        (["generate", "a", "-m", "x", "--recommended", "--beams", "2"], "leave --beams out"),
        (["generate", "a", "-m", "gpt2", "--temperature", "0"], "--temperature must be above 0; got 0"),
        (
            ["generate", "a", "-m", "gpt2", "--beams", "2", "--count", "3"],
            "--count must be at most the number of beams, 2; got 3",
        ),
        (["generate", "a", "-m", "gpt2", "--stop", ""], "--stop must be texts of at least one character"),
        (["translate", "-m", "bart", "--beams", "2", "--best", "2"], "--best goes with --json"),
        (
            ["translate", "-m", "bart", "--beams", "2", "--best", "3", "--json"],
            "--best must be at most the number of beams, 2; got 3",
        ),
        (
            ["translate", "-m", "bart", "--prefix", "a", "--prefixes", "b"],
            "give --prefix or --prefixes, not both",
        ),
        # Before the model is loaded, which takes seconds.
        (["translate", "gone", "-m", "no model"], r"FILE 'gone' cannot be read \(No such file"),
        (["translate", "-m", "no model", "--prefixes", "gone"], "--prefixes 'gone' cannot be read"),
        (["generate", "\n", "-m", "gpt2"], "TEXT is empty: there is nothing to go on with"),
        (["translate", "-m", "bart", "-o", "/no/such/file"], "cannot be written: there is no folder"),
    ],
    ids=lambda each: " ".join(each)[:50] if isinstance(each, list) else "",
)
def test_refusals(run: Run, models: dict[str, str], words: list[str], said: str) -> None:
    done = run(*(models.get(word, word) for word in words), stdin=b"a river\n")
    error = refused(done, 1 if "/no/such/file" in words else 2)
    assert re.search(said, error), error


def test_how_translations_begin(run: Run, models: dict[str, str], tmp_path: Path) -> None:
    file, begins, out = tmp_path / "in", tmp_path / "begins", tmp_path / "out"
    file.write_text("\n".join(LINES) + "\n")
    lines = ["a bank", "", "", "fish", "the money of", *["a"] * 6, "sat"]
    begins.write_text("\n".join(lines) + "\n")
    given = ["translate", str(file), "-m", models["bart"], "--max", "8", "--min", "3"]
    model = regard.load(models["bart"])
    how: dict[str, Any] = {"max_length": 8, "min_length": 3}
    for prefix, more in ("a bank", ["--prefix", "a bank"]), (lines, ["--prefixes", str(begins)]):
        written = model.generate(LINES, prefix=prefix, **how)
        assert run(*given, *more).out == "".join(f"{way.text}\n" for way in written)
    records = [json.loads(line) for line in run(*given, *more, "--json").out.splitlines()]
    assert [record["prefix"] for record in records] == lines
    assert run(*given, *more, "-o", str(out)).code == 0
    done = out.read_bytes()
    for again in ([], ["--beams", "2"]):
        told = refused(run(*given, *more, *again, "-o", str(out)), 2)
        assert re.search(r"--output .*out' exists already; choose another file, or --force to write", told)
    assert out.read_bytes() == done
    assert run(*given, "--force", "-o", str(out)).code == 0
    assert out.read_bytes() != done
    begins.write_text("a\n")
    assert "--prefixes must have as many lines as FILE" in refused(run(*given, *more), 2)


def test_lines_that_will_not_do(run: Run, models: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}")
    assert "--model must be a run that has a model" in refused(run("generate", "a", "-m", str(tmp_path)), 2)
    (tmp_path / "bart").symlink_to(models["bart"])
    error = refused(run("translate", "-m", models["bart"], stdin=b"\n\n" + b"bank " * 40), 2)
    assert error == "regard: line 3 of FILE must have at most 31 tokens, the model's limit; got 42.\n"
    error = refused(run("translate", "-m", models["bart"], stdin=b"a \xff\n"), 2)
    assert "line 1 of FILE '-' must be UTF-8; byte 2 is 0xff" in error
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((Path(models["gpt2"]) / name).read_bytes())
    assert "has no tokenizer, which text needs" in refused(run("generate", "a", "-m", str(bare)), 1)
