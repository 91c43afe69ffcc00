"""Networks inside what torch wraps around a model: FSDP2, DDP, torch.compile."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

import regard
from regard.models import Transformer
from regard.models.families.bert import BertConfig
from regard.models.families.bert import build as bert
from regard.models.families.gpt2 import Gpt2Config
from regard.models.families.gpt2 import build as gpt2
from unit.models import folders

SIZES: dict[str, Any] = {"vocab_size": 13, "d_model": 6, "num_layers": 2, "num_heads": 2, "d_ff": 11}


def texts(length: int) -> tuple[Tensor, Tensor]:
    """Ids (2, length) and which are tokens: the second text is padded."""
    real = torch.ones(2, length, dtype=torch.bool)
    real[1, 3:] = False
    return torch.randint(13, (2, length)), real


def networks() -> list[Transformer]:
    return [bert(BertConfig(**SIZES)), gpt2(Gpt2Config(**SIZES))]


@pytest.fixture
def world_of_one() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_fully_sharded(dtype: torch.dtype | None) -> None:
    for network in networks():
        stack = network.stack("encoder" if network.decoder is None else "decoder")
        for module in (*stack.layers, network):
            fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=dtype))
        ids, real = texts(5)
        state = network(ids, mask=real).last_hidden_state
        state.float().square().sum().backward()
        assert state.dtype == (dtype or torch.float32)
        assert all(parameter.grad is not None for parameter in stack.layers.parameters())


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize(
    ("read", "fields"),
    [
        ("logits", {"head": "masked-lm", "tie_word_embeddings": True}),
        ("logits", {"head": "masked-lm", "tie_word_embeddings": False}),
        ("last_hidden_state", {}),
        ("pooled", {}),
    ],
)
def test_two_steps_in_parallel(read: str, fields: dict[str, Any]) -> None:
    """DDP refuses the second where it waits in vain in the first: for a pooler that nothing reads."""
    network = bert(BertConfig(**SIZES, use_pooler=True, **fields)).eval()
    assert network.pooler is not None
    alone = copy.deepcopy(network)
    parallel = DistributedDataParallel(network)
    for _ in range(2):
        ids, real = texts(5)
        for each in (parallel, alone):
            getattr(each(ids, mask=real), read).square().sum().backward()
    for ours, theirs in zip(network.parameters(), alone.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad, torch.zeros_like(ours) if theirs.grad is None else theirs.grad)
    assert (alone.pooler.dense.weight.grad is None) == (read != "pooled")  # type: ignore[union-attr]


@torch.no_grad()  # with gradients torch itself warns: dynamo looks at the `.grad` of a tensor inside
def test_compiled_at_two_lengths() -> None:
    """In one graph; the second length is a symbol to dynamo."""
    network = bert(BertConfig(**SIZES)).eval()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    for length in (5, 7):
        ids, real = texts(length)
        state = network(ids, mask=real).last_hidden_state
        torch.testing.assert_close(compiled(ids, mask=real).last_hidden_state, state)


@pytest.mark.parametrize("family", folders.CONFIGS)
def test_autocast(family: str) -> None:
    """Rotated and normed queries and keys have other types there than values."""
    network = folders.network(family)
    ids, real = texts(7)
    target = {"decoder_token_ids": ids} if len(network.prefixes) == 2 else {}
    expected = network(ids, mask=real, **target).last_hidden_state
    with torch.autocast("cpu", torch.bfloat16):
        state = network(ids, mask=real, **target).last_hidden_state
    assert 0 < (state - expected).abs().max() < 0.02 * expected.abs().max()
    state.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_a_trace_through_the_lens_under_autocast() -> None:
    """Llama's rotated q and k come in float32 there, its v does not."""
    config = LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)
    with torch.autocast("cpu", torch.bfloat16):
        trace = regard.lens(LlamaForCausalLM(config).eval()).trace(token_ids=[1, 2, 3])
    parity = trace.parity()
    assert 0 < parity.largest < parity.bound < 0.05
