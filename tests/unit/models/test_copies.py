"""A network can be copied, pickled and saved whole."""

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch

import regard
from regard.blocks import ACTIVATIONS
from regard.models import FAMILIES, Network
from unit.models.folders import call, network, write

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 0]])


def assert_same(ours: Network, again: Network) -> None:
    assert again is not ours
    assert dict(again.prefixes) == dict(ours.prefixes)
    assert again.config == ours.config
    wanted = call(ours, IDS, decoder_token_ids=IDS) if len(ours.prefixes) == 2 else call(ours, IDS)
    got = call(again, IDS, decoder_token_ids=IDS) if len(ours.prefixes) == 2 else call(again, IDS)
    assert torch.equal(got.last_hidden_state, wanted.last_hidden_state)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_copy_and_a_pickle(family: str) -> None:
    ours = network(family)
    again = copy.deepcopy(ours)
    assert_same(ours, again)
    before = next(ours.parameters()).clone()
    with torch.no_grad():
        next(again.parameters()).add_(1.0)
    assert torch.equal(next(ours.parameters()), before)
    assert_same(ours, pickle.loads(pickle.dumps(ours)))


def test_every_activation_can_be_pickled() -> None:
    for activation in sorted(ACTIVATIONS):
        ours = network("bert", activation=activation)
        assert_same(ours, pickle.loads(pickle.dumps(ours)))


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_what_was_loaded(family: str, tmp_path: Path) -> None:
    folder = write(tmp_path, family)
    ours = regard.load(folder).network
    assert_same(ours, copy.deepcopy(ours))
    saved = io.BytesIO()
    torch.save(ours, saved)
    saved.seek(0)
    assert_same(ours, torch.load(saved, weights_only=False))
