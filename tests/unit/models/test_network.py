"""What a network takes and refuses, the points that it offers, and that it can be copied and saved whole."""

import copy
import io
import pickle
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from regard.blocks import ACTIVATIONS
from regard.core import Taps
from regard.core.errors import InputError
from regard.models import FAMILIES, Network
from tolerances import FP64, assert_close_to_largest
from unit.models.folders import (
    CONFIGS,
    assert_points_are_written,
    assert_points_in_order,
    call,
    ids,
    network,
    write,
)

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


def test_the_limit_is_the_config_s_where_there_is_a_table(family: str, net: Network) -> None:
    without = {
        "bahdanau",
        "deberta-v2",
        "expire-span",
        "gemma2",
        "gemma3_text",
        "llama",
        "mistral",
        "modernbert",
        "phi3",
        "qwen2",
        "qwen3",
        "srupp",
        "t5",
    }
    assert {net.limit(kind) for kind in net.prefixes} == {None if family in without else 11}


def test_token_types() -> None:
    net = network("bert")
    zeros = net(IDS, token_types=torch.zeros_like(IDS))
    assert torch.equal(net(IDS).last_hidden_state, zeros.last_hidden_state)
    ones = net(IDS, token_types=torch.ones_like(IDS))
    assert not torch.equal(ones.last_hidden_state, zeros.last_hidden_state)
    for without in (network("distilbert"), network("bert", num_token_types=0)):
        with pytest.raises(InputError, match="token_types must be None: this model has no token types"):
            without(IDS, token_types=torch.zeros_like(IDS))
        assert without(IDS).last_hidden_state.shape == (2, 5, 15)


def test_the_pooler() -> None:
    net = network("bert").double()
    output = net(IDS)
    wanted = torch.tanh(output.last_hidden_state[:, 0] @ net.pooler.dense.weight.T + net.pooler.dense.bias)
    assert_close_to_largest(output.pooled, wanted, FP64)
    assert network("bert", use_pooler=False)(IDS).pooled is None
    assert network("distilbert")(IDS).pooled is None


NO_SIZES = (
    ("d_model", 0),
    ("d_model", -15),
    ("vocab_size", 0),
    ("decoder_vocab_size", 0),
    ("num_layers", 0),
    ("num_layers", -1),
    ("num_decoder_layers", 0),
    ("num_heads", 0),
    ("num_decoder_heads", 0),
    ("num_kv_heads", 0),
    ("head_dim", 0),
    ("d_embedding", 0),
    ("d_ff", 0),
    ("d_decoder_ff", 0),
    ("max_seq_len", 0),
    ("norm_eps", -1e-5),
    ("num_token_types", -1),
    ("dropout_p", 1.0),
    ("dropout_p", -0.1),
    ("attention_dropout_p", 1.5),
)


def has(family: str, name: str) -> bool:
    return name in {field.name for field in fields(CONFIGS[family]) if field.init}


def test_sizes_that_make_no_network(family: str) -> None:
    for name, value in NO_SIZES:
        if has(family, name):
            with pytest.raises(InputError, match=rf"{name} must be .*; got {value}"):
                network(family, **{name: value})
    heads = "num_kv_heads" if has(family, "num_kv_heads") else "num_heads"
    if heads not in CONFIGS[family].ABSENT and (heads == "num_kv_heads" or not has(family, "head_dim")):
        with pytest.raises(InputError, match=f"{heads} must divide .*; got 4 and "):
            network(family, **{heads: 4})
    if "activation" in CONFIGS[family].ABSENT:
        return
    with pytest.raises(InputError, match=r"activation must be one of .*; got 'gelo'"):
        network(family, activation="gelo")


# --- dropout: where each stands, and of which field it is, tests/parity shows


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "t5"])
def test_dropout_is_for_training(family: str) -> None:
    net = network(family, dropout_p=0.1)
    assert torch.equal(call(net, IDS).last_hidden_state, call(net, IDS).last_hidden_state)
    net.train()
    torch.manual_seed(3)
    first, second = call(net, IDS).last_hidden_state, call(net, IDS).last_hidden_state
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(call(net, IDS).last_hidden_state, first)


# --- taps


def test_the_names_are_the_points_in_their_order(net: Network) -> None:
    names = assert_points_in_order(net, lambda taps: call(net, IDS, taps=taps))
    assert any("embeddings.token_types" in name for name in names) == (net.config.num_token_types > 0)
    assert ("logits" in names) == (call(net, IDS).logits is not None)


# Each kind of layer and of embeddings once; the others are put together from the same ones.
@pytest.mark.parametrize("family", ["bart", "bert", "deberta-v2", "electra", "gemma2", "gpt2", "t5"])
@torch.no_grad()
def test_every_point_is_written_to_at_its_place(net: Network) -> None:
    for name, parameter in net.named_parameters():
        if "norm" not in name:  # else what comes early is damped to nothing
            parameter.copy_(torch.randn(parameter.shape) * 0.5)

    def result(taps: Taps) -> Tensor:
        output = call(net, IDS, taps=taps)
        return output.last_hidden_state if output.logits is None else output.logits

    assert_points_are_written(net, result, least=1e-6)


# --- copies


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
