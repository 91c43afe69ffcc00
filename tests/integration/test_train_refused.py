"""What a run is refused: one line says which line of which file, or which setting; nothing is lost."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from integration.training_runs import settings_of
from regard.core import memory
from regard.core.errors import CheckpointError, InputError, OutputError, RegardError, TrainingError
from regard.core.files import locked
from regard.text import train_tokenizer, write_tokenizer
from regard.training import train


def refused(settings: Any, folder: Path) -> str:
    """What a run says that is refused: one line."""
    with pytest.raises(RegardError) as raised:
        train(settings, folder)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("content", "changes", "told"),
    [
        ("", {}, "is empty; give a file with texts."),
        (" \n\n", {}, "data.train must hold at least one text of two tokens or more that is not too long;"),
        ("river\n" * 9, {}, "of 9 texts 9 are blank or shorter and 0 longer."),
        ("a bank\n", {"data": {"valid_share": 0.01}}, "data.valid_share, 0.01, sets none of the texts apart"),
        (
            "the river\n",
            {"data": {"valid_share": 0.01, "unit": "file"}},
            "data.valid_share, 0.01, sets nothing apart that is long enough to score on: give more texts, a ",
        ),
        (
            '{"text": "a river"}\n{"text": "\\ud800"}\n',
            {},
            "line 2 of texts.jsonl: column 'text' holds half of a surrogate pair at",
        ),
        ('{"text": "a river"}\n{"words": "x"}\n', {}, "line 2 of texts.jsonl: there is no column 'text'."),
        (
            "a river bank\na\na river by the bank\n",
            {"data": {"longer": "refuse"}, "batch": {"length": 3}},
            "line 3 of texts.txt: has 5 tokens, and batch.length is 3; give a larger length, or set ",
        ),
        ("the river bank\n" * 9, {"batch": {"form": "blocks", "length": 500}}, "batch.length must be below "),
    ],
)
def test_texts(tmp_path: Path, content: str, changes: dict[str, Any], told: str) -> None:
    file = tmp_path / ("texts.jsonl" if content.startswith("{") else "texts.txt")
    file.write_text(content)
    data = {"train": [str(file)], "valid_share": 0.0, **changes.get("data", {})}
    found = refused(settings_of(tmp_path, **{**changes, "data": data}), tmp_path / "run")
    assert told in found.replace(f"{tmp_path}/", "")


def test_a_text_that_the_tokenizer_has_no_token_for(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    write_tokenizer(train_tokenizer(["the river bank"], kind="characters"), tmp_path / "letters")
    (tmp_path / "texts.txt").write_text("the river\nthe b\u00e4nk\nthe bank\n")
    data = {"train": [str(tmp_path / "texts.txt")], "unit": "line", "valid_share": 0.0}
    settings = settings_of(tmp_path, data=data, tokenizer={"path": str(tmp_path / "letters")})
    told = refused(settings, tmp_path / "run")
    assert told.startswith("line 2 of ")
    assert "it has no token for 'ä', and none for what it does not know; give another text, or a" in told


def test_a_text_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes("the caf\u00e9 at the river\n".encode("cp1252") * 9)
    data = {"train": [str(tmp_path / "old.txt")], "unit": "line"}
    own: dict[str, Any] = {"path": None, "kind": "characters"}
    given: dict[str, Any] = {"batch": {"form": "rows", "length": 30}, "steps": 1, "tokenizer": own}
    told = refused(settings_of(tmp_path, data=data, **given), tmp_path / "run")
    assert told.startswith("line 1 of ")
    assert "the line is not UTF-8: byte 7 is 0xe9; name its encoding" in told
    data["encoding"] = "cp1252"
    result = train(settings_of(tmp_path, data=data, **given), tmp_path / "run")
    assert "\u00e9" in (result.model / "tokenizer.json").read_text(encoding="utf-8")


def test_parallel_files_of_unequal_length(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the bank\n" * 5)
    data = {"train_target": [str(tmp_path / "short.txt")]}
    found = refused(settings_of(tmp_path, "seq2seq", data=data, batch={"form": "rows"}), tmp_path / "run")
    assert "text.txt has 47 and " in found
    assert "short.txt has 5; line 6 of " in found


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epochs": 1}, "steps must be None where epochs says how long to train; give one of them."),
        ({"batch": {"rows": 0}}, "batch.rows must be a whole number, at least 1; got 0."),
        ({"batch": {"tokens": 3}}, "batch.tokens must be at least batch.length, 13,"),
        ({"optimiser": {"lr": 0.0}}, "optimiser.lr must be above 0; got 0.0."),
        ({"optimiser": {"warmup": -3}}, "optimiser.warmup must be a whole number, at least 0; got -3."),
        ({"optimiser": {"floor": 2.0}}, "optimiser.floor must be from 0 to 1; got 2.0."),
        ({"optimiser": {"betas": [0.9, 1.0]}}, "optimiser.betas must be from 0 to below 1; got 1.0."),
        ({"seed": -1}, "seed must be a whole number, at least 0; got -1."),
        ({"average": 9}, "average must be at most keep, 2; got 9."),
        (
            {"average": 2, "data": {"valid_share": 0.0}},
            "average must be left out where data.valid_share is 0: it needs texts to score on.",
        ),
        ({"best": "bleu"}, "best must be loss or perplexity or accuracy or bits_per_byte; got 'bleu'."),
        ({"family": "bort"}, "family must be one of bahdanau, bart, bert,"),
        ({"task": {"masked": 0.3}}, "task.masked is not a setting; there are none."),
        (
            {"family": "bert"},
            "model must be a decoder with a head over the vocabulary for clm, such as gpt2.",
        ),
    ],
)
def test_settings(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    assert told in refused(settings_of(tmp_path, **changes), tmp_path / "run")


def test_a_run_goes_on_with_its_own_settings_alone(tmp_path: Path) -> None:
    said: list[str] = []
    out = tmp_path / "run"
    refused(settings_of(tmp_path, batch={"form": "blocks", "length": 500}), out)  # a slip, before any step
    train(settings_of(tmp_path, steps=2), out, on_message=said.append)
    assert f"{out} holds a run that made no checkpoint: beginning anew" in said
    assert "batch.rows is 3 there and 4 here." in refused(
        settings_of(tmp_path, steps=2, batch={"rows": 4}), out
    )
    assert "seed is 0 there and 5 here" in refused(settings_of(tmp_path, steps=2, seed=5), out)
    # These change no parameter.
    train(settings_of(tmp_path, steps=2, keep=7, save_every=1), out)
    assert json.loads((out / "settings.json").read_text())["keep"] == 7


def test_data_that_has_changed_since(tmp_path: Path) -> None:
    settings, said = settings_of(tmp_path, steps=2), list[str]()
    first = train(settings, tmp_path / "run")
    file = tmp_path / "text.txt"
    file.write_text("something else\n")
    for _ in range(2):
        assert train(settings, tmp_path / "run", on_message=said.append) == first
        told = f"{file} is gone or has another date; the run goes on with the texts of then"
        assert said.count(told) == 1
        said.clear()
        file.unlink(missing_ok=True)


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, steps=2)
    assert "must be a new folder, or that of a run; it holds " in refused(settings, tmp_path)
    with pytest.raises(OutputError, match=r"text.txt' cannot be made \(File exists\); choose another."):
        train(settings, tmp_path / "text.txt")
    with pytest.raises(OutputError, match=r"'/proc/run' cannot be made"):  # nobody may write there
        train(settings, "/proc/run")


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run", ".lock"):
        told = refused(settings_of(tmp_path), tmp_path / "run")
    assert "is being written to by another job, process " in told


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    """A file is cut off, gone, or has one bit changed: each is noticed, and the checkpoint before goes on."""
    settings, out, said = settings_of(tmp_path, steps=4, save_every=2), tmp_path / "run", list[str]()
    first = train(settings, out)
    folder = out / "checkpoints" / "step-4"
    names = {path.name for path in folder.iterdir()}
    assert names == {".metadata", "__0_0.distcp", "checksums.json", "state.json"}
    for name in names:
        path = folder / name
        content = path.read_bytes()
        for damage in (b"", None, content.replace(content[-9:], bytes([content[-9] ^ 1]) + content[-8:])):
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            assert train(settings, out, on_message=said.append) == first
            assert re.search(r"step-4 cannot be read \(.+\)\. It is step-4\.damaged now;", said[0]), said
            said.clear()
    shutil.rmtree(folder.with_name("step-2"))
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"step-4 cannot be read \(.+\)\. Remove it to go on from the"):
        train(settings, out)


@pytest.mark.parametrize(
    ("evaluate_every", "told", "kept"),
    [
        (
            99,
            "the loss is nan at step 2, epoch 0, micro-batches 2 to 3; the checkpoint of step 1 stays",
            ["step-1"],
        ),
        (1, "the loss on the texts to score on is nan after step 1; there is no checkpoint yet", []),
    ],
    ids=["loss", "score"],
)
def test_a_loss_that_is_no_number(tmp_path: Path, evaluate_every: int, told: str, kept: list[str]) -> None:
    optimiser = {"lr": 1e30, "warmup": 0, "schedule": "constant"}
    settings = settings_of(tmp_path, optimiser=optimiser, save_every=1, evaluate_every=evaluate_every)
    with pytest.raises(TrainingError, match=told):
        train(settings, tmp_path / "run")
    assert [each.name for each in tmp_path.glob("run/checkpoints/*")] == kept
    assert not (tmp_path / "run" / "model").exists()


def test_memory_that_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(tmp_path, model={"d_model": 2**30, "num_heads": 1, "num_layers": 1})
    with pytest.raises(InputError, match=r"a network of 4,611,.* parameters needs .* GiB of memory, and"):
        train(settings, tmp_path / "run")
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)  # as where nobody says
    with pytest.raises(
        TrainingError, match=r"memory ran out; what was saved stays\. Go on with shard=true on "
    ):
        train(settings, tmp_path / "run")
