"""A score, split: each part against loops forward through tiny networks, the cuts against edited models."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import lens_models
import regard
from regard.core import AttentionInputs, Taps
from regard.core.errors import InputError
from regard.tracing import Add, Trace, Zero, edited, trace_ids, trace_text
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.models import folders, tiny
from unit.tracing import measured
from unit.tracing.conftest import make_loaded
from unit.tracing.measured import NETWORKS, of_family, traced
from unit.tracing.reasons import by_hand

CASES = [
    ("bert", "encoder", 1),  # post-norm, positions and token types
    ("electra", "encoder", 1),  # embeddings that are projected
    ("mpnet", "encoder", 1),  # T5's buckets
    ("gpt2", "decoder", 1),  # pre-norm
    ("gemma2", "decoder", 1),  # norms before and after, a soft cap, turns, grouped heads, a window
    ("qwen3", "decoder", 1),  # norms of queries and keys
    ("modernbert", "encoder", 1),  # a layer that reads without a norm
    ("bart", "cross", 2),
    ("t5", "encoder", 1),
    ("t5", "cross", 1),  # keys behind the encoder's last norm
]


def made(name: str) -> Trace:
    return traced(of_family(name))


def writer_of(part: Any) -> Any:
    """As `by_hand` names it."""
    writer = part.writer
    if writer.name == "head":
        return "head", writer.layer, writer.head, writer.kind
    return ("ffn", writer.layer) if writer.name == "ffn" else writer.name


def whole(parts: by_hand.Parts) -> by_hand.Parts:
    """With each head's sources summed."""
    found: by_hand.Parts = {}
    for name, x in parts.items():
        key = name[:4] if name[0] == "head" else name
        found[key] = found.get(key, 0.0) + x
    return found


@pytest.mark.parametrize("against", [None, 1, "score"])
@pytest.mark.parametrize(("name", "kind", "layer"), CASES)
def test_every_pair_of_parts(name: str, kind: Any, layer: int, against: Any) -> None:
    trace = made(name)
    inputs: AttentionInputs = trace.attention_of(layer, kind).inputs
    head, query, key = 2, 4, 3
    options: dict[str, Any] = {"of": "score"} if against == "score" else {"against": against}
    found = trace.why(layer, head, query, key, kind=kind, **options)
    q = by_hand.side(trace, kind, layer, head, "q")
    k = by_hand.side(trace, kind, layer, head, "k")
    product = inputs.factor * (sum(q.values())[query] @ sum(k.values()).T)  # type: ignore[index, union-attr]
    cap = inputs.softcap
    ratio = np.ones_like(product) if cap is None else cap * np.tanh(product / cap) / product
    scores = trace.scores(layer, head, kind=kind, query=query)[0].double().numpy()
    visible = np.isfinite(scores)
    assert_close_to_largest((ratio * product + bias(inputs, head, query))[visible], scores[visible], 1e-6)
    times = np.zeros_like(product)
    times[key] = 1.0
    if against is None:
        times -= visible / visible.sum()
    elif against != "score":
        times[against] -= 1.0
    asked, carried = whole(q), whole(k)
    assert {writer_of(part) for part in found.query_parts} == set(asked)
    assert {writer_of(part) for part in found.key_parts} == set(carried)
    wanted = np.array(
        [
            [
                inputs.factor * asked[writer_of(one)][query] @ ((times * ratio) @ carried[writer_of(other)])
                for other in found.key_parts
            ]
            for one in found.query_parts
        ]
    )
    assert_close_to_largest(found.parts, wanted, FP64)
    assert np.abs(wanted).max() > 1e-3
    assert [part.value for part in found.key_parts] == pytest.approx(wanted.sum(axis=0), rel=1e-9, abs=1e-12)
    assert [part.value for part in found.query_parts] == pytest.approx(
        wanted.sum(axis=1), rel=1e-9, abs=1e-12
    )
    assert found.bias == pytest.approx(times @ np.where(visible, bias(inputs, head, query), 0.0), abs=1e-12)
    assert abs(found.error) < 1e-12
    values = [abs(part.value) for part in found.key_parts]
    assert values == sorted(values, reverse=True)
    # By source: of the key's own score, and of the query against what was subtracted.
    for side, parts in ((q, found.query_parts), (k, found.key_parts)):
        for part in parts:
            if part.writer.name != "head":
                assert part.sources is None
                continue
            assert part.sources is not None
            for source, value in enumerate(part.sources.tolist()):
                x = side[(*writer_of(part), source)]
                mine = (
                    inputs.factor * x[query] @ ((times * ratio) @ sum(k.values()))
                    if side is q
                    else inputs.factor * ratio[key] * x[key] @ sum(q.values())[query]  # type: ignore[index]
                )
                assert value == pytest.approx(mine, rel=1e-9, abs=1e-12)


def bias(inputs: AttentionInputs, head: int, query: int) -> Any:
    if inputs.bias is None:
        return 0.0
    block = inputs.bias.block(torch.tensor([query]), torch.arange(inputs.k_len))  # type: ignore[union-attr]
    return by_hand.numbers(block[0, min(head, block.shape[1] - 1), 0])


@pytest.mark.parametrize("family", sorted({*folders.CONFIGS, *NETWORKS}))
def test_every_family_sums_or_is_refused(family: str) -> None:
    network = NETWORKS[family]() if family in NETWORKS else of_family(family)
    if network.untraced is not None:
        return
    trace = traced(network)
    refused = ("bahdanau", "deberta-v2", "expire-span", "srupp")
    for kind in trace.kinds:
        for layer in trace.layers_of(kind):
            if family in refused:
                with pytest.raises(InputError, match=f"layer {layer} of tiny does more"):
                    trace.why(layer, 0, 3, 2, kind=kind)
                continue
            for head in range(trace.attention_of(layer, kind).inputs.num_heads):
                found = trace.why(layer, head, 3, 2, kind=kind)
                scores = trace.scores(layer, head, kind=kind, query=3)[0].double()
                mean = scores[scores.isfinite()].mean()
                assert found.total == pytest.approx(
                    float(scores[2] - mean), abs=1e-6 * float(scores[2].abs() + 1)
                )
                assert abs(found.error) < FP64 * max(1.0, abs(found.score))


# --- cuts


def test_what_is_cut_is_gone_from_the_model() -> None:
    loaded = make_loaded()
    trace = trace_text(loaded, "the fishing bank by the river")
    found = trace.why(1, 2, "bank", "river", check=True)
    for side, token in ((found.query_parts, found.query), (found.key_parts, found.key)):
        tried = [part for part in side if part.weight is not None]
        assert len(tried) == 3
        assert [part for part in side if part.writer.name != "biases"][:3] == tried
        for part in tried:
            weights = without(trace, part.writer, token)
            assert part.weight == pytest.approx(float(weights[2, found.query, found.key]), abs=1e-6)
    assert all(part.weight is None for part in trace.why(1, 2, "bank", "river").key_parts)
    assert f"weight without (was {found.weight:.3f})" in str(found)
    assert "weight without" not in str(trace.why(1, 2, "bank", "river"))


def without(trace: Trace, writer: Any, token: int) -> Any:
    """Layer 1's weights when what was written at a token is zero, by the taps of the network."""
    tables = {"word": "tokens", "position": "positions", "token_type": "token_types"}
    taps = {"head": "layers.0.attention.context", "ffn": "layers.0.ffn.output"}
    tap = taps.get(writer.name, f"embeddings.{tables.get(writer.name)}")

    def zero(value: Any) -> Any:
        value = value.clone()
        if writer.name == "head":
            value[:, writer.head, token] = 0.0
        else:
            value[:, token] = 0.0
        return value

    seen: list[Any] = []
    network = trace.require_model().network
    with torch.no_grad():
        network(
            torch.tensor([trace.token_ids]),
            token_types=torch.zeros(1, len(trace.tokens), dtype=torch.int64),
            taps=Taps({tap: zero, "layers.1.attention.weights": seen.append}),
        )
    return seen[0][0]


# --- what is shown


def test_what_is_printed_and_the_rows() -> None:
    trace = trace_text(make_loaded(), "the fishing bank by the river")
    found = trace.why(1, 2, "bank", "river")
    text = str(found)
    assert text.startswith("Head 1.2: bank looks at river, weight 0.")
    assert "over the mean of 9 keys; the parts sum to it within" in text
    assert max(map(len, text.splitlines())) <= 80
    rows = found.to_rows()
    assert len(rows) == len(found.query_parts) * len(found.key_parts) + 1
    assert sum(row["value"] for row in rows) == pytest.approx(found.total)
    assert rows[0]["value"] == float(found.parts[0, 0])
    assert set(found.to_pandas().columns) == set(rows[0])
    assert repr(found).startswith(f"Why(head 1.2: {found.sentence}; error ")
    for value, words in ((1.0, "bank looks at river"), (-1.0, "bank looks away from river")):
        sentence = replace(found, value=value).sentence
        part = max(found.key_parts, key=lambda each: value * each.value)
        assert sentence.startswith(f"{words} above all because of {part}: {part.value:+.2f} of {value:+.2f}")
    assert " over by" in trace.why(1, 2, "bank", "river", against="by").sentence
    assert " over " not in trace.why(1, 2, "bank", "river", of="score").sentence


def test_a_bias_that_decides_is_said() -> None:
    found = made("t5").why(0, 1, 3, 2, kind="encoder")
    assert found.bias
    assert "their distance" in str(found)
    larger = replace(found, bias=100.0, value=100.0 + found.value)
    assert "above all because of their distance: +100.00 of" in larger.sentence


# --- refused


def test_what_cannot_be_asked() -> None:
    trace = made("gpt2")
    for pair, options, message in (
        ((0, 3, 5), {}, "key must be a token that the query may see, by the mask; got 5"),
        ((0, 3, 2), {"against": 6}, "against must be a token that the query may see"),
        ((0, 3, 2), {"against": 1, "of": "score"}, 'against must be None where of="score"'),
        ((0, 3, 2), {"of": "weight"}, "of must be one of difference, score"),
        ((0, 99, 2), {}, "query must be"),
        ((3, 3, 2), {}, "head must be from 0 to 2"),
    ):
        with pytest.raises(InputError, match=message):
            trace.why(1, *pair, **options)  # type: ignore[arg-type]


def test_through_the_lens_what_does_more_is_refused() -> None:
    qwen3 = transformers.Qwen3Config(**lens_models.GROUPED)
    for hf_model, told in (
        (lens_models.FAMILIES["bert"](), "layer 0 of BertForMaskedLM does more"),  # a norm after each sum
        (lens_models.FAMILIES["gpt_oss"](), "does not show through the lens"),  # a mixture of experts
        (lens_models.FAMILIES["opt"](), "of decoder layer 1 is not seen through the lens"),  # scales q itself
        (
            lens_models.build(transformers.Qwen3ForCausalLM, qwen3),
            "not seen through the lens",
        ),  # norms q and k
    ):
        trace = regard.lens(hf_model).trace(token_ids=measured.IDS)
        with pytest.raises(InputError, match=told):
            trace.why(1, 0, 3, 2)
    both = regard.lens(lens_models.FAMILIES["t5"]()).trace(token_ids=measured.IDS, target_ids=measured.IDS)
    with pytest.raises(InputError, match="of cross layer 1 is not seen through the lens"):
        both.why(1, 0, 3, 2, kind="cross")


def test_through_the_lens_an_edit_of_the_stream_is_refused() -> None:
    loaded = regard.lens(lens_models.FAMILIES["gpt2"]())
    steered = loaded.edited(Add("residual", layer=1, value=torch.ones(lens_models.D_MODEL)))
    with pytest.raises(InputError, match=r"an edit wrote at layers\.1\.input"):
        steered.trace(token_ids=measured.IDS).why(1, 0, 3, 2)
    cut = loaded.edited(Zero("k", layer=1, head=0, key=2)).trace(token_ids=measured.IDS)
    with pytest.raises(InputError, match="do not sum to the model's own"):
        cut.why(1, 0, 3, 2)


def test_an_edit_of_weights_is_split_and_of_the_stream_refused() -> None:
    loaded = tiny.loaded(of_family("gpt2"))
    cut = edited(loaded, [Zero("weights", layer=0, head=1, key=2)])
    trace = trace_ids(cut, measured.IDS)
    assert abs(trace.why(1, 0, 3, 2).error) < FP64
    steered = edited(loaded, [Add("residual", layer=1, value=torch.ones(15, dtype=torch.float64))])
    with pytest.raises(InputError, match=r"an edit wrote at layers\.1\.input"):
        trace_ids(steered, measured.IDS).why(1, 0, 3, 2)
    written = edited(loaded, [Zero("k", layer=1, head=0, key=2)])
    with pytest.raises(InputError, match="do not sum to the model's own"):
        trace_ids(written, measured.IDS).why(1, 0, 3, 2)
    removed = edited(loaded, [Zero("weights", layer=1, head=0, key=2)])
    with pytest.raises(InputError, match="an edit wrote the weights"):
        trace_ids(removed, measured.IDS).why(1, 0, 3, 2)


def test_a_trace_without_its_parts_says_so() -> None:
    loaded = make_loaded()
    model = regard.Model(loaded)
    with pytest.raises(InputError, match='keep="all"'):
        model.trace("the river bank", keep="qk").why(1, 0, "bank", "river")


def test_in_float32_the_error_is_rounding() -> None:
    trace = trace_text(make_loaded(), "the fishing bank by the river")
    for head in range(3):
        assert abs(trace.why(1, head, "bank", "river").error) < FP32_OF_LARGEST
