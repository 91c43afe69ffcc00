"""The mean cosine between the contextual embeddings of a model and of a changed one."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import InputError
from regard.models import Loaded, load_checkpoint
from regard.pruning import prune
from regard.tracing import Likeness
from tolerances import FP64
from unit.models.folders import write, write_tokenizer

TEXTS = ["w1 w2 w3 w4 w5", "w7 w9 w2"]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("full")
    write(folder, "bert")
    write_tokenizer(folder, 31)
    return load_checkpoint(folder, dtype=torch.float64)


def state(loaded: Loaded, text: str) -> Any:
    token_ids = torch.tensor([loaded.require_tokenizer().encode(text).token_ids])
    with torch.no_grad():
        return loaded.network(token_ids).last_hidden_state[0].tolist()


def cosine(a: list[float], b: list[float]) -> float:
    def product(x: list[float], y: list[float]) -> float:
        return sum(one * other for one, other in zip(x, y, strict=True))

    return product(a, b) / (product(a, a) * product(b, b)) ** 0.5


def test_against_a_loop(full: Loaded) -> None:
    likeness = Likeness(full, TEXTS)
    assert likeness(full) == pytest.approx(1, abs=FP64)
    smaller = prune(full, {0: [1], 1: [0, 2]})
    means = []
    for text in TEXTS:
        pairs = list(zip(state(full, text), state(smaller, text), strict=True))
        means.append(sum(cosine(*pair) for pair in pairs) / len(pairs))
    assert likeness(smaller) == pytest.approx(sum(means) / len(means), abs=FP64)
    assert likeness(smaller) < 0.999


def test_the_loss_of_each_text(full: Loaded) -> None:
    likeness = Likeness(full, TEXTS)
    smaller = prune(full, {0: [1]})
    losses = []
    for index, trace in enumerate(likeness.traces):
        with torch.no_grad():
            output = smaller.network(torch.tensor([trace.token_ids]))
        losses.append(float(likeness.loss(output, index)))
    assert 1 - sum(losses) / len(losses) == pytest.approx(likeness(smaller), abs=FP64)
    assert losses[0] != pytest.approx(losses[1])


@pytest.mark.parametrize("texts", [[], "w1 w2"])
def test_texts_are_a_list(full: Loaded, texts: Any) -> None:
    with pytest.raises(InputError, match="texts must be a list of at least one text"):
        Likeness(full, texts)


def test_two_stacks_are_refused(tmp_path: Path) -> None:
    both = load_checkpoint(write(tmp_path, "t5"))
    with pytest.raises(InputError, match=r"has an encoder and a decoder.*a metric of your own"):
        Likeness(both, TEXTS)
