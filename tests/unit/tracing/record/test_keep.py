"""What a trace keeps: every choice against the trace that keeps everything, and what it refuses."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.core import AttentionInputs, Causal, Padding
from regard.core.errors import InputError, RegardError
from regard.models import Loaded
from regard.tracing import KeepPolicy, Trace, compare, kept_bytes, page_record, trace_ids, trace_text
from regard.tracing.record import Partial, ScoreInputs, _keep, kept_inputs, kept_tensor
from tolerances import WEIGHTS
from unit.models import folders, tiny
from unit.tracing.conftest import TEXT

KEEPS: Any = ("qk", "qkv", "residual", "all")


def loaded(network: Any) -> Loaded:
    return tiny.loaded(network.float())


def traced(model: Loaded, **keeping: Any) -> Trace:
    ids = [3, 1, 4, 1, 5, 9, 2]
    both = len(model.network.prefixes) == 2
    return trace_ids(model, ids, [4, 7, 1, 28, 2] if both else None, keeping=KeepPolicy(**keeping))


@pytest.fixture(scope="module")
def of_both() -> Loaded:
    torch.manual_seed(3)
    return loaded(tiny.both())


@pytest.mark.parametrize("family", folders.TRACED)
def test_queries_and_keys_give_the_same_weights_in_every_family(family: str) -> None:
    model = loaded(folders.network(family))
    whole, some = traced(model), traced(model, keep="qk")
    assert kept_bytes(some) < kept_bytes(whole) / 2
    for kind in whole.kinds:
        for layer in whole.layers_of(kind):
            assert torch.equal(some.weights(layer, kind=kind), whole.weights(layer, kind=kind))
            assert torch.equal(some.weights(layer, -1, kind=kind), whole.weights(layer, -1, kind=kind))
            assert torch.equal(
                some.scores(layer, 0, kind=kind, query=2), whole.scores(layer, 0, kind=kind, query=2)
            )
    with pytest.raises(
        InputError, match=r'contexts are not in this trace, which was kept with keep="qk".*"qkv"'
    ):
        some.context(0, kind=whole.kinds[0])
    with pytest.raises(InputError, match='values are not in this trace, which was kept with keep="qk"'):
        _ = some.attention_of(0, whole.kinds[0]).inputs.v
    with pytest.raises(InputError, match=r'embeddings are not in this trace.*keep="residual" or keep="all"'):
        some.embeddings(kind="decoder" if whole.kinds == ("cross",) else whole.kinds[0])
    with pytest.raises(InputError, match='keep="qk"'):
        some.explain(0, kind=whole.kinds[0])


@pytest.mark.parametrize("family", folders.TRACED)
def test_every_choice_is_a_part_of_everything(family: str) -> None:
    model = loaded(folders.network(family))
    whole = traced(model)
    values, residual = traced(model, keep="qkv", layers=[-1]), traced(model, keep="residual")
    for kind in whole.kinds:
        assert torch.equal(values.context(-1, kind=kind), whole.context(-1, kind=kind))
        assert values.attention_of(-1, kind).output is None
        assert values.layers_of(kind) == (whole.layers_of(kind)[-1],)
        assert residual.layers_of(kind) == ()
        with pytest.raises(InputError, match=r'attention layer 0 is not in this trace.*keep="residual"'):
            residual.weights(0, kind=kind)
        if kind != "cross":
            for layer in (0, 1, -1, "input"):
                ours, theirs = residual.embeddings(layer, kind=kind), whole.embeddings(layer, kind=kind)
                assert torch.equal(ours, theirs)


def test_layers_keep_their_numbers_and_their_neighbours(of_both: Loaded) -> None:
    whole, some = traced(of_both), traced(of_both, layers=[-1])
    # Of each stack its own last one: two and three layers deep.
    assert [some.layers_of(kind) for kind in some.kinds] == [(1,), (2,), (2,)]
    for kind, last in (("encoder", 1), ("decoder", 2), ("cross", 2)):
        for layer in (last, -1):
            assert torch.equal(some.weights(layer, kind=kind), whole.weights(layer, kind=kind))  # type: ignore[arg-type]
        named = "cross-attention layer" if kind == "cross" else "attention layer"
        with pytest.raises(
            InputError, match=rf"^{named} 0 is not in this trace: .*layers=\[-1\].*layers=None"
        ):
            some.weights(0, kind=kind)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=rf"layer must be from 0 to {last}"):
            some.weights(last + 1, kind=kind)  # type: ignore[arg-type]
    assert torch.equal(some.embeddings(2, kind="decoder"), whole.embeddings(2, kind="decoder"))
    assert torch.equal(some.embeddings(-1, kind="decoder"), whole.embeddings(-1, kind="decoder"))
    assert torch.equal(some.embeddings(0, kind="decoder"), whole.embeddings(0, kind="decoder"))
    with pytest.raises(InputError, match=r"hidden state 1 is not in this trace"):
        some.embeddings(1, kind="decoder")
    explained = some.explain(3, -1, 1, kind="decoder")
    assert np.array_equal(explained.weights, whole.explain(3, -1, 1, kind="decoder").weights)
    assert (some.num_layers, some.num_heads) == (whole.num_layers, whole.num_heads)


def test_layers_that_only_the_deeper_stack_has(of_both: Loaded) -> None:
    some = traced(of_both, layers=2)
    assert [some.layers_of(kind) for kind in some.kinds] == [(), (2,), (2,)]
    assert repr(some) == "Trace('tiny', 7 tokens + 5 tokens, 2 layers + 3 layers x 5 heads, layers=[2])"


@pytest.mark.parametrize(
    ("keeping", "message"),
    [
        ({"keep": "kq"}, 'keep must be "qk", "qkv", "residual" or "all"; got \'kq\''),
        ({"layers": []}, "layers must be a number, or a list of them, at least one"),
        *(({"layers": layers}, "layers must be a number") for layers in ([0.5], True, "0")),
        ({"dtype": torch.int8}, "dtype must be torch.float32, float64, bfloat16 or float16, or None"),
        ({"dtype": "bfloat16"}, "dtype must be"),
        *(({"layers": layers}, r"layers must be from 0 to 2, .* (3|-4)\.") for layers in (3, -4, [0, 3])),
    ],
)
def test_what_cannot_be_kept(of_both: Loaded, keeping: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        traced(of_both, **keeping)


def defined(inputs: Any) -> Tensor:
    """The weights by their definition, in float64, of a record's own q, k, bias and mask: (heads, N, M)."""
    groups = inputs.q.shape[1] // inputs.k.shape[1]
    scores = torch.stack(
        [
            inputs.q[0, head].double() @ inputs.k[0, head // groups].double().T * inputs.factor
            for head in range(inputs.q.shape[1])
        ]
    )
    if inputs.softcap is not None:
        scores = inputs.softcap * torch.tanh(scores / inputs.softcap)
    rows, columns = torch.arange(inputs.q_len), torch.arange(inputs.k_len)
    if inputs.bias is not None:
        scores = scores + inputs.bias.block(rows, columns)[0].double()
    if inputs.mask is not None:
        scores = scores.masked_fill(~inputs.mask.dense(inputs.q_len, inputs.k_len)[0], float("-inf"))
    powers = torch.exp(scores - scores.amax(dim=2, keepdim=True))
    return powers / powers.sum(dim=2, keepdim=True)


@pytest.mark.parametrize("family", ["gpt2", "deberta-v2", "t5", "gemma2"])
def test_a_trace_in_half_precision_is_exact_to_its_own_queries_and_keys(family: str) -> None:
    model = loaded(folders.network(family))
    whole, half = traced(model, keep="qk"), traced(model, keep="qk", dtype=torch.bfloat16)
    for kind in half.kinds:
        for layer in half.layers_of(kind):
            inputs = half.attention_of(layer, kind).inputs
            assert inputs.q.dtype == inputs.k.dtype == torch.bfloat16
            assert torch.equal(inputs.q, whole.attention_of(layer, kind).inputs.q.bfloat16())
            wanted = defined(inputs)
            assert half.weights(layer, kind=kind).sub(wanted).abs().max() < WEIGHTS
            assert not torch.equal(half.weights(layer, kind=kind), whole.weights(layer, kind=kind))
    assert kept_bytes(half) < kept_bytes(whole)


def test_the_residual_stream_is_converted_too(loaded_tiny: Loaded) -> None:
    trace = trace_text(loaded_tiny, TEXT, keeping=KeepPolicy(dtype=torch.float16))
    tensors = [*trace.source.hidden, trace.source.learned, trace.source.positions, trace.source.token_types]
    tensors += [value for each in trace.attention() for value in (each.context, each.output, each.inputs.v)]
    assert {tensor.dtype for tensor in tensors if tensor is not None} == {torch.float16}
    whole = trace_text(loaded_tiny, TEXT)
    assert kept_bytes(trace) * 2 == kept_bytes(whole)
    assert trace.parity().largest <= trace.parity().bound


@pytest.fixture
def loaded_tiny(loaded: Loaded) -> Loaded:
    return loaded


def test_damaged_weights_are_noticed_whatever_is_kept() -> None:
    network = tiny.encoder().float()
    with torch.no_grad():
        network.encoder.layers[1].attention.q.weight.mul_(1e6)  # type: ignore[union-attr]
    with pytest.raises(RegardError, match=r"1\.attention has queries, .* too large for torch.float16"):
        traced(loaded(network), keep="qk", dtype=torch.float16)
    with torch.no_grad():
        network.encoder.layers[0].attention.v.weight.fill_(float("nan"))  # type: ignore[union-attr]
    for keep in KEEPS:
        with pytest.raises(RegardError, match="not finite"):
            traced(loaded(network), keep=keep)


def joint(tokens: int = 7, heads: int = 3, width: int = 5) -> AttentionInputs:
    """Queries, keys and values of one product, as views."""
    made = torch.randn(1, tokens, 3, heads, width)
    q, k, v = (made[:, :, place].transpose(1, 2) for place in range(3))
    return AttentionInputs(q=q, k=k, v=v, mask=Causal())


def test_a_view_of_a_joint_projection_does_not_keep_the_values() -> None:
    inputs = joint()
    kept = kept_inputs(inputs, KeepPolicy(keep="qk"))
    assert torch.equal(kept.q, inputs.q)
    assert kept_bytes((kept.q, kept.k)) == 2 * 7 * 3 * 5 * 4
    alive = weakref.ref(inputs.v)
    storage = inputs.q.untyped_storage().data_ptr()
    del inputs
    gc.collect()
    assert alive() is None
    assert storage not in {kept.q.untyped_storage().data_ptr(), kept.k.untyped_storage().data_ptr()}


def test_what_covers_its_memory_is_not_copied() -> None:
    inputs = joint()
    kept = kept_inputs(inputs, KeepPolicy(keep="qkv"))
    assert kept.k.data_ptr() == inputs.k.data_ptr()
    half = kept_inputs(inputs, KeepPolicy(keep="qkv", dtype=torch.bfloat16))
    # One conversion of the one piece of memory, of which all three are views again.
    assert half.v.untyped_storage().data_ptr() == half.q.untyped_storage().data_ptr()
    assert torch.equal(half.v, inputs.v.bfloat16())
    assert kept_bytes((half.q, half.k, half.v)) == 3 * 7 * 3 * 5 * 2


def test_a_bias_of_queries_shares_their_memory_when_they_are_converted() -> None:
    model = loaded(folders.network("deberta-v2"))
    inputs = traced(model, keep="qk", dtype=torch.bfloat16).attention_of(0).inputs
    assert inputs.bias.c2p.vectors.data_ptr() == inputs.q.data_ptr()  # type: ignore[union-attr]
    assert inputs.bias.p2c.vectors.data_ptr() == inputs.k.data_ptr()  # type: ignore[union-attr]
    assert inputs.bias.c2p.vectors.dtype == torch.bfloat16  # type: ignore[union-attr]


def test_values_are_let_go_of_during_the_pass() -> None:
    """What is not kept is freed before the next layer runs."""
    network = tiny.decoder().float()
    alive: list[weakref.ref[Tensor]] = []
    left: list[int] = []
    for layer in network.decoder.layers:  # type: ignore[union-attr]
        layer.attention.v.register_forward_hook(lambda *args: alive.append(weakref.ref(args[2])))  # type: ignore[union-attr]
        layer.register_forward_hook(lambda *args: left.append(sum(each() is not None for each in alive)))
    traced(loaded(network), keep="qk")
    assert left == [0] * tiny.DECODER_DEPTH


def test_a_record_without_values() -> None:
    inputs = joint()
    padded = inputs.changed(mask=Causal() & Padding(torch.tensor([[True] * 6 + [False]])))
    record = ScoreInputs(**{name: value for name, value in padded.__dict__.items() if name != "v"})
    assert (record.num_heads, record.q_len, record.k_len) == (3, 7, 7)
    assert repr(record) == "ScoreInputs(q (1, 3, 7, 5), k (1, 3, 7, 5), scale 0.447214)"
    one = record.head(-1)
    assert isinstance(one, ScoreInputs)
    assert torch.equal(one.q, inputs.q[:, 2:])
    assert isinstance(record.changed(scale=2.0), ScoreInputs)
    with pytest.raises(InputError, match="k must have q's batch"):
        ScoreInputs(q=inputs.q, k=inputs.k[..., :3])


def test_a_part_of_a_sequence() -> None:
    part = Partial({1: "b", 3: "d"}, 4, what="thing", why="it was lost", numbers=(0, 2, 4, 6))
    assert (len(part), part[1], part[-1], part[1:2]) == (4, "b", "d", ("b",))
    for place, number in ((0, 0), (2, 4), (-2, 4)):
        with pytest.raises(InputError, match=f"thing {number} is not in this trace: it was lost"):
            part[place]
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            part[wrong]
    with pytest.raises(InputError):
        list(part)
    assert repr(part) == "Partial(thing 1, 3 of 4)"


def test_what_is_made_of_a_whole_trace_names_what_it_lacks(loaded_tiny: Loaded) -> None:
    text = "the fishing bank by the river"
    some = trace_text(loaded_tiny, text, keeping=KeepPolicy(layers=[0]))
    queries = trace_text(loaded_tiny, text, keeping=KeepPolicy(keep="qk"))
    stream = trace_text(loaded_tiny, text, keeping=KeepPolicy(keep="residual"))
    whole = trace_text(loaded_tiny, text)
    for ours, theirs in zip(*(page_record(each).layers["encoder"] for each in (queries, whole)), strict=True):
        assert np.array_equal(ours.q, theirs.q)
    for trace in (some, stream):
        with pytest.raises(InputError, match=r"attention layer [01] is not in this trace"):
            page_record(trace)
    for trace in (some, queries):
        with pytest.raises(InputError, match=r"keep=|layers="):
            compare([trace, whole], "bank")
    assert np.array_equal(
        compare([stream, whole], "bank").similarity, compare([whole, whole], "bank").similarity
    )
    with pytest.raises(InputError, match='keep="residual"'):
        _ = stream.num_heads
    assert repr(stream) == "Trace('tiny', 9 tokens, 2 layers, keep=\"residual\")"


def test_parity_of_the_layers_that_are_kept(loaded_tiny: Loaded) -> None:
    parity = trace_text(loaded_tiny, TEXT, keeping=KeepPolicy(keep="qkv", layers=[1])).parity()
    assert [each.layer for each in parity.layers] == [1]
    assert 0.0 < parity.largest <= parity.bound
    with pytest.raises(InputError, match=r'parity checks attention.*keep="residual"'):
        trace_text(loaded_tiny, TEXT, keeping=KeepPolicy(keep="residual")).parity()


def test_free_pages_go_back_when_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(_keep, "trim_malloc", lambda: calls.append(0))
    monkeypatch.setattr(_keep, "_kept_since", 0)
    half = torch.empty(_keep._GIVEN_BACK_EVERY // 2, dtype=torch.int8)
    expected = 0
    for size, device, more in ((0, "cpu", 0), (1, "cpu", 0), (0, "meta", 0), (0, "cpu", 1), (0, "cpu", 0)):
        kept_tensor(half[size:].to(device), KeepPolicy(keep="residual"))
        expected += more
        assert len(calls) == expected
