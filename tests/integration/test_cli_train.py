"""`regard train` as somebody types it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from regard.cli import main
from regard.training import read_settings

TEXT = "the cat sat on the mat\nand the dog on the rug\n\n" * 20
SMALL = "--set model.d_model=8 --set model.num_layers=1 --set model.num_heads=2 --set model.d_ff=11 "
SMALL += "--set batch.length=12 --set batch.rows=2 --set tokenizer.size=280"


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["regard", "train", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.txt").write_text(TEXT)
    (tmp_path / "mixed" / "b.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "b.csv").write_text("name,body\na,b\n")
    (tmp_path / "c.csv").write_text("name;body\na;b\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    return tmp_path


def test_a_run_says_what_it_is_and_leaves_a_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"clm a.txt -o run --steps 2 --json {SMALL}", monkeypatch) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert (result["model"], result["step"]) == ("run/model", 2)
    assert set(result["scores"]) == {"loss", "perplexity", "accuracy", "bits_per_byte"}
    for said in (
        "a new gpt2, ",
        "1 layers of 2 heads",
        "bpe, learned",
        "the last 5 % of each file",
        "2 steps, ",
    ):
        assert said in told.err
    assert "step 2: loss " in told.err
    card = (folder / "run/model/README.md").read_text()
    assert card.startswith('---\nlibrary_name: "transformers"\ntags: ["regard", "clm"]\n---\n\n# run\n')
    assert f"| loss | {result['scores']['loss']:.4f} |" in card
    assert "AutoModelForCausalLM" in card
    again = tomllib.loads(card.split("```toml")[1].split("```")[0])
    assert (again["steps"], again["model"]["d_model"]) == (2, 8)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("clm -o run", "DATA... must name at least one file"),
        ("clm a.txt", "--output must name the folder of the run"),
        ("clm - -o run", "DATA... must be files"),
        ("seq2seq a.txt -o run", "--target must name the other side of the texts: seq2seq reads pairs"),
        ("clm a.txt -o run --steps 0", "--steps must be a whole number, at least 1; got 0"),
        ("clm a.txt -o run --set foo", "--set must be KEY=VALUE"),
        ("clm a.txt -o run --config gone.toml", "--config must be a file that can be read"),
        ("clm a.txt -o run --tokenizer gone.json", "--tokenizer must be"),
        ("clm a.txt -o run --set optimiser.lear=1", "did you mean optimiser.lr?"),
        ("clm mixed -o run", "such as 'a.txt' and 'b.jsonl'; name the files that are meant."),
        ("clm b.csv -o run", "Or has it no header? Then give --set data.csv.header=false."),
        ("clm b.csv -o run", "Is it another column? Then give --set data.text=NAME."),
        ("clm c.csv -o run", "Then give --set data.csv.delimiter=CHAR."),
        ("mlm latin.txt -o run", "name its encoding with --set data.encoding=NAME"),
    ],
)
def test_what_is_wrong_is_called_as_it_was_typed(
    line: str, told: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line, monkeypatch) == 2
    *before, error = capsys.readouterr().err.splitlines()
    assert told in error
    assert all(line.startswith("regard: learning the tokenizer ") for line in before)


def test_a_mistake_leaves_no_run_that_stands_in_the_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("clm a.txt -o run --steps 1 --tokenizer gone.json", monkeypatch) == 2
    assert run(f"clm a.txt -o run --steps 2 {SMALL}", monkeypatch) == 0
    assert run(f"clm a.txt -o run --steps 3 {SMALL}", monkeypatch) == 2


def test_ctrl_c_says_how_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from regard.cli.train import TrainingBar

    def stop(self: object, report: dict[str, object]) -> None:
        if report["step"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingBar, "report", stop)
    line = f"clm a.txt -o run --steps 3 --set save_every=1 {SMALL}"
    assert run(line, monkeypatch) == 130
    assert capsys.readouterr().err.splitlines()[-1] == (
        "regard: stopped; the same command goes on from step 1, the last checkpoint"
    )


def test_printed_settings_are_a_config(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("clm a.txt --set optimiser.lr=1e-5 --set model.d_model=8 --print-settings", monkeypatch) == 0
    (folder / "all.toml").write_text(capsys.readouterr().out)
    wanted = read_settings("clm", data={"train": ["a.txt"]}, model={"d_model": 8}, optimiser={"lr": 1e-5})
    assert read_settings("clm", file=folder / "all.toml") == wanted


def test_a_run_is_drawn_in_the_terminal_and_in_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run").mkdir()
    lines = [{"step": step, "loss": 4.0 / step, "lr": 0.1} for step in (1, 2, 4)]
    (folder / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("plot run", monkeypatch) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[1].startswith("        4 |.")
    assert drawn[12].startswith("        1 |")
    assert drawn[12].rstrip().endswith(".")
    assert run("plot run -o a.svg", monkeypatch) == 0
    assert (folder / "a.svg").read_text().startswith("<?xml")
    assert run("plot run -o a.gif", monkeypatch) == 2


def test_a_model_of_short_texts_is_trained_further_on_such(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"clm a.txt -o run --steps 1 {SMALL}", monkeypatch) == 0
    assert read_settings("clm", start="run/model").batch.length == 12
    assert run("clm a.txt -o more --from run/model --steps 1 --set batch.rows=2", monkeypatch) == 0
    capsys.readouterr()
    assert run("clm a.txt -o other --from run/model --set batch.length=13", monkeypatch) == 2
    assert "batch.length must be at most 12, the positions of run/model; got 13" in capsys.readouterr().err


def test_texts_that_are_learned_and_scored_on_are_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "some.txt").write_text("the cat sat\nthe dog\nthe rug\nthe rug\n")
    (folder / "other.txt").write_text("the rug\nthe mat\nthe rug\nthe dog\n")
    assert run(f"mlm some.txt --valid other.txt -o run --steps 1 {SMALL}", monkeypatch) == 0
    assert "3 of 4 texts to score on are among those to learn from" in capsys.readouterr().err
