"""Engines against the networks that they stand for."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard import InputError
from regard.blocks import RMSNorm
from regard.core import Taps
from regard.embedding._engine import Engine, NetworkEngine
from regard.embedding._post_norm import PostNormEngine
from regard.models import Transformer, load_checkpoint
from tolerances import FP64, PARITY_FP32, assert_close_to_largest
from unit.models.tiny import D_MODEL, IDS, TARGET, both, decoder, encoder


def _states(network: Transformer, ids: Tensor) -> list[Tensor]:
    """Embedding layers 0..L of the stack that embeds, seen by taps of a whole pass."""
    prefix = "encoder." if len(network.prefixes) == 2 else ""
    kind = "encoder" if "encoder" in network.prefixes else "decoder"
    depth = network.depth(kind)  # type: ignore[arg-type]
    names = ["embeddings.tokens", *(f"layers.{layer}.output" for layer in range(depth - 1)), "output"]
    seen: dict[str, Tensor] = {}
    taps = Taps({prefix + name: lambda x, name=name: seen.__setitem__(name, x) for name in names})
    target = TARGET[: len(ids)] if len(network.prefixes) == 2 else None
    network(ids, decoder_token_ids=target, taps=taps)
    return [seen[name] for name in names]


@pytest.mark.parametrize("make", [encoder, decoder, both])
def test_a_networks_own_pass_at_every_layer(make: Callable[[], Transformer]) -> None:
    network = make()
    states = _states(network, IDS)
    engine = NetworkEngine(network, range(len(states)))
    for ours, theirs in zip(engine.hidden(IDS.flatten(), [IDS.shape]), states, strict=True):  # type: ignore[list-item]
        assert_close_to_largest(ours, theirs.flatten(0, 1), FP64)


@pytest.mark.parametrize("make", [encoder, decoder, both])
def test_the_pass_ends_at_the_highest_layer(make: Callable[[], Transformer]) -> None:
    network = make()
    last = network.stack("encoder" if "encoder" in network.prefixes else "decoder").layers[-1]
    last.register_forward_pre_hook(lambda *_: pytest.fail("the last layer ran"))
    NetworkEngine(network, [0, 1]).hidden(IDS.flatten(), [IDS.shape])  # type: ignore[list-item]


def _mixed(engine: Engine, network: Transformer) -> None:
    """Rows of three lengths in one call, at all layers, against each row by itself."""
    shape = [(2, 7), (3, 5), (1, 2)]
    ids = torch.randint(1, network.config.vocab_size, (sum(rows * length for rows, length in shape),))
    ours = engine.hidden(ids, shape)
    start = 0
    for rows, length in shape:
        for _ in range(rows):
            alone = _states(network, ids[None, start : start + length])
            for layer, state in enumerate(alone):
                assert_close_to_largest(ours[layer][start : start + length], state[0], PARITY_FP32)
            start += length


@pytest.mark.parametrize("kept", [None, [2]])
def test_folded_weights_give_what_the_network_gives(kept: list[int] | None) -> None:
    network = encoder().float()
    if kept:
        network.stack("encoder").layers[0].attention.keep_heads(kept)  # type: ignore[union-attr, operator]
    assert PostNormEngine.takes(network)
    _mixed(PostNormEngine(network, range(3)), network)


def test_a_later_call_does_not_write_over_what_an_earlier_one_gave() -> None:
    network = encoder().float()
    engine = PostNormEngine(network, range(3))
    given = engine.hidden(IDS.flatten(), [(2, 7)])
    before = [each.clone() for each in given]
    engine.hidden(IDS.flip(1).flatten(), [(2, 7)])
    assert all(torch.equal(now, then) for now, then in zip(given, before, strict=True))


def test_the_default_model_in_folded_weights() -> None:
    network = load_checkpoint().network
    assert isinstance(network, Transformer)
    with torch.no_grad():
        _mixed(PostNormEngine(network, range(7)), network)


def test_folded_weights_in_bfloat16() -> None:
    network = load_checkpoint().network
    assert isinstance(network, Transformer)
    narrow = copy.deepcopy(network).bfloat16()
    assert PostNormEngine.takes(narrow)
    ids = torch.randint(999, 30_000, (5 * 7 + 3,), generator=torch.Generator().manual_seed(0))
    shape = [(5, 7), (1, 3)]
    found = PostNormEngine(narrow, range(7)).hidden(ids, shape)
    for ours, exact in zip(found, PostNormEngine(network, range(7)).hidden(ids, shape), strict=True):
        assert ours.dtype == torch.bfloat16
        assert torch.cosine_similarity(ours.float(), exact, dim=1).min() > 0.999


def test_folding_leaves_the_network_as_it_was() -> None:
    network = encoder().float()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    PostNormEngine(network, [2]).hidden(IDS.flatten(), [IDS.shape])  # type: ignore[list-item]
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_what_is_not_folded_is_not_taken() -> None:
    assert not PostNormEngine.takes(encoder())  # float64
    assert not PostNormEngine.takes(decoder().float())
    assert not PostNormEngine.takes(both().float())
    assert not PostNormEngine.takes(encoder().float().train())
    without_bias = encoder().float()
    without_bias.stack("encoder").layers[1].ffn.output.bias = None  # type: ignore[union-attr, assignment]
    assert not PostNormEngine.takes(without_bias)
    two_types = encoder().float()
    two_types.stack("encoder").layers[1].bfloat16()
    assert not PostNormEngine.takes(two_types)
    scaled, other = encoder().float(), encoder().float()
    scaled.stack("encoder").embeddings.scale = 2.0
    other.stack("encoder").embeddings.norm = RMSNorm(D_MODEL)
    assert not PostNormEngine.takes(scaled)
    assert not PostNormEngine.takes(other)


def test_a_layer_without_a_point_is_refused() -> None:
    with pytest.raises(InputError, match=r"no point layers\.7\.output"):
        NetworkEngine(encoder(), [8])
