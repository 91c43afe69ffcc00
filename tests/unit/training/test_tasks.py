"""Every objective: its loss by hand, what it may not see, packing, and that it can be learned."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.training import NOT_A_TARGET
from regard.training.tasks import Distillation, NextToken, Task
from regard.training.tasks._task import run
from tolerances import FP64, assert_close_to_largest
from unit.training.small import batch, loss, network, rows, tasks, tokenizer

OBJECTIVES = list(tasks())
PLAIN = [name for name, task in tasks().items() if list(task.weights) == ["loss"]]
"""Those whose loss is the cross-entropy of what the network gives."""


def doubled(name: str) -> Task:
    """The task in double precision, with what is no part of it."""
    task = tasks()[name].double()
    if isinstance(task, Distillation):
        task.teacher.double()
    return task


@pytest.fixture(params=OBJECTIVES)
def task(request: pytest.FixtureRequest) -> Task:
    return doubled(request.param)


def gradient(task: Task) -> torch.Tensor:
    """Of all parameters in one: some, such as the bias of keys, have nothing but rounding."""
    found = [each.grad for each in task.parameters() if each.grad is not None]
    return torch.cat([each.flatten() for each in found])


@pytest.mark.parametrize("task", PLAIN, indirect=True)
def test_the_loss_is_the_sum_of_minus_the_log_of_what_the_network_gives_the_targets(task: Task) -> None:
    task.eval()  # without smoothing
    made = batch(task)
    logits = run(task.network, made).logits
    assert logits is not None
    rows_of = logits.reshape(-1, logits.shape[-1]).tolist()
    wanted, right = 0.0, 0
    for scores, label in zip(rows_of, made.labels.flatten().tolist(), strict=True):
        if label != NOT_A_TARGET:
            wanted += math.log(sum(map(math.exp, scores))) - scores[label]
            right += max(range(len(scores)), key=scores.__getitem__) == label
    with torch.no_grad():
        sums = task(made)
    assert_close_to_largest(sums["loss"], wanted, FP64)
    assert int(sums["right"]) == right
    found = task.scores(
        {"targets.loss": made.counts["loss"]} | {name: value.tolist() for name, value in sums.items()}
    )
    assert found["loss"] == pytest.approx(wanted / made.counts["loss"])
    assert found["accuracy"] == right / made.counts["loss"]
    assert found.get("perplexity", math.exp(found["loss"])) == pytest.approx(math.exp(found["loss"]))


def test_the_targets_of_a_text_are_its_own_tokens() -> None:
    found = tasks()
    clm, seq2seq = batch(found["clm"]), batch(found["seq2seq"])
    assert (clm.source.ids[0].tolist()[:2], clm.labels[0].tolist()[:3]) == ([12, 6], [6, 7, NOT_A_TARGET])
    assert seq2seq.labels[0].tolist()[:7] == [2, 5, 13, 8, 12, 7, 3]
    assert seq2seq.target is not None
    assert seq2seq.target.ids[0].tolist()[:7] == [0, 2, 5, 13, 8, 12, 7]


def test_no_target_is_seen_before_it_is_predicted() -> None:
    """The gradient of each loss with respect to the embeddings of its target and all later tokens is 0."""
    task = NextToken(network("gpt2").double(), tokenizer())
    made = batch(task)
    table = task.network.stack("decoder").embeddings.tokens
    seen: list[torch.Tensor] = []

    def keep(module: object, inputs: object, output: torch.Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    handle = table.register_forward_hook(keep)
    logits = run(task.network, made).logits
    handle.remove()
    assert logits is not None
    for place in range(made.labels.shape[1]):
        seen[0].grad = None
        logits[:, place].logsumexp(dim=-1).sum().backward(retain_graph=True)
        reached = seen[0].grad.abs().sum(dim=(0, 2))
        assert float(reached[place + 1 :].sum()) == 0.0
        assert float(reached[place]) > 0.0


def test_several_texts_in_a_row_are_as_each_alone(task: Task) -> None:
    """Packed = separate: the loss and its gradient."""
    found = []
    one_each = rows(task)
    if task.forms == ("rows",):
        pytest.skip("this objective has a row for each text")
    for chosen in (one_each, [[*one_each[0], *one_each[3]], [*one_each[1], *one_each[2]]]):
        task.zero_grad()
        masks = getattr(task, "like", task)
        if hasattr(masks, "masking"):  # the masks are drawn text by text, and must be the same
            masks.masking = lambda tokens, words, draw: (
                np.where(words == 1, 4, tokens),
                np.where(words == 1, tokens, NOT_A_TARGET),
            )
        made = batch(task, chosen)
        for chance in made.more.values():
            chance.fill_(0.4)
        value = loss(task, made)
        value.backward()
        found.append((value.detach(), gradient(task)))
    for packed, alone in zip(*found, strict=True):
        assert_close_to_largest(packed, alone, FP64)


def test_one_batch_can_be_learned_by_heart(task: Task) -> None:
    task.float()
    if isinstance(task, Distillation):
        task.teacher.float()
    made = batch(task)
    targets = next(made.counts[name] for name in ("loss", "language", "discriminator") if name in made.counts)
    optimiser = torch.optim.Adam(task.parameters(), lr=0.01, fused=True)

    def learn(steps: int) -> int:
        """How many targets are right after so many steps more."""
        task.train()
        for _ in range(steps):
            optimiser.zero_grad()
            loss(task, made).backward()
            optimiser.step()
        task.eval()
        return int(task(made)["right"])

    assert any(learn(20) == targets for _ in range(8))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_text_that_is_too_long_is_cut_or_split_to_the_length(name: str) -> None:
    task = tasks()[name]
    [example] = rows(task)[3]
    longest = max(len(example[column]) for column in task.sized)
    short = task.cut(example, 5)
    assert max(len(short[column]) for column in task.sized) == 5 + task.beyond < longest
    assert all(len(short[column]) == 5 for column in ("types", "labels") if column in task.columns)
    if task.longer == "split":
        parts = list(task.split(example, 5))
        assert all(len(part["tokens"]) <= 5 + task.beyond for part in parts)
        kept = [id for part in parts for id in part["tokens"] if id not in (2, 3)]
        assert set(kept) == {id for id in example["tokens"].tolist() if id not in (2, 3)}
