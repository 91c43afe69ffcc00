"""Objectives of two networks: ELECTRA's generator and discriminator, a teacher and its student."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import InputError
from regard.models import load_checkpoint
from regard.training import NOT_A_TARGET, train
from regard.training.tasks import Distillation
from regard.training.tasks._distil import student_of
from regard.training.tasks._electra import drawn, generator_of
from regard.training.tasks._task import run
from tolerances import FP64, assert_close_to_largest
from unit.training.small import batch, electra, network, tasks
from unit.training.test_runs import settings_of


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(each / temperature) for each in row]
    return [each / sum(powers) for each in powers]


def logits_of(found: Any, made: Any) -> Any:
    logits = run(found, made).logits
    assert logits is not None
    return logits.tolist()


def test_the_losses_of_electra_are_those_of_its_formula() -> None:
    task = electra().double().eval()
    made = batch(task)
    guesses = logits_of(task.generator, made)
    ids, truth = made.source.ids.clone(), made.source.ids.clone()
    wanted = {"generator": 0.0, "discriminator": 0.0}
    for row, column in (made.labels != NOT_A_TARGET).nonzero().tolist():
        assert int(made.source.ids[row, column]) == 4  # [MASK], and nothing else
        p, true = softmax(guesses[row][column]), int(made.labels[row, column])
        left = float(made.more["chance"][row, column])
        found = next(id for id in range(len(p)) if sum(p[: id + 1]) > left)
        ids[row, column], truth[row, column] = found, true
        wanted["generator"] -= math.log(p[true])
    said = logits_of(task.network, replace(made, source=replace(made.source, ids=ids)))
    for row, column in made.source.is_token.nonzero().tolist():
        sign = 1.0 if ids[row, column] != truth[row, column] else -1.0
        wanted["discriminator"] += math.log1p(math.exp(-sign * said[row][column]))
    with torch.no_grad():
        sums = task(made)
    for name, value in wanted.items():
        assert_close_to_largest(sums[name], value, FP64)
    assert made.counts["discriminator"] == int(made.source.is_token.sum())
    scores = task.scores(
        {name: value.tolist() for name, value in sums.items()}
        | {f"targets.{name}": count for name, count in made.counts.items()}
    )
    assert scores["loss"] == pytest.approx(scores["generator"] + 50 * scores["discriminator"])


def test_a_token_that_is_drawn_right_counts_as_original() -> None:
    task = electra().eval()
    made = batch(task)
    assert int(task(made)["found"][0]) > 0
    certain = torch.full((int((made.labels != NOT_A_TARGET).sum()), 17), -1e4)
    certain.scatter_(1, made.labels[made.labels != NOT_A_TARGET][:, None], 1e4)
    task.generator.readout = lambda state, normed: certain[None]  # type: ignore[method-assign]
    assert int(task(made)["found"][0]) == 0


def test_what_is_drawn_has_the_generators_probabilities_and_no_state() -> None:
    logits = torch.randn(7, dtype=torch.float64)
    chances = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    found = drawn(logits.expand(1000, 7), chances).bincount(minlength=7)
    assert_close_to_largest(found / 1000.0, logits.softmax(dim=0), 2e-3)
    task = electra()
    sums = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        sums.append(task(batch(task)))
    assert all(torch.equal(sums[0][name], sums[1][name]) for name in sums[0])


def test_both_networks_share_their_tables_and_the_generator_lies_beside_the_model(tmp_path: Path) -> None:
    task = electra()
    for name in ("tokens", "positions", "token_types"):
        ours, theirs = (
            getattr(each.stack("encoder").embeddings, name).weight for each in (task.network, task.generator)
        )
        assert ours is theirs
    result = train(settings_of("electra", tmp_path), tmp_path / "run")
    models = [load_checkpoint(folder).network for folder in (result.model, result.model / "generator")]
    assert [each.config.head for each in models] == ["replaced", "masked-lm"]  # type: ignore[attr-defined]
    assert models[1].config.num_heads == 1
    tables = [each.stack("encoder").embeddings.tokens.weight for each in models]  # type: ignore[union-attr]
    assert torch.equal(*tables)
    more: dict[str, Any] = {"start": str(result.model), "model": {}, "tokenizer": {}, "steps": 1}
    train(settings_of("electra", tmp_path, **more), tmp_path / "more")


@pytest.mark.parametrize("name", ["distil", "distil clm"])
def test_the_loss_of_distillation_is_its_formula(name: str) -> None:
    task = tasks()[name].double().eval()
    assert isinstance(task, Distillation)
    made, teacher = batch(task), task.teacher.double()
    ours, theirs = logits_of(task.network, made), logits_of(teacher, made)
    states = [run(each, made).last_hidden_state.tolist() for each in (task.network, teacher)]
    wanted = dict.fromkeys(task.weights, 0.0)
    for row, column in made.source.is_token.nonzero().tolist():
        p, q = softmax(theirs[row][column], 2.0), softmax(ours[row][column], 2.0)
        wanted["distillation"] += 4.0 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        label = int(made.labels[row, column])
        if label != NOT_A_TARGET:
            wanted["language"] -= math.log(softmax(ours[row][column])[label])
        u, v = (each[row][column] for each in states)
        length = math.sqrt(sum(a * a for a in u) * sum(b * b for b in v))
        wanted["cosine"] += 1.0 - sum(a * b for a, b in zip(u, v, strict=True)) / length
    with torch.no_grad():
        sums = task(made)
    assert_close_to_largest(torch.stack([sums[term] for term in wanted]), list(wanted.values()), FP64)
    assert dict(task.weights) == {"distillation": 5.0, "language": 2.0, "cosine": 1.0}


def test_a_student_begins_as_every_second_layer_and_its_teacher_stays_out_of_the_run() -> None:
    task = tasks()["distil"]
    assert isinstance(task, Distillation)
    ours, theirs = (each.stack("encoder") for each in (task.network, task.teacher))
    assert (len(ours.layers), len(theirs.layers)) == (2, 3)
    for mine, other in ((0, 0), (1, 2)):
        for one, two in zip(ours.layers[mine].parameters(), theirs.layers[other].parameters(), strict=True):
            assert torch.equal(one, two)
    assert torch.equal(ours.embeddings.tokens.weight, theirs.embeddings.tokens.weight)
    own = {id(each) for each in task.parameters()}
    assert not own & {id(each) for each in task.teacher.parameters()}
    assert len(task.state_dict()) == len(task.network.state_dict())
    task.train()
    assert not task.teacher.training


def test_a_student_has_the_windows_of_its_layers() -> None:
    teacher = network(
        "gemma2",
        layer_types=("sliding_attention", "full_attention", "full_attention"),
        num_layers=3,
        num_kv_heads=3,
        head_dim=4,
    )
    assert student_of(teacher).config.layer_types == ("sliding_attention", "full_attention")  # type: ignore[attr-defined]


def test_a_teacher_must_have_words_to_say(tmp_path: Path) -> None:
    classified = train(settings_of("classify", tmp_path, steps=1), tmp_path / "classify")
    with pytest.raises(InputError, match=r"task\.teacher must be an encoder or a decoder with a head over"):
        train(settings_of("distil", tmp_path, task={"teacher": str(classified.model)}), tmp_path / "run2")


def test_a_student_is_said_to_be_its_teacher_s(tmp_path: Path) -> None:
    said: list[str] = []
    result = train(settings_of("distil", tmp_path, steps=1), tmp_path / "run", on_message=said.append)
    teacher, card = tmp_path / "teacher", (result.model / "README.md").read_text()
    assert any(each.startswith(f"network: a bert with layers of {teacher}, ") for each in said)
    assert any(each.startswith(f"tokenizer: that of {teacher}, ") for each in said)
    assert f"* Tokenizer: that of {teacher}, " in card


def test_a_generator_is_smaller_but_not_nothing() -> None:
    config: Any = electra().network.config
    made = generator_of(config, 0.01)
    assert (made.num_heads, made.d_model, made.d_embedding) == (1, 4, 8)
    with pytest.raises(InputError, match=r"task\.size must be above 0 and at most 1; got 2"):
        generator_of(config, 2.0)
