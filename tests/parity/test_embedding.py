"""Embedding layers of every family, as the engines compute them, against transformers."""

import pytest
import torch

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, UNDER_TEST
from parity.harness import run_theirs
from regard.embedding._engine import NetworkEngine, stack_of
from regard.embedding._post_norm import PostNormEngine
from regard.models import Network
from tolerances import PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")


def _compare(engine: NetworkEngine | PostNormEngine, ids: torch.Tensor, hidden: list[torch.Tensor]) -> None:
    found = engine.hidden(ids.flatten(), [(ids.shape[0], ids.shape[1])])
    for ours, theirs in zip(found, hidden[1:], strict=True):
        assert_close_to_largest(ours, theirs.flatten(0, 1), PARITY_FP32)


def _depth(network: Network) -> int:
    return network.depth(stack_of(network))


@pytest.mark.parametrize("name", UNDER_TEST)
def test_every_layer_of_a_loaded_network(workshop: Workshop, name: str) -> None:
    saved, batch = workshop.saved(name), ENTRIES[name].inputs("base").all()["plain"]
    network = workshop.network(name)
    hidden = run_theirs(saved, batch, gradients=False).hidden[stack_of(network)]
    layers = range(1, _depth(network) + 1)
    with torch.no_grad():
        _compare(NetworkEngine(network, layers), batch.token_ids, hidden)
        if PostNormEngine.takes(network):
            _compare(PostNormEngine(network, layers), batch.token_ids, hidden)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_every_layer_through_the_lens(workshop: Workshop, name: str) -> None:
    saved, batch = workshop.saved(name), ENTRIES[name].inputs("base").all()["plain"]
    network = regard.lens(saved.model).network
    hidden = run_theirs(saved, batch, gradients=False).hidden[stack_of(network)]
    with torch.no_grad():
        _compare(NetworkEngine(network, range(1, _depth(network) + 1)), batch.token_ids, hidden)


def test_the_encoders_of_berts_kind_have_folded_weights(workshop: Workshop) -> None:
    taken = {name for name in UNDER_TEST if PostNormEngine.takes(workshop.network(name))}
    assert {"bert", "distilbert", "roberta", "electra"} <= {ENTRIES[name].name for name in taken}
    assert not {"mpnet", "deberta", "gpt2", "llama", "t5", "bart"} & {ENTRIES[name].name for name in taken}
