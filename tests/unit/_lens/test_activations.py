"""Activations of transformers' models by rows: the same numbers, and nothing left behind."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.activations import NewGELUActivation

from lens_models import VOCAB, gpt2
from regard._lens import ACTIVATED_AT_ONCE, is_activation, lens_network
from regard.core import Taps

LONG = 3 * ACTIVATED_AT_ONCE + 5


@pytest.fixture
def model() -> Any:
    return gpt2(activation_function="gelu_new", n_positions=LONG).transformer


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the activations were given, call by call."""
    seen: list[int] = []
    own = NewGELUActivation.forward

    def forward(self: NewGELUActivation, x: Tensor) -> Tensor:
        seen.append(x.shape[:-1].numel())
        return own(self, x)

    monkeypatch.setattr(NewGELUActivation, "forward", forward)
    return seen


def _ids(length: int) -> Tensor:
    return torch.randint(VOCAB, (1, length), generator=torch.Generator().manual_seed(0))


def test_long_texts_go_by_rows_to_the_same_numbers(model: Any, rows: list[int]) -> None:
    network, ids = lens_network(model), _ids(LONG)
    with torch.no_grad():
        plain = model(ids).last_hidden_state
        rows.clear()
        seen = network(ids, logits=False).last_hidden_state
    assert rows[:4] == [ACTIVATED_AT_ONCE] * 3 + [5]
    assert sum(rows) == len(network.hf_model.h) * LONG
    assert torch.equal(seen, plain)


def test_short_texts_and_gradients_go_at_once(model: Any, rows: list[int]) -> None:
    network = lens_network(model)
    rows.clear()
    with torch.no_grad():
        network(_ids(ACTIVATED_AT_ONCE), logits=False)
    assert set(rows) == {ACTIVATED_AT_ONCE}
    rows.clear()
    network(_ids(LONG), logits=False).last_hidden_state.sum().backward()
    assert set(rows) == {LONG}
    assert all(each.grad is not None for each in model.h.parameters())


def test_nothing_stays_in_the_model(model: Any, rows: list[int]) -> None:
    network = lens_network(model)
    activations = [each for each in model.modules() if is_activation(each)]
    assert activations

    def breaks(value: Tensor) -> None:
        assert all("forward" in vars(each) for each in activations)
        raise KeyError

    for taps in (None, Taps({"layers.1.output": breaks})):
        try:
            with torch.no_grad():
                network(_ids(LONG), logits=False, taps=taps)
        except KeyError:
            assert taps is not None
        assert not any("forward" in vars(each) for each in activations)


def test_a_forward_of_somebody_elses_stays(model: Any, rows: list[int]) -> None:
    network = lens_network(model)
    own = model.h[0].mlp.act.forward
    model.h[0].mlp.act.forward = lambda x: own(x) * 1.0
    mine = vars(model.h[0].mlp.act)["forward"]
    rows.clear()
    with torch.no_grad():
        network(_ids(LONG), logits=False)
    assert rows[0] == LONG
    assert vars(model.h[0].mlp.act)["forward"] is mine


def test_passes_of_other_threads(model: Any) -> None:
    network, ids = lens_network(model), _ids(LONG)

    def one(number: int) -> Tensor:
        with torch.no_grad():
            run = network if number % 2 else model
            return run(ids).last_hidden_state  # type: ignore[no-any-return]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(one, range(16)))
    assert all(torch.equal(each, found[0]) for each in found)
    assert not any("forward" in vars(each) for each in model.modules())
