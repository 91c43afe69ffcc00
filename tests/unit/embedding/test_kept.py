"""An embedder is kept for the next call only while nothing that it was made of has changed."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard
from regard.embedding import KeptEmbedder, Mix, Request
from regard.models import Loaded, load_checkpoint
from unit.models import folders


@pytest.fixture(scope="module")
def untouched() -> Loaded:
    return load_checkpoint()


@pytest.fixture
def loaded(untouched: Loaded) -> Loaded:
    return dataclasses.replace(untouched, network=copy.deepcopy(untouched.network))


def _layer(loaded: Loaded) -> Any:
    return loaded.network.get_submodule("encoder.layers.3")


def _weight(loaded: Loaded) -> Tensor:
    weight: Tensor = _layer(loaded).ffn.hidden.weight
    return weight


def _one_entry(loaded: Loaded) -> None:
    with torch.no_grad():
        _weight(loaded)[1201, 377] += 1e-3


def _two_rows_swapped(loaded: Loaded) -> None:
    with torch.inference_mode():
        _weight(loaded)[[3, 1007]] = _weight(loaded)[[1007, 3]]


def _other_memory(loaded: Loaded) -> None:
    _weight(loaded).data = _weight(loaded).neg()


def _there_and_back(loaded: Loaded) -> None:
    """The second conversion could find the memory that the first one freed."""
    loaded.network.half()
    loaded.network.float()


def _a_head_zeroed(loaded: Loaded) -> None:
    with torch.no_grad():
        _layer(loaded).attention.output.weight[:, 32:64] = 0.0


def _a_hook(loaded: Loaded) -> None:
    _layer(loaded).register_forward_hook(lambda *_: None)


def _a_step(loaded: Loaded) -> None:
    with torch.no_grad():
        for parameter in loaded.network.parameters():
            parameter.add_(1e-4)


def _another_bias(loaded: Loaded) -> None:
    _layer(loaded).ffn.output.bias = nn.Parameter(torch.ones(384))


def _another_type(loaded: Loaded) -> None:
    loaded.network.double()


def _another_activation(loaded: Loaded) -> None:
    _layer(loaded).ffn.activation = torch.relu


def _another_scale(loaded: Loaded) -> None:
    _layer(loaded).attention.scale = 0.5


def _a_module(loaded: Loaded) -> None:
    _layer(loaded).attention_residual.norm.eps = 1e-3


CHANGES = [
    _one_entry,
    _two_rows_swapped,
    _other_memory,
    _there_and_back,
    _a_head_zeroed,
    _a_hook,
    _a_step,
    _another_bias,
    _another_type,
    _another_activation,
    _another_scale,
    _a_module,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_noticed(loaded: Loaded, change: Callable[[Loaded], None]) -> None:
    kept, request = KeptEmbedder(), Request()
    first = kept.embedder_for(loaded, request)
    assert kept.embedder_for(loaded, Request()) is first
    change(loaded)
    second = kept.embedder_for(loaded, request)
    assert second is not first
    assert kept.embedder_for(loaded, request) is second


def test_another_request_or_model_is_noticed(loaded: Loaded, untouched: Loaded) -> None:
    kept, layers = KeptEmbedder(), [1, 2]
    first = kept.embedder_for(loaded, Request(layer=layers))
    assert kept.embedder_for(loaded, Request(layer=[1, 2])) is first
    layers.append(3)  # the request that is kept has this very list
    second = kept.embedder_for(loaded, Request(layer=layers))
    assert second is not first
    assert kept.embedder_for(untouched, Request(layer=layers)) is not second
    mixed = kept.embedder_for(loaded, Request(layer=Mix([1, 2], [0.25, 0.75])))
    assert kept.embedder_for(loaded, Request(layer=Mix([1, 2], [0.25, 0.75 + 1e-9]))) is not mixed


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert", "llama"])
def test_a_pass_leaves_the_network_as_it_was(family: str, untouched: Loaded) -> None:
    """Otherwise nothing would ever be kept."""
    network = folders.network(family, vocab_size=untouched.require_tokenizer().vocab_size)
    loaded = dataclasses.replace(untouched, network=network, family=family)
    kept, request = KeptEmbedder(), Request(level="word")
    first = kept.embedder_for(loaded, request)
    first.spans(["a river bank", "by the river"])
    assert kept.embedder_for(loaded, request) is first


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_model_that_has_embedded_can_be_copied(loaded: Loaded, copied: Callable[[Any], Any]) -> None:
    """For another process, or to be changed: without the kernels and the memory of its embedder."""
    model, texts = regard.Model(loaded), ["a river bank", "a bank account"]
    before = model.embed(texts)
    other = copied(model)
    _a_head_zeroed(other.loaded)
    assert not np.allclose(other.embed(texts), before, atol=1e-3)
    assert np.array_equal(model.embed(texts), before)


@pytest.mark.parametrize("layer", [2, [0, 2]])
def test_layers_may_be_numbers_of_numpy(loaded: Loaded, layer: Any) -> None:
    of_numpy: Any = np.array(layer)[()]
    model = regard.Model(loaded)
    wanted = regard.Model(loaded).embed(["a bank"], layer=layer)
    assert wanted.ndim == (2 if layer == 2 else 3)
    # The second time beside the request that is kept.
    for _ in range(2):
        assert np.array_equal(model.embed(["a bank"], layer=of_numpy), wanted)


def test_a_model_embeds_with_the_weights_that_it_has(loaded: Loaded) -> None:
    model, texts = regard.Model(loaded), ["a river bank", "a bank account"]
    before = model.embed(texts)
    assert np.array_equal(model.embed(texts), before)
    _a_head_zeroed(loaded)
    after = model.embed(texts)
    assert np.array_equal(after, regard.Model(loaded).embed(texts))
    assert not np.allclose(after, before, atol=1e-3)
