"""What a network takes and refuses, and the points that it offers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core import Causal, Padding, Taps
from regard.core.errors import InputError
from regard.models import FAMILIES, Network
from tolerances import FP64, assert_close_to_largest
from unit.models.folders import CONFIGS, ids, network

IDS = ids([3, 1, 4, 1, 5], [9, 2, 6, 5, 30])


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def net(family: str) -> Network:
    return network(family).double()


def test_every_family_has_a_config_here() -> None:
    assert set(CONFIGS) == set(FAMILIES)


@pytest.mark.parametrize(
    ("token_ids", "message"),
    [
        (
            torch.tensor([3, 1]),
            r"token_ids must be int64 of shape \(batch, positions\).* of shape \(2,\)",
        ),
        (torch.tensor([[[3]]]), r"shape \(batch, positions\).* of shape \(1, 1, 1\)"),
        (torch.tensor([[3.0]]), "token_ids must be int64 .* got torch.float32"),
        (torch.tensor([[True]]), "token_ids must be int64 .* got torch.bool"),
        (torch.zeros(2, 0, dtype=torch.int64), "from 1 to 11 positions, the model's limit; got 0"),
        (torch.zeros(0, 5, dtype=torch.int64), r"token_ids must .*shape \(0, 5\)"),
        (torch.zeros(2, 12, dtype=torch.int64), "from 1 to 11 positions, the model's limit; got 12"),
        (ids([3, -1]), "token_ids must be from 0 to 30; got -1"),
        (ids([3, 31]), "token_ids must be from 0 to 30; got 31"),
        (ids([-100, 31]), "token_ids must be from 0 to 30; got -100"),
    ],
)
def test_token_ids(net: Network, token_ids: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        net(token_ids)


def test_the_ends_of_what_is_allowed(net: Network) -> None:
    assert net(ids([0, 30])).last_hidden_state.isfinite().all()
    assert net(torch.zeros(1, 11, dtype=torch.int64)).last_hidden_state.shape == (1, 11, 15)
    assert torch.equal(net(IDS.int()).last_hidden_state, net(IDS).last_hidden_state)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 5), "mask must be bool of .*; got torch.float32 of .*Convert 0/1 with .bool"),
        (torch.ones(2, 5, dtype=torch.int64), "mask must be bool of .*; got torch.int64 of"),
        (
            torch.ones(2, 4, dtype=torch.bool),
            r"mask must be bool of the shape of token_ids, \(2, 5\).* of shape \(2, 4\)",
        ),
        (torch.ones(1, 5, dtype=torch.bool), r"mask must be bool of the shape .* of shape \(1, 5\)"),
        (torch.ones(5, dtype=torch.bool), r"mask must be bool of the shape .* of shape \(5,\)"),
        (
            torch.ones(2, 1, 1, 5, dtype=torch.bool),
            r"or a regard.core.Mask; got torch.bool of shape \(2, 1, 1, 5\)",
        ),
        (Padding(torch.ones(2, 4, dtype=torch.bool)), r"padding must have shape .* \(2, 5\); got \(2, 4\)"),
    ],
)
def test_masks_that_do_not_fit(net: Network, mask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        net(IDS, mask=mask)


def test_a_tensor_is_a_padding_mask(net: Network) -> None:
    real = torch.tensor([[True] * 5, [True, True, True, False, False]])
    output = net(IDS, mask=real).last_hidden_state
    assert torch.equal(output, net(IDS, mask=Padding(real)).last_hidden_state)
    assert_close_to_largest(output[1, :3], net(IDS[1:, :3]).last_hidden_state[0], FP64)
    assert not torch.allclose(output[1, :3], net(IDS).last_hidden_state[1, :3])


def test_a_causal_mask(net: Network) -> None:
    output = net(IDS, mask=Causal()).last_hidden_state
    assert_close_to_largest(output[:, :3], net(IDS[:, :3], mask=Causal()).last_hidden_state, FP64)


class TestTokenTypes:
    @pytest.mark.parametrize(
        ("types", "message"),
        [
            (torch.zeros(2, 4, dtype=torch.int64), r"token_types must have the shape of token_ids, \(2, 5\)"),
            (torch.full((2, 5), 4), "token_types must be from 0 to 3; got 4"),
            (torch.full((2, 5), -1), "token_types must be from 0 to 3; got -1"),
            (torch.zeros(2, 5), "token_types must be int64; got torch.float32"),
        ],
    )
    def test_what_is_refused(self, types: Tensor, message: str) -> None:
        with pytest.raises(InputError, match=message):
            network("bert")(IDS, token_types=types)

    def test_none_is_all_zero(self) -> None:
        net = network("bert")
        zeros = net(IDS, token_types=torch.zeros_like(IDS))
        assert torch.equal(net(IDS).last_hidden_state, zeros.last_hidden_state)
        ones = net(IDS, token_types=torch.ones_like(IDS))
        assert not torch.equal(ones.last_hidden_state, zeros.last_hidden_state)

    @pytest.mark.parametrize("net", [network("distilbert"), network("bert", num_token_types=0)])
    def test_a_network_without_them(self, net: Network) -> None:
        with pytest.raises(InputError, match="token_types must be None: this model has no token types"):
            net(IDS, token_types=torch.zeros_like(IDS))
        assert net(IDS).last_hidden_state.shape == (2, 5, 15)


def test_the_pooler() -> None:
    net = network("bert").double()
    output = net(IDS)
    wanted = torch.tanh(output.last_hidden_state[:, 0] @ net.pooler.dense.weight.T + net.pooler.dense.bias)
    assert_close_to_largest(output.pooled, wanted, FP64)
    assert network("bert", use_pooler=False)(IDS).pooled is None
    assert network("distilbert")(IDS).pooled is None


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 0},
        {"d_model": -15},
        {"vocab_size": 0},
        {"num_layers": 0},
        {"num_layers": -1},
        {"num_heads": 0},
        {"d_ff": 0},
        {"max_seq_len": 0},
        {"dropout_p": 1.0},
        {"dropout_p": -0.1},
        {"attention_dropout_p": 1.5},
    ],
    ids=str,
)
def test_sizes_that_make_no_network(family: str, changes: dict[str, float]) -> None:
    (name,) = changes
    with pytest.raises(InputError, match=rf"{name} must be .*; got {changes[name]}"):
        network(family, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 4}, "num_heads must divide d_model; got 4 and 15"),
        ({"activation": "gelo"}, "activation must be one of .*; got 'gelo'"),
    ],
)
def test_what_the_blocks_refuse(family: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        network(family, **changes)


def test_bert_s_own_sizes() -> None:
    with pytest.raises(InputError, match=r"norm_eps must be .*; got -1e-05"):
        network("bert", norm_eps=-1e-5)
    with pytest.raises(InputError, match=r"num_token_types must be at least 0 and below 2.31; got -1"):
        network("bert", num_token_types=-1)


# --- dropout


def test_dropout_is_for_training(net: Network) -> None:
    assert torch.equal(net(IDS).last_hidden_state, net(IDS).last_hidden_state)
    net.train()
    torch.manual_seed(3)
    first, second = net(IDS).last_hidden_state, net(IDS).last_hidden_state
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(net(IDS).last_hidden_state, first)


@pytest.mark.parametrize("which", ["dropout_p", "attention_dropout_p"])
def test_each_dropout_of_the_config_acts(family: str, which: str) -> None:
    off = {"dropout_p": 0.0, "attention_dropout_p": 0.0}
    net = network(family, **off).train()
    assert torch.equal(net(IDS).last_hidden_state, net(IDS).last_hidden_state)
    net = network(family, **(off | {which: 0.5})).train()
    assert not torch.equal(net(IDS).last_hidden_state, net(IDS).last_hidden_state)


# --- taps


def test_the_names_are_the_points_in_their_order(net: Network) -> None:
    names = net.tap_names()
    assert len(names) == len(set(names))
    seen: list[str] = []

    def listen(name: str) -> Any:
        return lambda value: seen.append(name)

    net(IDS, taps=Taps({name: listen(name) for name in names}))
    assert seen == names
    everything: list[object] = []
    net(IDS, taps=Taps({"*": everything.append}))
    assert len(everything) == len(names)
    assert ("embeddings.token_types" in names) == (net.config.num_token_types > 0)


@pytest.mark.parametrize("family_name", sorted(FAMILIES))
def test_every_point_is_written_to_at_its_place(family_name: str) -> None:
    net = network(family_name).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
    for name in net.tap_names():
        if name.endswith(".inputs"):
            continue
        read = net(IDS, taps=Taps({name: lambda value: None})).last_hidden_state
        assert_close_to_largest(read, net(IDS).last_hidden_state, FP64)
        copied = net(IDS, taps=Taps({name: lambda value: value.clone()})).last_hidden_state
        assert torch.equal(copied, read), name
        written = net(IDS, taps=Taps({name: lambda value: value + torch.randn_like(value)}))
        assert (written.last_hidden_state - read).abs().max().item() > 1e-3, name


def test_a_tap_that_is_not_there(net: Network) -> None:
    with pytest.raises(
        InputError, match=r"no tap is called 'layers.2.output'; the model has .*layers.i.output"
    ):
        net(IDS, taps=Taps({"layers.2.output": lambda value: None}))
    with pytest.raises(InputError, match=r"no tap is called 'layer.*'"):
        net(IDS, taps=Taps({"layer.*": lambda value: None}))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (lambda value: value[:, :1], "must return a tensor like the one it was given"),
        (lambda value: value.float(), "must return a tensor like the one it was given"),
        (lambda value: 0.0, "must return None or a tensor; got float"),
    ],
)
def test_what_cannot_take_a_tensor_s_place(net: Network, written: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"listener at 'layers.1.ffn.output' {message}"):
        net(IDS, taps=Taps({"layers.1.ffn.output": written}))
