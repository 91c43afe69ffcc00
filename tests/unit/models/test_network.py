"""What a network takes and refuses, and the points that it offers."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core import Causal, Padding, Taps
from regard.core.errors import InputError
from regard.models import FAMILIES, Network
from tolerances import FP64, assert_close_to_largest
from unit.models.folders import CONFIGS, TARGET, call, ids, network

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
        (torch.zeros(0, 5, dtype=torch.int64), r"token_ids must .*shape \(0, 5\)"),
        (ids([3, -1]), "token_ids must be from 0 to 30; got -1"),
        (ids([3, 31]), "token_ids must be from 0 to 30; got 31"),
        (ids([-100, 31]), "token_ids must be from 0 to 30; got -100"),
    ],
)
def test_token_ids(net: Network, token_ids: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(net, token_ids)


def test_the_ends_of_what_is_allowed(net: Network) -> None:
    assert call(net, ids([0, 30])).last_hidden_state.isfinite().all()
    assert torch.equal(call(net, IDS.int()).last_hidden_state, call(net, IDS).last_hidden_state)
    limit = net.limit(next(iter(net.prefixes)))
    wanted = "at least 1 position" if limit is None else f"from 1 to {limit} positions, the model's limit"
    with pytest.raises(InputError, match=f"token_ids must hold {wanted}; got 0"):
        call(net, torch.zeros(2, 0, dtype=torch.int64))
    longest = torch.full((1, limit or 97), 3)
    assert call(net, longest).last_hidden_state.isfinite().all()
    if limit is not None:
        with pytest.raises(InputError, match=f"token_ids must hold {wanted}; got {limit + 1}"):
            call(net, torch.full((1, limit + 1), 3))


def test_the_limit_is_the_config_s_where_there_is_a_table(family: str, net: Network) -> None:
    without = {
        "deberta-v2",
        "gemma2",
        "gemma3_text",
        "llama",
        "mistral",
        "modernbert",
        "qwen2",
        "qwen3",
        "t5",
    }
    assert {net.limit(kind) for kind in net.prefixes} == {None if family in without else 11}


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
        call(net, IDS, mask=mask)


def test_a_tensor_is_a_padding_mask(net: Network) -> None:
    real = torch.tensor([[True] * 5, [True, True, True, False, False]])
    output = call(net, IDS, mask=real).last_hidden_state
    assert torch.equal(output, call(net, IDS, mask=Padding(real)).last_hidden_state)
    open_eyes = call(net, IDS).last_hidden_state[1]
    if len(net.prefixes) == 2:
        short = net(IDS[1:, :3], decoder_token_ids=TARGET[1:]).last_hidden_state
        assert_close_to_largest(output[1], short[0], FP64)
        assert not torch.allclose(output[1], open_eyes)
    else:
        assert_close_to_largest(output[1, :3], net(IDS[1:, :3]).last_hidden_state[0], FP64)
        # Behind the tokens, padding is what a decoder does not see anyway.
        assert torch.allclose(output[1, :3], open_eyes[:3]) == ("decoder" in net.prefixes)


def test_a_causal_mask(net: Network) -> None:
    kind = next(iter(net.prefixes))

    def state(token_ids: Tensor, **mask: Any) -> Any:
        return getattr(call(net, token_ids, **mask), f"{kind}_state")

    output = state(IDS, mask=Causal())
    assert_close_to_largest(output[:, :3], state(IDS[:, :3], mask=Causal()), FP64)
    assert torch.allclose(state(IDS)[:, :3], output[:, :3]) == (kind == "decoder")


def test_a_decoder_sees_nothing_that_follows(net: Network) -> None:
    if len(net.prefixes) == 2:
        whole = net(IDS, decoder_token_ids=TARGET).decoder_state
        part = net(IDS, decoder_token_ids=TARGET[:, :3]).decoder_state
        assert_close_to_largest(part, whole[:, :3], FP64)


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
    ("dropout_p", 1.0),
    ("dropout_p", -0.1),
    ("attention_dropout_p", 1.5),
)


def has(family: str, name: str) -> bool:
    return name in {field.name for field in fields(CONFIGS[family]) if field.init}


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [(family, *size) for family in sorted(CONFIGS) for size in NO_SIZES if has(family, size[0])],
)
def test_sizes_that_make_no_network(family: str, name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"{name} must be .*; got {value}"):
        network(family, **{name: value})


@pytest.mark.parametrize("family", [family for family in sorted(CONFIGS) if not has(family, "head_dim")])
def test_heads_that_do_not_divide(family: str) -> None:
    d_model = CONFIGS[family].d_model
    with pytest.raises(InputError, match=f"num_heads must divide d_model; got 4 and {d_model}"):
        network(family, num_heads=4)


@pytest.mark.parametrize("family", [family for family in sorted(CONFIGS) if has(family, "num_kv_heads")])
def test_grouped_heads_that_do_not_divide(family: str) -> None:
    with pytest.raises(InputError, match="num_kv_heads must divide num_heads; got 4 and 6"):
        network(family, num_kv_heads=4)


def test_an_activation_that_is_none(family: str) -> None:
    with pytest.raises(InputError, match=r"activation must be one of .*; got 'gelo'"):
        network(family, activation="gelo")


def test_bert_s_own_sizes() -> None:
    with pytest.raises(InputError, match=r"norm_eps must be .*; got -1e-05"):
        network("bert", norm_eps=-1e-5)
    with pytest.raises(InputError, match=r"num_token_types must be at least 0 and below 2.31; got -1"):
        network("bert", num_token_types=-1)


# --- dropout


DROPOUTS = (
    "dropout_p",
    "attention_dropout_p",
    "embedding_dropout_p",
    "activation_dropout_p",
    "ffn_dropout_p",
)


def test_dropout_is_for_training(family: str) -> None:
    net = network(family, attention_dropout_p=0.1) if has(family, "attention_dropout_p") else network(family)
    assert torch.equal(call(net, IDS).last_hidden_state, call(net, IDS).last_hidden_state)
    net.train()
    torch.manual_seed(3)
    first, second = call(net, IDS).last_hidden_state, call(net, IDS).last_hidden_state
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(call(net, IDS).last_hidden_state, first)


@pytest.mark.parametrize(
    ("family", "which"),
    [(family, name) for family in sorted(CONFIGS) for name in DROPOUTS if has(family, name)],
)
def test_each_dropout_of_the_config_acts(family: str, which: str) -> None:
    off = {name: 0.0 for name in DROPOUTS if has(family, name)}
    net = network(family, **off).train()
    assert torch.equal(call(net, IDS).last_hidden_state, call(net, IDS).last_hidden_state)
    net = network(family, **(off | {which: 0.5})).train()
    assert not torch.equal(call(net, IDS).last_hidden_state, call(net, IDS).last_hidden_state)


# --- taps


def test_the_names_are_the_points_in_their_order(net: Network) -> None:
    names = net.tap_names()
    assert len(names) == len(set(names))
    seen: list[str] = []

    def listen(name: str) -> Any:
        return lambda value: seen.append(name)

    call(net, IDS, taps=Taps({name: listen(name) for name in names}))
    assert seen == names
    everything: list[object] = []
    call(net, IDS, taps=Taps({"*": everything.append}))
    assert len(everything) == len(names)
    assert any("embeddings.token_types" in name for name in names) == (net.config.num_token_types > 0)
    assert ("logits" in names) == (call(net, IDS).logits is not None)


@torch.no_grad()
def test_every_point_is_written_to_at_its_place(net: Network) -> None:
    for name, parameter in net.named_parameters():
        if "norm" not in name:  # else what comes early is damped to nothing
            parameter.copy_(torch.randn(parameter.shape) * 0.5)

    def result(listener: Any, name: str) -> Tensor:
        output = call(net, IDS, taps=Taps({name: listener}))
        return output.last_hidden_state if output.logits is None else output.logits

    plain = call(net, IDS)
    whole = plain.last_hidden_state if plain.logits is None else plain.logits
    for name in net.tap_names():
        if name.endswith(".inputs"):
            continue
        read = result(lambda value: None, name)
        assert_close_to_largest(read, whole, FP64)
        assert torch.equal(result(lambda value: value.clone(), name), read), name
        written = result(lambda value: value + torch.randn_like(value), name)
        assert (written - read).abs().max().item() > 1e-6 * whole.abs().max().item(), name


def test_a_tap_that_is_not_there(net: Network) -> None:
    prefix = list(net.prefixes.values())[-1]
    with pytest.raises(
        InputError,
        match=rf"no tap is called '{prefix}layers.3.output'; the model has .*{prefix}layers.i.output",
    ):
        call(net, IDS, taps=Taps({f"{prefix}layers.3.output": lambda value: None}))
    with pytest.raises(InputError, match=r"no tap is called 'layer.*'"):
        call(net, IDS, taps=Taps({"layer.*": lambda value: None}))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (lambda value: value[:, :1], "must return a tensor like the one it was given"),
        (lambda value: value.float(), "must return a tensor like the one it was given"),
        (lambda value: 0.0, "must return None or a tensor; got float"),
    ],
)
def test_what_cannot_take_a_tensor_s_place(net: Network, written: Any, message: str) -> None:
    point = f"{list(net.prefixes.values())[-1]}layers.1.ffn.output"
    with pytest.raises(InputError, match=rf"listener at '{point}' {message}"):
        call(net, IDS, taps=Taps({point: written}))
