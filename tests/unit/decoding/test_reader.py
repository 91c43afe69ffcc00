"""A network prepared for writing: the same numbers as by torch, and less precise ones that are near."""

import importlib.util
import sys

import pytest
import torch

from regard import InputError, MissingExtraError
from regard.decoding import Rules, greedy, prepared
from regard.decoding import _reader as module
from regard.kernels import FewRowsLinear
from regard.models import Transformer, new_network
from regard.models.families.bart import original_transformer
from regard.models.families.gpt2 import Gpt2Config
from tolerances import PARITY_FP32, assert_close_to_largest

IDS = torch.tensor([[3, 1, 4, 11, 5]])


def _gpt2() -> Transformer:
    config = Gpt2Config(vocab_size=13, d_model=64, num_layers=2, num_heads=2, d_ff=128, max_seq_len=17)
    return new_network(config).eval()


def _logits(network: Transformer) -> torch.Tensor:
    with torch.no_grad():
        state = network.begin()
        logits = [network.decode(IDS[:, at : at + 1], state).logits for at in range(IDS.shape[1])]
    assert all(each is not None for each in logits)
    return torch.cat([each for each in logits if each is not None], dim=1)


def _maps(network: Transformer) -> int:
    return sum(isinstance(each, FewRowsLinear) for each in network.modules())


def test_float32_computes_the_same_of_the_same_weights() -> None:
    network = _gpt2()
    own = prepared(network)
    assert _maps(own) == 2 * 6 + 1
    assert _maps(network) == 0
    assert_close_to_largest(_logits(own), _logits(network), PARITY_FP32)
    with torch.no_grad():
        network.decoder.layers[0].ffn.hidden.weight.mul_(3)
    assert_close_to_largest(_logits(own), _logits(network), PARITY_FP32)


@pytest.mark.parametrize(("precision", "apart"), [("bfloat16", 2e-2), ("int8", 4e-2)])
def test_rounded_weights_cost_little_and_not_nothing(precision: str, apart: float) -> None:
    network = _gpt2()
    exact, rounded = _logits(network), _logits(prepared(network, precision))
    difference = float((exact - rounded).abs().max() / exact.abs().max())
    assert 1e-5 < difference < apart


def test_the_weights_of_a_network_in_bfloat16_stay_as_they_are() -> None:
    half = _gpt2().to(torch.bfloat16)
    own = prepared(half, "bfloat16")
    maps = {name: each for name, each in own.named_modules() if isinstance(each, FewRowsLinear)}
    assert len(maps) == _maps(own)
    for name, each in maps.items():
        assert torch.equal(each.weight, half.get_submodule(name).weight)
    assert {each.dtype for each in half.parameters()} == {torch.bfloat16}


def test_what_is_prepared_can_be_rounded_once() -> None:
    network = _gpt2()
    twice = prepared(prepared(network), "int8")
    assert torch.equal(_logits(twice), _logits(prepared(network, "int8")))
    assert torch.equal(_logits(prepared(twice, "int8")), _logits(twice))
    with pytest.raises(InputError, match=r"'bfloat16' of a model whose weights are in int8"):
        prepared(twice, "bfloat16")


def test_the_encoder_stays_as_it_is() -> None:
    network = new_network(original_transformer(13, d_model=64, num_layers=1, num_heads=2, d_ff=128))
    own = prepared(network, "int8")
    assert _maps(own) == 4 + 4 + 2 + 1
    assert not any(isinstance(each, FewRowsLinear) for each in own.encoder.modules())


def test_texts_are_written_by_kernels_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    forward = FewRowsLinear.forward
    monkeypatch.setattr(
        FewRowsLinear, "forward", lambda self, x: (called.append(x.shape), forward(self, x))[1]
    )
    rules = Rules(max_length=3)
    (by_kernels,) = greedy(_gpt2(), [[3, 1]], rules=rules)
    assert called
    called.clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (by_torch,) = greedy(_gpt2(), [[3, 1]], rules=rules)
    assert not called
    assert len(by_kernels.token_ids) == len(by_torch.token_ids) == 3


def test_what_cannot_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"precision must be one of float32, bfloat16, int8; got 'int4'"):
        prepared(_gpt2(), "int4")  # type: ignore[arg-type]
    with monkeypatch.context() as patched:
        patched.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        with pytest.raises(InputError, match=r"'int8' here: .* AVX2"):
            prepared(_gpt2(), "int8")
        assert module.at_best(network := _gpt2()) is network
    monkeypatch.setitem(sys.modules, "regard.kernels", None)
    with pytest.raises(MissingExtraError, match="llvmlite"):
        prepared(_gpt2(), "int8")
