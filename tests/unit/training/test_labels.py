"""Where labels stand, and their scores, against values by hand and scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from regard.text import Tokenizer
from regard.training import NOT_A_TARGET
from regard.training.tasks import WordTags
from regard.training.tasks._classify import class_scores, confusion
from regard.training.tasks._tag import spans
from regard.training.tasks._task import precision_recall_f1
from unit.training.small import TAGS, batch, network, rows, tasks

NONE, B, IN, P = "O", "B-LOC", "I-LOC", "I-PER"


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ([NONE, NONE], set()),
        ([B, IN, NONE, B], {("LOC", 0, 2), ("LOC", 3, 4)}),
        ([B, B], {("LOC", 0, 1), ("LOC", 1, 2)}),
        ([IN, IN], {("LOC", 0, 2)}),
        ([NONE, IN, P, IN], {("LOC", 1, 2), ("PER", 2, 3), ("LOC", 3, 4)}),
        (
            ["S-LOC", "S-LOC", "B-LOC", "E-LOC", IN],
            {("LOC", 0, 1), ("LOC", 1, 2), ("LOC", 2, 4), ("LOC", 4, 5)},
        ),
    ],
)
def test_spans_are_those_of_conlleval(tags: list[str], wanted: set[Any]) -> None:
    assert spans(tags) == wanted


def test_the_scores_of_classes_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, confusion_matrix, f1_score  # takes seconds

    draw = np.random.default_rng(3)
    wanted, guessed = draw.integers(0, 4, 50), draw.integers(0, 4, 50)  # of five labels the last is nobody's
    table = confusion(torch.from_numpy(wanted), torch.from_numpy(guessed), 5)
    assert table[:4, :4].tolist() == confusion_matrix(wanted, guessed).tolist()
    right = int((wanted == guessed).sum())
    scores = class_scores({"loss": 1.0, "right": right, "targets.loss": 50, "confusion": table.tolist()})
    assert scores["accuracy"] == pytest.approx(accuracy_score(wanted, guessed))
    assert scores["macro_f1"] == pytest.approx(f1_score(wanted, guessed, average="macro"))


def test_what_is_found_is_scored_and_nothing_is_no_score() -> None:
    assert precision_recall_f1([4, 2, 1]) == {"precision": 0.5, "recall": 0.25, "f1": pytest.approx(1 / 3)}
    assert precision_recall_f1([0, 0, 0]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_a_tag_stands_on_the_first_piece_of_its_word() -> None:
    task = tasks()["tag"]
    [example] = rows(task)[2]  # fish ##ing by the river
    assert example["tokens"].tolist() == [2, 14, 15, 11, 12, 6, 3]
    none = NOT_A_TARGET
    assert example["labels"].tolist() == [none, 0, none, 1, 2, 0, none]


def test_pieces_may_begin_with_the_blank_before_their_word() -> None:
    backend = Backend(models.BPE({"a": 0, "b": 1, "Ġ": 2, "Ġb": 3, "c": 4}, [("Ġ", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found = network("bert", head="token", labels=tuple(TAGS), num_labels=3)
    task = WordTags(found, Tokenizer.from_str(backend.to_str()))
    [example] = task.encode([(["ab", "bc", "c"], TAGS)])
    none = NOT_A_TARGET
    assert example["tokens"] == [0, 1, 3, 4, 2, 4]  # a b Ġb c Ġ c
    assert example["labels"] == [0, none, 1, none, none, 2]


@pytest.mark.parametrize(
    ("replaced", "wanted"),
    # The tags are BIO, BIOBI, BIOB and BIOBIOBI. Without O a span runs up to the next B, or the text's end.
    [([2], [[8, 8, 3]]), ([0, 2], [[8, 4, 0]])],
)
def test_spans_are_counted_text_by_text(replaced: list[int], wanted: list[list[int]]) -> None:
    task = tasks()["tag"].eval()
    assert isinstance(task, WordTags)
    one_each = rows(task)
    for chosen in (one_each, [[*one_each[0], *one_each[3]], [*one_each[1], *one_each[2]]]):
        made = batch(task, chosen)
        guessed = made.labels.clone()
        guessed[torch.isin(guessed, torch.tensor(replaced))] = 1
        assert task._spans(made, guessed).tolist() == wanted


def test_the_longer_text_of_a_pair_is_cut_first() -> None:
    task = tasks()["pairs"]
    [example] = task.encode([("the bank", "a river of fish by the bank", "both")])
    assert example["types"] == [0] * 4 + [1] * 8
    assert task.cut(example, 9)["tokens"] == [2, 12, 7, 3, 5, 6, 8, 14, 3]
    assert task.cut(example, 6)["tokens"] == [2, 12, 7, 3, 5, 3]
    made = batch(task)
    assert made.source.types is not None
    assert made.source.types[0].tolist()[:9] == [0] * 5 + [1] * 4
