"""What the stacks read: a target after its start token, and token ids in the place of texts."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.core.errors import InputError, RegardError
from regard.models import Transformer
from regard.tracing import KeepPolicy, trace_ids, trace_text
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.models import tiny
from unit.tracing.stacks import SOURCE_TOKENS, TEXT, loaded


@pytest.fixture(scope="module")
def network() -> Transformer:
    torch.manual_seed(7)
    return tiny.both().float()


# --- a target


def test_a_target_is_read_after_the_start_token(network: Transformer) -> None:
    trace = trace_text(loaded(network), TEXT, target="money by the river")
    assert trace.tokens == SOURCE_TOKENS
    assert trace.decoder is not None
    # The start token, then the target's tokens without the closing one, which is only ever given.
    assert list(trace.decoder.encoding.token_ids) == [tiny.START, 2, 10, 8, 4, 9]
    assert trace.decoder.encoding.texts == ("money by the river",)
    assert [token.special for token in trace.decoder.encoding.tokens] == [True, True, *[False] * 4]
    assert trace.weights(0, kind="cross", query="money", key="fishing").shape == (5, 1, 2)
    ids = torch.tensor([trace.token_ids])
    output = network(ids, decoder_token_ids=torch.tensor([trace.decoder.encoding.token_ids]))
    assert_close_to_largest(trace.embeddings(kind="decoder"), output.decoder_state[0], FP32_OF_LARGEST)
    assert trace.explain("river", kind="cross").token == 5


def test_by_default_a_text_s_decoder_reads_its_start(network: Transformer) -> None:
    trace = trace_text(loaded(network), TEXT)
    assert trace.decoder is not None
    assert list(trace.decoder.encoding.token_ids) == [tiny.START]
    assert trace.decoder.encoding.tokens[0].special
    assert trace.weights(0, kind="cross").shape == (5, 1, 9)


def test_the_target_may_start_with_its_own_last_token() -> None:
    without = loaded(tiny.both(start_id=None).float())
    trace = trace_text(without, TEXT, target="money by the river")
    assert trace.decoder is not None
    assert list(trace.decoder.encoding.token_ids) == [3, 2, 10, 8, 4, 9]
    with pytest.raises(InputError, match="target must be given"):
        trace_text(without, TEXT)


def test_a_target_that_does_not_fit(network: Transformer) -> None:
    message = "^target has 12 tokens with the special ones, but tiny takes at most 11; shorten it"
    with pytest.raises(InputError, match=message):
        trace_text(loaded(network), TEXT, target="the " * 10)
    with pytest.raises(InputError, match="is empty"):
        trace_text(loaded(network), TEXT, target=" ")


# --- token ids


def test_token_ids_need_no_tokenizer() -> None:
    network = tiny.decoder().float()
    trace = trace_ids(loaded(network, tokenizer=False), [3, 1, 4, 1])
    assert (trace.tokens, trace.words, trace.token_ids) == (["3", "1", "4", "1"], [], [3, 1, 4, 1])
    assert trace.encoding.texts == ()
    output = network(torch.tensor([[3, 1, 4, 1]])).last_hidden_state[0]
    assert_close_to_largest(trace.embeddings(), output, FP32_OF_LARGEST)
    assert trace.weights(0, query="4").shape == (5, 1, 4)
    assert trace.explain(2).text == "3 1 4 1"


@pytest.mark.parametrize(
    "ids",
    [[3, 1, 4], (3, 1, 4), torch.tensor([3, 1, 4]), torch.tensor([[3, 1, 4]]).int(), np.array([3, 1, 4])],
)
def test_forms_of_token_ids(ids: Any) -> None:
    assert trace_ids(loaded(tiny.encoder().float()), ids).token_ids == [3, 1, 4]


def test_token_ids_are_named_by_the_tokenizer() -> None:
    trace = trace_ids(loaded(tiny.encoder().float()), [2, 7, 3, 25])
    assert trace.tokens == ["[CLS]", "bank", "[SEP]", "25"]
    assert [token.special for token in trace.encoding.tokens] == [True, False, True, False]


def test_ids_of_a_target(network: Transformer) -> None:
    trace = trace_ids(loaded(network, tokenizer=False), [3, 1, 4], [4, 7])
    assert trace.decoder is not None
    assert list(trace.decoder.encoding.token_ids) == [4, 7]
    assert trace.weights(0, kind="cross").shape == (5, 2, 3)
    output = network(torch.tensor([[3, 1, 4]]), decoder_token_ids=torch.tensor([[4, 7]]))
    assert_close_to_largest(trace.embeddings(kind="decoder"), output.last_hidden_state[0], FP32_OF_LARGEST)


def test_by_default_the_decoder_reads_its_start(network: Transformer) -> None:
    trace = trace_ids(loaded(network), [3, 1, 4])
    assert trace.decoder is not None
    assert list(trace.decoder.encoding.token_ids) == [tiny.START]
    assert trace.weights(0, kind="decoder").tolist() == [[[1.0]]] * 5
    with pytest.raises(InputError, match="target_ids must be given: the checkpoint does not say which token"):
        trace_ids(loaded(tiny.both(start_id=None).float()), [3, 1, 4])


def test_one_stack_has_no_target() -> None:
    for model in (loaded(tiny.encoder().float()), loaded(tiny.decoder().float())):
        with pytest.raises(InputError, match="target_ids must be None: this model has no decoder beside"):
            trace_ids(model, [3, 1], [4])
        with pytest.raises(InputError, match="target must be None: this model has no decoder beside"):
            trace_text(model, "the bank", target="the river")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            [],
            r"{} must be whole numbers, \(N,\) or a row for each text, at least one; got .* of shape \(0,\)",
        ),
        ([1.5], "{} must be whole numbers, .*; got torch.float32"),
        ([True], "{} must be whole numbers, .*; got torch.bool"),
        ([[1], [2]], r"token_ids must be of one text.*; got 2 rows|target_ids must have a row for each"),
        (3, r"{} must be whole numbers, .* of shape \(\)"),
        ("bank", "{} must be whole numbers; got text"),
        (["bank"], "{} must be whole numbers; got text"),
        ([[1, 2], [3, "a"]], "{} must be whole numbers, .*; got list"),
        ([2**70], "{} must be whole numbers, .*; got list"),
        (None, "{} must be whole numbers, .*; got NoneType"),
        ([-1], "ids must be integers from 0 up"),
        ([1000], "from 0 to (28|30); got 1000"),
        ([1] * 12, "{} has 12 tokens with the special ones, but tiny takes at most 11"),
    ],
)
def test_ids_that_make_no_text(network: Transformer, ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message.format("token_ids")):
        trace_ids(loaded(tiny.encoder().float()), ids)
    if ids is not None:
        with pytest.raises(InputError, match=message.format("target_ids")):
            trace_ids(loaded(network), [3, 1], ids)


def test_a_damaged_weight_is_named_with_its_stack() -> None:
    damaged = tiny.both().float()
    with torch.no_grad():
        damaged.stack("decoder").layers[1].cross_attention.k.weight[0, 0] = float("nan")
    message = r"^decoder\.layers\.1\.cross_attention has queries, keys or values that are not finite"
    with pytest.raises(RegardError, match=message):
        trace_ids(loaded(damaged), [3, 1], [4])


def test_what_is_not_finite_after_the_last_attention_is_seen() -> None:
    damaged = tiny.encoder().float()
    with torch.no_grad():
        damaged.stack("encoder").layers[-1].ffn.output.weight[0, 0] = float("nan")
    for keep in ("all", "residual"):
        with pytest.raises(RegardError, match="output has numbers that are not finite"):
            trace_ids(loaded(damaged), [3, 1], keeping=KeepPolicy(keep=keep))


def test_half_precision_is_delivered_as_float32() -> None:
    trace = trace_ids(loaded(tiny.both().to(torch.bfloat16)), [3, 1, 4, 1], [4, 7])
    delivered: list[Tensor] = [trace.embeddings(kind="decoder")]
    for kind in trace.kinds:
        delivered += [trace.weights(0, kind=kind), trace.scores(0, kind=kind), trace.context(0, kind=kind)]
        assert trace.explain(1, 0, kind=kind).weights.dtype == np.float32
    assert {each.dtype for each in delivered} == {torch.float32}


@pytest.mark.parametrize("start", [-1, 31, 58100])
def test_a_start_token_beyond_the_table(start: int) -> None:
    network = tiny.both().float()
    network.start_id = start
    for read in (lambda: trace_ids(loaded(network), [3]), lambda: trace_text(loaded(network), TEXT)):
        with pytest.raises(InputError, match=f"decoder_start_token_id of tiny is {start}, which is no row"):
            read()
    assert trace_ids(loaded(network), [3], [4]).kinds == ("encoder", "decoder", "cross")
