"""Scores of checkpoints on files; `test_runs.py` compares them with those of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from regard.cli._app import app
from regard.core.errors import InputError, RegardError
from regard.models import load_checkpoint, write_checkpoint
from regard.training import score, train
from regard.training.tasks import NextToken
from regard.training.tasks._task import run
from unit.training.small import batch, network, tokenizer
from unit.training.test_runs import settings_of


def test_a_checkpoint_is_scored_as_what_its_head_is_for(tmp_path: Path) -> None:
    folder = write_checkpoint(network("gpt2"), tmp_path / "gpt2", tokenizer=tokenizer(ends=False))
    data = tmp_path / "texts.jsonl"
    data.write_text('{"text": "the river bank"}\n{"text": "a loan of the bank"}\n')
    found = score(folder, [data], changes=["batch.form=rows"])
    assert (found.objective, found.examples) == ("clm", 2)
    task = NextToken(network("gpt2").eval(), tokenizer(ends=False)).eval()
    made = batch(task, [[{"tokens": ids}] for ids in _ids(task, ["the river bank", "a loan of the bank"])])
    logits = run(task.network, made).logits
    assert logits is not None
    rows = zip(
        logits.flatten(0, 1).double().log_softmax(-1).tolist(), made.labels.flatten().tolist(), strict=True
    )
    wanted = [-row[label] for row, label in rows if label >= 0]
    assert found.scores["loss"] == pytest.approx(sum(wanted) / len(wanted), rel=1e-6)
    letters = sum(map(len, ["the river bank", "a loan of the bank"]))
    assert found.scores["bits_per_byte"] == pytest.approx(sum(wanted) / math.log(2) / letters, rel=1e-6)


def test_damaged_weights_have_no_score(tmp_path: Path) -> None:
    made = network("gpt2")
    with torch.no_grad():
        made.stack("decoder").layers[-1].ffn.output.weight[0, 0] = math.nan
    folder = write_checkpoint(made, tmp_path / "gpt2", tokenizer=tokenizer(ends=False))
    (tmp_path / "a.txt").write_text("the river bank\n")
    with pytest.raises(RegardError, match=r"scores that are not finite: the weights of .* are damaged"):
        score(folder, [tmp_path / "a.txt"])


def test_a_file_that_is_not_there_is_noticed_before_the_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a bank\n")
    for data, target in (("gone.txt", ()), ("a.txt", [tmp_path / "gone.txt"])):
        with pytest.raises(InputError, match=r"gone\.txt cannot be read \(No such file or directory\)\."):
            score("no such model", [tmp_path / data], target=target)


def _ids(task: Any, texts: list[str]) -> Any:
    return [np.array(each["tokens"]) for each in task.encode([(text,) for text in texts])]


def test_a_head_that_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    masked = write_checkpoint(network("bert", head="masked-lm"), tmp_path / "bert", tokenizer=tokenizer())
    bare = write_checkpoint(network("bert"), tmp_path / "bare", tokenizer=tokenizer())
    electra = write_checkpoint(
        network("electra", head="replaced"), tmp_path / "electra", tokenizer=tokenizer()
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text("{}")
    data = tmp_path / "texts.txt"
    data.write_text("the river bank\n")
    for model, objective, told in [
        (masked, "classify", "must have a head of kind 'sequence' for classify; .* has 'masked-lm'"),
        (bare, "mlm", "has none. Train one with `regard train mlm --from"),
        (bare, None, "must have a head that can be scored"),
        (electra, None, "must have its generator in a folder of that name"),
        (masked, "mln", "objective must be one of .*; got 'mln'. Did you mean 'mlm'"),
        (tmp_path / "run", None, "must be a run that has a model; it has none yet"),
    ]:
        with pytest.raises(InputError, match=told):
            score(model, [data], objective=objective)
    assert score(masked, [data]).objective == "mlm"


def test_the_command_prints_scores_and_the_confusion(tmp_path: Path) -> None:
    settings = settings_of("classify", tmp_path)
    result = train(settings, tmp_path / "run")
    words = ["eval", str(tmp_path / "run"), settings.data.train[0]]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["scores"] == result.scores
    assert found["labels"] == ["both", "money", "water"]
    assert sum(map(sum, found["confusion"])) == found["examples"] == 12
    assert [sum(row) for row in found["confusion"]] == [3, 3, 6]
    shown = CliRunner().invoke(app, words).stdout
    assert "as classify: 12 texts, 90 tokens" in shown
    assert f"accuracy  {result.scores['accuracy']:.4f}" in shown
    assert shown.split("taken for (column):\n")[1].split()[:3] == ["both", "money", "water"]
    model = load_checkpoint(result.model)
    told: list[tuple[int, int]] = []
    again = score(result.model, settings.data.train, on_progress=lambda *each: told.append(each))
    assert again.scores == result.scores
    assert (told[-1], again.tokens, len(told)) == ((90, 90), 90, 6)  # a call a batch
    plain = write_checkpoint(model.network, tmp_path / "copy", tokenizer=model.tokenizer)
    assert score(plain, settings.data.train).scores["accuracy"] == result.scores["accuracy"]


def test_the_command_prints_each_kind_of_span(tmp_path: Path) -> None:
    settings = settings_of("tag", tmp_path, steps=1)
    train(settings, tmp_path / "run")
    shown = CliRunner().invoke(app, ["eval", str(tmp_path / "run"), settings.data.train[0]]).stdout
    head, row = shown.split("Of each kind of span:\n")[1].splitlines()[:2]
    assert head.split() == ["precision", "recall", "f1", "spans"]
    assert row.split()[0] == "PLACE"
    assert row.split()[-1] == "24"


@pytest.mark.parametrize("name", ["mlm", "electra", "distil", "clm"])
def test_scores_do_not_depend_on_how_texts_are_put_together(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path, steps=1)
    place = train(settings, tmp_path / "run").folder
    texts = Path(settings.data.train[0])
    turned = tmp_path / "turned.jsonl"
    turned.write_text("".join(reversed(texts.read_text().splitlines(keepends=True))))
    ways = [(texts, ["batch.form=rows", f"batch.rows={rows}"]) for rows in (1, 2, 5)]
    ways += [(texts, ["batch.form=packed"]), (texts, ["batch.form=rows", "seed=7"])]
    ways += [(turned, ["batch.form=rows"])]
    scores = [dict(score(place, [data], changes=changes).scores) for data, changes in ways]
    for found in scores:
        assert found == pytest.approx(scores[0], rel=1e-5, abs=1e-6)
