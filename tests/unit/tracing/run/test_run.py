"""Running a model on a text: what it takes, what it refuses, and that listening changes nothing."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from regard.core.errors import CheckpointError, InputError, RegardError
from regard.models import Loaded
from regard.tracing import trace_text
from tolerances import WEIGHTS


def test_a_pair_has_token_types(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the bank", "the river")
    assert trace.tokens == ["[CLS]", "the", "bank", "[SEP]", "the", "river", "[SEP]"]
    types = loaded.network.encoder.embeddings.token_types.weight
    assert trace.encoder is not None
    assert trace.encoder.token_types is not None
    assert torch.equal(trace.encoder.token_types, types[torch.tensor([0, 0, 0, 0, 1, 1, 1])])
    output = loaded.network(
        torch.tensor([trace.token_ids]), token_types=torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    ).last_hidden_state[0]
    assert torch.equal(trace.embeddings(), output)
    assert trace.words == ["the", "bank", "the", "river"]
    assert torch.equal(trace.embedding("the#2"), trace.embeddings()[4])


def test_a_model_without_token_types(load_tiny: Callable[..., Loaded]) -> None:
    trace = trace_text(load_tiny(num_token_types=0), "the bank")
    assert trace.encoder is not None
    assert trace.encoder.token_types is None
    assert trace.explain("bank").token_type is None


def test_the_longest_text_and_one_token_more(loaded: Loaded) -> None:
    assert len(trace_text(loaded, "the " * 17).tokens) == 19
    with pytest.raises(
        InputError,
        match=r"^text has 20 tokens .* tiny takes at most 19; shorten it, .* The first [0-9]+ words fit",
    ):
        trace_text(loaded, "the " * 18)


def test_one_token_of_text(loaded: Loaded) -> None:
    assert trace_text(loaded, "bank").weights(0, query="bank").shape == (3, 1, 3)


def test_what_is_refused(loaded: Loaded, load_tiny: Callable[..., Loaded]) -> None:
    for text in ("", "\n\t"):
        with pytest.raises(InputError, match="text is empty"):
            trace_text(loaded, text)
        with pytest.raises(InputError, match="pair is empty"):
            trace_text(loaded, "bank", text)
    with pytest.raises(CheckpointError, match=r"has no tokenizer, which text needs"):
        trace_text(load_tiny(tokenizer=False), "bank")
    loaded.network.train()
    with pytest.raises(InputError, match=r"the network must be in evaluation mode.*network\.eval"):
        trace_text(loaded, "the bank")


def test_half_precision_is_delivered_as_float32(loaded: Loaded) -> None:
    loaded.network.to(torch.bfloat16)
    trace = trace_text(loaded, "the bank")
    assert trace.attention()[0].inputs.q.dtype == torch.bfloat16
    for values in (trace.weights(0), trace.scores(0), trace.context(0), trace.embedding("bank")):
        assert values.dtype == torch.float32
    assert trace.weights(0).sum(dim=2).sub(1).abs().max() < WEIGHTS


def test_finite_numbers_whose_sum_overflows_are_finite(load_tiny: Callable[..., Loaded]) -> None:
    loaded = load_tiny()
    network = loaded.network.to(torch.float16)
    with torch.no_grad():
        network.encoder.layers[1].attention.v.bias.fill_(3e4)
    trace = trace_text(loaded, "the bank")
    v = trace.attention()[1].inputs.v
    assert v.isfinite().all()
    assert not v.sum().isfinite()


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_not_finite_is_refused(loaded: Loaded, name: str, value: float) -> None:
    with torch.no_grad():
        getattr(loaded.network.encoder.layers[1].attention, name).bias[2] = value
    # torch's CPU kernel gives a query of NaN a context of zeros where there are fewer than eight keys.
    for words in (1, 17):
        with pytest.raises(RegardError, match=r"^layers\.1\.attention has queries, keys .* not finite"):
            trace_text(loaded, "the " * words)


def test_embeddings_that_nobody_could_see_say_what_can_be_asked_for(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the bank")
    assert trace.encoder is not None
    unseen = replace(trace, encoder=replace(trace.encoder, hidden=()))
    with pytest.raises(InputError, match=r"cannot be seen .* ask for weights, scores or context"):
        unseen.embeddings()


def test_a_trace_goes_with_its_last_name(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the river bank")
    assert trace.encoder is not None
    held = weakref.ref(trace.encoder.attention[0].inputs)
    gc.disable()  # which would find what holds itself
    try:
        del trace
        assert held() is None
    finally:
        gc.enable()
