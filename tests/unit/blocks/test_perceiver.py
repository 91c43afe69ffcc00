"""The Perceiver's stack; what its layers compute is compared in `tests/parity/test_perceiver.py`."""

import math
from typing import Any

import pytest
import torch

from regard.blocks import LatentStack
from regard.core import Causal, Taps
from regard.core.errors import InputError
from regard.models import new_network
from regard.models.families.perceiver import PerceiverConfig, build
from regard.positions import FourierPositions
from tolerances import FP64, assert_close_to_largest

SIZES: dict[str, Any] = {
    "vocab_size": 13,
    "d_model": 6,
    "num_latents": 5,
    "num_layers": 2,
    "num_heads": 3,
    "d_ff": 11,
    "num_bands": 2,
    "max_seq_len": 16384,
}


def made(**changes: Any) -> LatentStack:
    stack = build(PerceiverConfig(**(SIZES | changes))).double().eval().encoder
    assert isinstance(stack, LatentStack)
    return stack


@torch.no_grad()
def test_the_latents_attend_to_the_input_and_nothing_else() -> None:
    stack, ids, seen = made(), torch.randint(13, (1, 7)), {}

    def keep(name: str) -> Any:
        return lambda value: seen.__setitem__(name, value)

    taps = Taps({name: keep(name) for name in ("embeddings.output", "read.attention.weights")})
    stack(ids, taps=taps)
    x, read = seen["embeddings.output"][0], stack.read
    # Tokens, and beside them x, sin(pi f x) and cos(pi f x) of f = 1 and 8192, by hand.
    assert torch.equal(x[:, :6], stack.embeddings.tokens.weight[ids[0]])
    for p in range(7):
        at = 2 * p / 16383 - 1
        wanted = [at, *(f(math.pi * k * at) for f in (math.sin, math.cos) for k in (1, 8192))]
        assert_close_to_largest(x[p, 6:], torch.tensor(wanted, dtype=torch.float64), 1e-10)
    keys = [read.attention.k.weight @ read.source_norm(row) + read.attention.k.bias for row in x]
    for m in range(5):
        latent = read.attention_residual.norm(stack.latents[m])
        query = read.attention.q.weight @ latent + read.attention.q.bias
        powers = [math.exp(float(query @ key) / math.sqrt(6)) for key in keys]
        wanted_row = torch.tensor(powers, dtype=torch.float64) / math.fsum(powers)
        assert_close_to_largest(seen["read.attention.weights"][0, 0, m], wanted_row, FP64)


@torch.no_grad()
def test_a_long_input_is_read_in_linear_memory() -> None:
    """16,384 positions: no tensor of the pass is near the 2.7 * 10^8 entries of N x N weights."""
    stack, largest = made().float(), 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            found = func(*args, **(kwargs or {}))
            each = found if isinstance(found, tuple) else (found,)
            sizes = [one.numel() for one in each if isinstance(one, torch.Tensor)]
            largest = max(largest, *sizes, 0)
            return found

    ids = torch.randint(13, (1, 16384))
    with Watch():
        out = stack(ids)
    assert out.shape == (1, 16384, 6)
    assert 16384 * 11 <= largest < 16384 * 64


@torch.no_grad()
def test_inputs_need_not_be_tokens() -> None:
    stack = made()
    patches, queries = torch.randn(2, 50, 6 + 5).double(), torch.randn(2, 3, 6).double()
    assert stack.ask(patches, queries).shape == (2, 3, 6)


def test_before_training_tokens_are_as_large_as_the_positions_beside_them() -> None:
    """At 0.02 the norm of the input hid them: a classifier of texts learned nothing in 200 steps."""
    network = new_network(PerceiverConfig(**(SIZES | {"vocab_size": 997})))
    tokens, at = network.encoder.embeddings.tokens.weight, FourierPositions(997, 2)(torch.arange(997))
    assert 0.8 < float(tokens.detach().std() / at[:, 1:].std()) < 1.25


def test_refused() -> None:
    stack, ids = made(), torch.randint(13, (1, 7))
    with pytest.raises(InputError, match="mask must be padding: the latent vectors of a Perceiver read all"):
        stack(ids, mask=Causal())
    with pytest.raises(InputError, match="latent vectors read the whole text, so no cache can be kept"):
        stack.new_states()
    for changes, message in (
        ({"num_latents": 0}, "num_latents must be at least 1; got 0"),
        ({"num_bands": 0}, "num_bands must be at least 1; got 0"),
        ({"num_cross_heads": 4}, "num_heads must divide d_model; got 4 and 6"),
    ):
        with pytest.raises(InputError, match=message):
            made(**changes)
