"""Statistics of every head against loops over the trace's own weights, the sets of tokens written by hand."""

import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core import AttentionInputs
from regard.core.errors import InputError
from regard.tracing import AttentionTrace, KeepPolicy, Statistics, Trace, trace_ids, trace_read, trace_text
from regard.views._assets import read
from tolerances import FP32_OF_LARGEST, VARIANCE_OF_DISTANCE, WEIGHTS, assert_close_to_largest
from unit.models import tiny
from unit.tracing.conftest import make_loaded, make_tokenizer

TEXT, PAIR = "The fishing bank, by the river.", "money by the bank."
TOKENS = (
    *("[CLS]", "the", "fish", "##ing", "bank", "[UNK]", "by", "the", "river", ".", "[SEP]"),
    *("money", "by", "the", "bank", ".", "[SEP]"),
)
SPECIAL, MARKS = [0, 10, 16], [5, 9, 15]
FIRST, SECOND = list(range(1, 10)), list(range(11, 16))
PIECES = {2: [3], 3: [2]}
AGAIN = {1: [7, 13], 7: [1, 13], 13: [1, 7], 4: [14], 14: [4], 6: [12], 12: [6]}
OTHER = dict.fromkeys(FIRST, SECOND) | dict.fromkeys(SECOND, FIRST)

Sets = dict[str, dict[int, list[int]]]


def every(keys: list[int], queries: int) -> dict[int, list[int]]:
    return dict.fromkeys(range(queries), keys)


def by_loops(weights: Tensor, sets: Sets, *, cross: bool = False, sink: bool = False) -> dict[str, Any]:
    """Every statistic of (heads, queries, columns), one weight at a time."""
    told: dict[str, Any] = {}
    for whole in weights.double().tolist():
        rows: dict[str, list[float]] = {}
        queries, keys = len(whole), len(whole[0]) - sink
        if not cross:
            sets = sets | {
                "to_self": {i: [i] for i in range(queries)},
                "to_previous": {i: [i - 1] for i in range(1, queries)},
                "to_next": {i: [i + 1] for i in range(queries - 1)},
            }
        for i, row in enumerate(whole):
            weight = row[:keys]
            total = math.fsum(weight)
            one = {
                "entropy": -math.fsum(w * math.log(w) for w in row if w > 0),
                "largest": max(weight),
                "largest_at": weight.index(max(weight)),
                "to_first": weight[0],
            }
            if not cross:
                mean = math.fsum(w * abs(i - j) for j, w in enumerate(weight)) / total
                squares = math.fsum(w * (abs(i - j) - mean) ** 2 for j, w in enumerate(weight))
                one |= {"distance": mean, "spread": math.sqrt(squares / total)}
            if sink:
                one["to_sink"] = row[keys]
            for name, of_query in sets.items():
                one[name] = math.fsum(weight[j] for j in of_query[i]) if i in of_query else math.nan
            for name, value in one.items():
                rows.setdefault(name, []).append(value)
        rows["received"] = [math.fsum(row[j] for row in whole) for j in range(keys)]
        for name, values in rows.items():
            told.setdefault(name, []).append(values)
    return told


def compare(found: Statistics, place: int, wanted: dict[str, Any]) -> None:
    """One layer's statistics: those wanted, and no others."""
    assert set(found.names) - {"top_weights", "top_keys"} == set(wanted)
    for name, values in wanted.items():
        actual, expected = getattr(found, name)[place], torch.tensor(values, dtype=torch.float64)
        assert actual.shape == expected.shape, name
        assert torch.equal(actual.isnan(), expected.isnan()), name
        if name == "largest_at":
            assert torch.equal(actual, expected.long())
        elif name == "spread":
            assert (actual.double() ** 2 - expected**2).abs().max() < VARIANCE_OF_DISTANCE
        else:
            assert_close_to_largest(actual.nan_to_num(-1.0), expected.nan_to_num(-1.0), 2 * FP32_OF_LARGEST)


PAIR_SETS: Sets = {
    "to_special": every(SPECIAL, 17),
    "to_punctuation": every(MARKS, 17),
    "to_other_sentence": OTHER,
    "to_same_word": PIECES,
    "to_repeated_word": AGAIN,
}


@pytest.fixture(scope="module")
def pair() -> Trace:
    return trace_text(make_loaded(), TEXT, PAIR)


@pytest.fixture(scope="module")
def both() -> Trace:
    """An encoder and a decoder, each with a text of its own."""
    torch.manual_seed(7)
    tokenizer = make_tokenizer()
    model = tiny.loaded(tiny.both().float(), tokenizer=tokenizer)
    return trace_read(model, tokenizer.encode("the fishing bank"), tokenizer.encode("by the bank. by"))


def test_a_pair(pair: Trace) -> None:
    found = pair.statistics(top_k=4)
    assert (found.kind, found.layers) == ("encoder", (0, 1))
    assert found.tokens == found.key_tokens == TOKENS
    for layer in range(2):
        weights = pair.weights(layer)
        compare(found, layer, by_loops(weights, PAIR_SETS))
        top = weights.topk(4, dim=2)
        assert found.top_weights is not None
        assert found.top_keys is not None
        assert found.top_weights[layer].sub(top.values).abs().max() < WEIGHTS
        assert torch.equal(found.top_keys[layer], top.indices)
    for name in found.names:
        dtype = torch.int64 if name in ("largest_at", "top_keys") else torch.float32
        assert getattr(found, name).dtype == dtype


def test_what_a_text_lacks_is_none() -> None:
    found = trace_text(make_loaded(), "the river bank").statistics()
    for name in (
        *("to_punctuation", "to_other_sentence", "to_same_word", "to_repeated_word", "to_sink"),
        *("top_weights", "top_keys"),
    ):
        assert getattr(found, name) is None
        assert name not in found.names
    assert found.to_special is not None


def test_ids_have_no_words() -> None:
    found = trace_ids(make_loaded(tokenizer=False), [2, 4, 5, 6, 11, 4, 3]).statistics()
    for name in ("to_special", "to_punctuation", "to_other_sentence", "to_same_word", "to_repeated_word"):
        assert getattr(found, name) is None
    assert found.distance is not None


def test_ids_with_a_tokenizer_have_special_tokens_and_marks() -> None:
    trace = trace_ids(make_loaded(), [2, 4, 5, 6, 11, 4, 3])
    sets = {"to_special": every([0, 6], 7), "to_punctuation": every([4], 7)}
    compare(trace.statistics(), 1, by_loops(trace.weights(1), sets))


def test_a_mark_within_a_word_is_no_punctuation() -> None:
    """The pieces of "isn't" are unknown ones, whose surface is isn, ' and t."""
    found = trace_text(make_loaded(), "isn't").statistics()
    assert found.to_punctuation is None
    assert found.to_same_word is not None
    assert found.to_same_word.isnan()[0, 0].tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("layer", range(3))
def test_a_decoder_with_grouped_heads(layer: int) -> None:
    torch.manual_seed(7)
    network = tiny.decoder().float()
    trace = trace_text(tiny.loaded(network, tokenizer=make_tokenizer()), "the fishing by the river")
    found = trace.statistics(top_k=2)
    sets = {
        "to_special": every([0, 7], 8),
        "to_same_word": {2: [3], 3: [2]},
        "to_repeated_word": {1: [5], 5: [1]},
    }
    compare(found, layer, by_loops(trace.weights(layer), sets))
    assert found.top_keys is not None
    assert found.top_weights is not None
    assert found.top_keys[layer, :, 0].tolist() == [[0, -1]] * 5
    assert not found.top_weights[layer, :, 0, 1].any()
    assert found.to_next is not None
    assert not found.to_next[..., :-1].any()


def test_each_kind_of_an_encoder_decoder(both: Trace) -> None:
    encoder = {"to_special": every([0, 5], 6), "to_same_word": {2: [3], 3: [2]}}
    decoder = {
        "to_special": every([0, 6], 7),
        "to_punctuation": every([4], 7),
        "to_repeated_word": {1: [5], 5: [1]},
    }
    cross = {"to_special": every([0, 5], 7)}
    for kind, sets, layers in (("encoder", encoder, 2), ("decoder", decoder, 3), ("cross", cross, 3)):
        found = both.statistics(kind)  # type: ignore[arg-type]
        assert found.layers == tuple(range(layers))
        for layer in range(layers):
            weights = both.weights(layer, kind=kind)  # type: ignore[arg-type]
            compare(found, layer, by_loops(weights, sets, cross=kind == "cross"))
    crossed = both.statistics("cross")
    assert (len(crossed.tokens), len(crossed.key_tokens)) == (7, 6)
    assert crossed.entropy.shape == (3, 5, 7)
    assert crossed.received.shape == (3, 5, 6)
    with pytest.raises(InputError, match='kind must be "encoder" or "decoder" or "cross"'):
        both.statistics()


def test_layers_without_cross_attention(both: Trace) -> None:
    assert both.decoder is not None
    decoder = replace(
        both.decoder,
        cross_attention=(both.decoder.cross_attention[0], both.decoder.cross_attention[2]),
        cross_layers=(0, 2),
    )
    some = replace(both, decoder=decoder)
    found, whole = some.statistics("cross"), both.statistics("cross")
    assert found.layers == (0, 2)
    assert torch.equal(found.entropy, whole.entropy[[0, 2]])
    with pytest.raises(InputError, match="layer must be one with cross-attention, of 0, 2; got 1"):
        some.statistics("cross", layers=1)


def test_chosen_layers(pair: Trace) -> None:
    whole = pair.statistics()
    for layers, numbers in ((1, (1,)), (-2, (0,)), ([1, 0], (1, 0)), ((0, -1), (0, 1))):
        some = pair.statistics(layers=layers)  # type: ignore[arg-type]
        assert some.layers == numbers
        assert torch.equal(some.entropy, whole.entropy[list(numbers)])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *(
            (lambda pair, layers=layers: pair.statistics(layers=layers), "layer must be from 0 to 1, or nega")
            for layers in (2, -3, [0, 5], 1.0, ["1"])
        ),
        (lambda pair: pair.statistics(layers=[]), "layers must be at least one layer"),
        (lambda pair: pair.statistics(top_k=18), "top_k must be from 0 to 17, the number of keys; got 18"),
        (lambda pair: pair.statistics(kind="decoder"), 'kind must be "encoder"'),
        *(
            (lambda pair, name=name: pair.statistics(top_k=2).mean(name), f"of entropy, .*; got '{name}'")
            for name in ("largest_at", "top_keys", "top_weights", "to_sink", "tokens", "nothing")
        ),
    ],
)
def test_what_is_refused(pair: Trace, ask: Callable[[Trace], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(pair)


def test_a_trace_that_kept_some_layers() -> None:
    loaded = make_loaded()
    whole = trace_text(loaded, TEXT, PAIR).statistics()
    some = trace_text(loaded, TEXT, PAIR, keeping=KeepPolicy(keep="qk", layers=[1])).statistics()
    assert some.layers == (1,)
    assert torch.equal(some.entropy[0], whole.entropy[1])
    residual = trace_text(loaded, TEXT, PAIR, keeping=KeepPolicy(keep="residual"))
    with pytest.raises(InputError, match="is not in this trace"):
        residual.statistics()


def with_inputs(trace: Trace, change: Any) -> Trace:
    """The same trace of other records."""
    assert trace.encoder is not None
    layers = tuple(
        AttentionTrace(inputs=change(layer, each.inputs), context=each.context)
        for layer, each in enumerate(trace.encoder.attention)
    )
    return replace(trace, encoder=replace(trace.encoder, attention=layers))


def test_sinks(pair: Trace) -> None:
    sinks = torch.tensor([0.3, -2.0, 4.0])
    trace = with_inputs(pair, lambda layer, inputs: replace(inputs, sinks=sinks))
    found = trace.statistics()
    for layer in range(2):
        compare(found, layer, by_loops(trace.weights(layer), PAIR_SETS, sink=True))


def test_layers_with_fewer_heads_and_some_with_sinks(pair: Trace) -> None:
    """As pruning leaves them: what is not there is NaN, and counts in no mean."""

    def change(layer: int, inputs: AttentionInputs) -> AttentionInputs:
        if layer == 0:
            return replace(inputs, q=inputs.q[:, :2], k=inputs.k[:, :2], v=inputs.v[:, :2])
        return replace(inputs, sinks=torch.zeros(3))

    trace = with_inputs(pair, change)
    found = trace.statistics()
    whole = pair.statistics()
    assert found.entropy.shape == whole.entropy.shape
    assert torch.equal(found.entropy[0, :2], whole.entropy[0, :2])
    assert found.entropy[0, 2].isnan().all()
    assert (found.largest_at[0, 2] == -1).all()
    assert found.to_sink is not None
    assert found.to_sink[0].isnan().all()
    assert not found.to_sink[1].isnan().any()
    assert found.mean("entropy").isnan().tolist() == [[False, False, True], [False] * 3]


def test_means_leave_out_what_does_not_exist(pair: Trace) -> None:
    found = pair.statistics(top_k=1)
    weights = pair.weights(1, 2).double()
    wanted = {
        "entropy": -(weights * weights.log()).sum(1).mean(),
        "to_previous": weights.diagonal(-1).mean(),
        "to_same_word": (weights[2, 3] + weights[3, 2]) / 2,
        "to_other_sentence": torch.cat((weights[1:10, 11:16].sum(1), weights[11:16, 1:10].sum(1))).mean(),
        "received": weights.sum(0).mean(),
    }
    for name, value in wanted.items():
        mean = found.mean(name)
        assert mean.shape == (2, 3)
        assert mean[1, 2].item() == pytest.approx(value.item(), rel=FP32_OF_LARGEST)


def test_it_says_what_there_is(pair: Trace) -> None:
    assert repr(pair.statistics(layers=0)) == (
        "Statistics(encoder, 1 layer x 3 heads x 17 queries: entropy, largest, largest_at, distance, spread, "
        "to_self, to_previous, to_next, to_first, to_special, to_punctuation, to_other_sentence, "
        "to_same_word, to_repeated_word, received)"
    )


def test_the_trace_is_left_as_it_was(pair: Trace) -> None:
    before = [each.inputs.q.clone() for each in pair.attention()]
    weights = pair.weights(0)
    pair.statistics(top_k=1)
    assert all(torch.equal(q, each.inputs.q) for q, each in zip(before, pair.attention(), strict=True))
    assert torch.equal(pair.weights(0), weights)


def test_it_shows_itself(trace: Trace) -> None:
    found = trace.statistics()
    lines = str(found).splitlines()
    assert lines[2].split()[:3] == ["head", "entropy", "distance"]
    assert lines[3].split()[:2] == ["0.0", f"{found.mean('entropy')[0, 0]:.3f}"]
    assert len(found.to_pandas()) == 6
    assert found.to_rows()[5]["to_special"] == pytest.approx(float(found.mean("to_special")[1, 2]))
    assert "<pre" in found._repr_html_()


def test_the_page_says_what_each_quantity_is() -> None:
    told = json.loads(read("statistics.json"))
    named = [each["name"] for each in told]
    others = {"kind", "layers", "tokens", "key_tokens", "largest_at", "received", "top_weights", "top_keys"}
    quantities = {field.name for field in fields(Statistics)} - others
    assert set(named) == quantities | {"divergence", "compared"}  # of two texts: see the difference
    assert len(named) == len(set(named))
    assert all(each["label"] and each["says"] for each in told)
