"""`regard tokenizer train`: what it writes and says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli._app import app
from regard.core.errors import InputError, OutputError
from regard.text import Tokenizer


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["tokenizer", "train", *map(str, words)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    rows = [{"en": "the river bank", "de": "das Ufer"}, {"en": "a bank", "de": "ein Ufer"}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_it_learns_from_columns(data: Path) -> None:
    out = data.parent / "tokenizer"
    done = run(
        data, "-o", out, "--text", "en", "--text", "de", "--kind", "wordpiece", "--size", 90, "--lowercase"
    )
    assert done.exit_code == 0, done.output
    tokenizer = Tokenizer.from_folder(out, tokenizer_class="BertTokenizer")
    assert tokenizer is not None
    assert f"{tokenizer.vocab_size:,} tokens\n{out}\n" in done.stdout
    assert [token.text for token in tokenizer.encode("BANK Ufer").tokens] == [
        "[CLS]",
        "bank",
        "ufer",
        "[SEP]",
    ]
    done = run(data, "-o", out / "one.json", "--text", "en", "--special", "<x>", "--json")
    assert json.loads(done.stdout)["path"] == str(out / "one.json")
    assert Tokenizer.from_str((out / "one.json").read_text("utf-8")).id_of("<x>") == 1
    before = {path: path.read_bytes() for path in out.iterdir()}
    for there in (out, out / "one.json"):  # which a model may have been trained with
        error = run(data, "-o", there, "--text", "en", "--size", 300).exception
        assert isinstance(error, InputError)
        assert str(error).endswith("exists already; choose another file.")
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--kind", "word"), "--kind must be one of .* Did you mean 'wordpiece'"),
        (("--text", "en", "--size", "9"), "--size must be at least 257"),
        ((), "has no column 'text'; it has 'en', 'de'"),
        (("--unit", "page"), "--unit must be one of line, paragraph, file"),
        (("-o", "none/there"), "--output must be in a folder that exists; got 'none/there'"),
    ],
)
def test_it_says_what_is_wrong(data: Path, words: tuple[str, ...], told: str) -> None:
    done = run(data, "-o", data.parent / "out", "--text", "en", *words) if words else run(data, "-o", "out")
    assert isinstance(done.exception, InputError)
    with pytest.raises(InputError, match=told):
        raise done.exception


def test_where_it_cannot_be_written(data: Path) -> None:
    done = run(data, "-o", data, "--text", "en")
    assert isinstance(done.exception, OutputError)
    assert data.read_text().startswith("{")


def test_csv_of_spark_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('1;"a \\"river\\" bank"\n2;"say \\"; \\""\n')
    words = ("--text", 2, "--kind", "characters", "--no-header", "--escape", "\\")
    done = run(path, "-o", tmp_path / "out", *words, "--delimiter", ";")
    assert done.exit_code == 0, done.output
    learned = Tokenizer.from_folder(tmp_path / "out", tokenizer_class="BertTokenizer")
    assert learned is not None
    found = {learned.token_of(id) for id in range(learned.vocab_size)}
    assert found == set('a river" bank say;\n')
    path.write_text("1\ttext\n2\tmore\n")
    assert run(path, "-o", tmp_path / "tabs", *words, "--delimiter", r"\t").exit_code == 0
    done = run(path, "-o", tmp_path / "none", *words, "--delimiter", "ab")
    assert str(done.exception) == "--delimiter must be one character, no quote or line end; got 'ab'."
