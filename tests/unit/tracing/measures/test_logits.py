"""The logit lens against norm and head by hand; direct attribution against matrices of frozen norms."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lens_models
import regard
from regard.blocks import PostNorm, RMSNorm, SandwichNorm
from regard.core.errors import InputError
from regard.models import LanguageModelHead
from regard.models.families.deberta import Convolution
from regard.tracing import Trace, Zero
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.models import tiny
from unit.tracing import measured
from unit.tracing.conftest import make_loaded
from unit.tracing.measured import NETWORKS, traced

HEADED = ["encoder", "decoder", "both", "bart", "gemma2", "gemma3_text"]
LENSED = ["bert", "gpt2", "llama", "gemma2", "gpt_oss", "t5", "bart"]


def normed(norm: Any, x: np.ndarray) -> np.ndarray:
    """A norm by its formula."""
    if norm is None or isinstance(norm, nn.Identity):
        return x
    weight = norm.weight.detach().double().numpy()
    if isinstance(norm, RMSNorm):
        return x / np.sqrt((x**2).mean() + norm.eps) * (norm.offset + weight)
    return (x - x.mean()) / np.sqrt(x.var() + norm.eps) * weight + norm.bias.detach().double().numpy()


def logits_by_hand(network: Any, state: np.ndarray) -> np.ndarray:
    head = network.head
    logits = head.output.weight.detach().double().numpy() @ (head.scale * state)
    if head.output.bias is not None:
        logits = logits + head.output.bias.detach().double().numpy()
    if head.softcap is not None:
        logits = head.softcap * np.tanh(logits / head.softcap)
    return logits if head.bias is None else logits + head.bias[0].double().numpy()


# --- the logit lens


@pytest.mark.parametrize("name", HEADED)
def test_norm_and_head_on_every_state(name: str) -> None:
    network: Any = NETWORKS[name]()
    trace = traced(network)
    kind: Any = list(network.prefixes)[-1]
    norm, hidden = network.stack(kind).norm, trace.stack(kind).hidden
    found = trace.logit_lens(slice(1, 3), k=4)
    assert found.positions == (1, 2)
    assert found.tokens == tuple(trace.stack(kind).tokens[1:3])
    assert found.ids.shape == found.logits.shape == (len(hidden), 2, 4)
    for layer, state in enumerate(hidden):
        for place, row in enumerate(found.positions):
            x = state[row].double().numpy()
            logits = logits_by_hand(network, x if layer == len(hidden) - 1 else normed(norm, x))
            best = np.argsort(-logits)[:4]
            assert found.ids[layer, place].tolist() == best.tolist()
            assert found.pieces[layer][place] == tuple(map(str, best))
            assert_close_to_largest(found.logits[layer, place], logits[best], FP32_OF_LARGEST)
            logs = logits[best] - np.log(np.exp(logits).sum())
            assert_close_to_largest(found.log_probabilities[layer, place], logs, FP32_OF_LARGEST)


@pytest.mark.parametrize("name", HEADED)
def test_the_last_layer_is_the_model(name: str) -> None:
    trace = traced(NETWORKS[name]().float())
    best = measured.seen(trace, [])["logits"][0].topk(3, dim=1)
    found = trace.logit_lens(k=3)
    assert torch.equal(found.ids[-1], best.indices)
    assert_close_to_largest(found.logits[-1], best.values, FP32_OF_LARGEST)
    assert repr(found) == f"LogitLens({len(found.ids)} layers x {len(found.tokens)} positions, the best 3)"


def test_a_masked_language_model(loaded: Any) -> None:
    del loaded
    model = regard.Model(make_loaded(head="masked-lm"))
    trace = model.trace("the fishing bank by the river")
    head: Any = model.network.head  # type: ignore[attr-defined]
    found = trace.logit_lens("bank", k=2)
    for layer, state in enumerate(trace.source.hidden):
        hidden = nn.functional.gelu(head.dense(state[4]))
        logits = head.output(nn.functional.layer_norm(hidden, (15,), head.norm.weight, head.norm.bias, 1e-12))
        assert found.ids[layer, 0].tolist() == logits.topk(2).indices.tolist()
        assert_close_to_largest(found.logits[layer, 0], logits.topk(2).values, FP32_OF_LARGEST)
    tokenizer = model.tokenizer
    for id, piece in zip(found.ids[-1, 0].tolist(), found.pieces[-1][0], strict=True):
        assert piece == (tokenizer.piece_of(id) or str(id))


@pytest.mark.parametrize("family", LENSED)
def test_through_the_lens_the_model_runs(family: str) -> None:
    hf_model = lens_models.FAMILIES[family]()
    model = regard.lens(hf_model)
    both = len(model.network.prefixes) == 2
    trace = model.trace(token_ids=measured.IDS, target_ids=measured.TARGET_IDS if both else None)
    found = trace.logit_lens(k=3)
    given = {"input_ids": torch.tensor([measured.IDS])}
    if both:
        given["decoder_input_ids"] = torch.tensor([measured.TARGET_IDS])
    with torch.no_grad():
        logits = hf_model(**given).logits[0]
    best = logits.topk(3, dim=1)
    assert torch.equal(found.ids[-1], best.indices)
    assert_close_to_largest(found.logits[-1], best.values, FP32_OF_LARGEST)
    assert not torch.equal(found.ids[0], found.ids[-1])


@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_through_the_lens_the_last_layer_is_the_edited_model(family: str) -> None:
    model = regard.lens(lens_models.FAMILIES[family]())
    both = len(model.network.prefixes) == 2
    arguments: Any = {"token_ids": measured.IDS, "target_ids": measured.TARGET_IDS if both else None}
    whole = model.trace(**arguments).logit_lens(k=3)
    edited = model.edited(Zero("attention", layer=0, kind="decoder"))
    found = edited.trace(**arguments).logit_lens(k=3)
    given = torch.tensor([measured.TARGET_IDS]) if both else None
    with torch.no_grad():
        logits = edited(torch.tensor([measured.IDS]), decoder_token_ids=given).logits[0]
    assert_close_to_largest(found.logits[-1], logits.topk(3, dim=1).values, FP32_OF_LARGEST)
    assert not torch.allclose(found.logits[-1], whole.logits[-1])


def test_states_that_were_kept_in_another_type() -> None:
    model = regard.Model(tiny.loaded(NETWORKS["decoder"]().float()))
    whole, half = (model.trace(token_ids=measured.IDS, dtype=each) for each in (None, torch.bfloat16))
    wanted, found = (each.logit_lens(k=1).logits for each in (whole, half))
    assert_close_to_largest(found, wanted, 2e-2)
    assert abs(half.direct_attribution(7).error) < 2e-2 * float(wanted.abs().max())


def test_a_head_over_the_vocabulary_is_needed() -> None:
    without, classifier = make_loaded(), make_loaded(head="token", num_labels=23)
    for loaded in (without, classifier):
        trace = regard.Model(loaded).trace("the fishing bank")
        with pytest.raises(InputError, match="tiny has no head that gives every position a logit for each"):
            trace.logit_lens()
    trace = regard.lens(lens_models.FAMILIES["marian"]()).trace(token_ids=[3], target_ids=[4])
    with pytest.raises(InputError, match="MarianModel has no head"):
        trace.logit_lens()
    with pytest.raises(InputError, match="came without the model"):
        replace(trace, loaded=None).logit_lens()


@pytest.mark.parametrize("name", ["decoder", "bart"])
def test_a_chosen_token_by_layer(name: str) -> None:
    trace = traced(NETWORKS[name]())
    whole = trace.logit_lens(k=31)
    assert whole.layers == ("input", *range(1, len(whole.ids)))
    targets = [5, 3, 30, *[7] * (len(whole.tokens) - 3)]
    for of, wanted in ((7, [7] * len(targets)), (targets, targets)):
        found = trace.logit_lens(of=of)
        assert (found.of, found.layers, found.positions) == (tuple(wanted), whole.layers, whole.positions)
        place = (whole.ids == torch.tensor(wanted)[:, None]).int().argmax(dim=2)
        assert torch.equal(found.ranks, place + 1)
        for field in ("logits", "log_probabilities"):
            expected = getattr(whole, field).gather(2, place[:, :, None])[:, :, 0]
            assert torch.equal(getattr(found, field), expected)
        assert torch.equal(found.probabilities, found.log_probabilities.exp())
    assert repr(trace.logit_lens(0, of=7)).startswith(f"TokenLens({len(whole.ids)} layers x 1 positions, ")


def test_a_chosen_token_by_its_name_and_one_that_is_none() -> None:
    trace = regard.Model(make_loaded(head="masked-lm")).trace("the fishing bank")
    assert trace.logit_lens("bank", of="river").of == (9,)
    for of, message in (
        (31, "got 31"),
        ([1, 2], "a token for each of the 1 positions; got 2"),
        (True, "True"),
    ):
        with pytest.raises(InputError, match=f"of must .*{message}"):
            trace.logit_lens("bank", of=of)


def test_the_lenses_show_themselves() -> None:
    trace = traced(NETWORKS["decoder"]())
    whole, river, alone = trace.logit_lens(k=2), trace.logit_lens(of=7), trace.logit_lens(1, of=7)
    lines = [line.split() for line in str(whole).splitlines()]
    assert lines[0] == ["layer", *whole.tokens[:6]]
    assert lines[2] == ["1", *(place[0] for place in whole.pieces[1][:6])]
    assert str(whole).endswith("The first 6 of 7 positions.")
    assert str(river).splitlines()[1].split() == ["input", *map(str, river.ranks[0, :6].tolist())]
    logit, probability, rank = (
        float(each[2, 0]) for each in (alone.logits, alone.probabilities, alone.ranks)
    )
    assert str(alone).splitlines()[3].split() == ["2", f"{logit:.3f}", f"{probability:.4f}", f"{rank:.0f}"]
    assert whole.to_rows()[3]["id"] == int(whole.ids[0, 1, 1])
    assert river.to_rows()[8]["rank"] == int(river.ranks[1, 1])


# --- loss


@pytest.mark.parametrize("name", ["decoder", "bart", "gemma2"])
def test_the_loss_is_the_cross_entropy_of_each_next_token(name: str) -> None:
    trace = traced(NETWORKS[name]())
    ids = trace.stack("decoder").encoding.token_ids
    logs = measured.seen(trace, [])["logits"][0].double().log_softmax(dim=1)
    found = trace.loss()
    assert found.dtype == torch.float32
    assert found[0].isnan()
    assert_close_to_largest(found[1:], -logs[range(len(ids) - 1), ids[1:]], FP32_OF_LARGEST)


@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_the_loss_is_that_of_transformers(family: str, tmp_path: Path) -> None:
    hf_model = lens_models.FAMILIES[family]()
    hf_model.save_pretrained(tmp_path)
    given = {"input_ids": torch.tensor([measured.IDS])}
    if family == "bart":
        given |= {"decoder_input_ids": torch.tensor([measured.TARGET_IDS])}
        labels = [*measured.TARGET_IDS[1:], -100]
    else:
        labels = measured.IDS
    with torch.no_grad():
        wanted = float(hf_model(**given, labels=torch.tensor([labels])).loss)
    target = measured.TARGET_IDS if family == "bart" else None
    for model in (regard.lens(hf_model), regard.load(tmp_path)):
        found = float(model.trace(token_ids=measured.IDS, target_ids=target).loss().nanmean())
        assert abs(found - wanted) < FP32_OF_LARGEST * wanted


def test_a_loss_that_is_of_no_next_token() -> None:
    trace = regard.Model(make_loaded(head="masked-lm")).trace("the fishing bank")
    with pytest.raises(InputError, match="tiny is an encoder, whose loss is of masked tokens"):
        trace.loss()
    alone = regard.Model(tiny.loaded(NETWORKS["decoder"]())).trace(token_ids=[3])
    assert alone.loss().isnan().tolist() == [True]


# --- direct attribution


def frozen(norm: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix and constant of a norm whose scale is that at x."""
    size = len(x)
    if norm is None or isinstance(norm, nn.Identity):
        return np.eye(size), np.zeros(size)
    weight = norm.weight.detach().double().numpy()
    if isinstance(norm, RMSNorm):
        return np.diag((norm.offset + weight) / np.sqrt((x**2).mean() + norm.eps)), np.zeros(size)
    middle = np.eye(size) - 1.0 / size
    return (np.diag(weight / np.sqrt(x.var() + norm.eps)) @ middle, norm.bias.detach().double().numpy())


class Forward:
    """Each part pushed forward to the last hidden state, through norms as matrices at what hooks saw."""

    def __init__(self, trace: Trace, kind: Any, row: int) -> None:
        network: Any = trace.require_model().network
        stack = network.stack(kind)
        self.parts: dict[Any, np.ndarray] = {}
        given: dict[int, Tensor] = {}
        hooks = [
            each.register_forward_pre_hook(
                lambda module, args: given.__setitem__(id(module), args[0].detach())
            )
            for each in stack.modules()
            if isinstance(each, nn.LayerNorm | RMSNorm | nn.Identity)
        ]
        taps = [name for name in network.tap_names() if name.endswith((".context", "ffn.output", "0.input"))]
        values = measured.seen(trace, taps)
        for hook in hooks:
            hook.remove()
        at = network.prefixes[kind]

        def through(norm: Any, parts: dict[Any, np.ndarray], constant: Any) -> dict[Any, np.ndarray]:
            if norm is None:
                return parts
            matrix, shift = frozen(norm, given[id(norm)][0, row].double().numpy())
            return {name: matrix @ part for name, part in parts.items()} | {constant: shift}

        parts = {"embedding": values[f"{at}layers.0.input"][0, row].double().numpy()}
        for index, layer in enumerate(stack.layers):
            for name in ("attention", "cross_attention", "ffn"):
                if not hasattr(layer, name):
                    continue
                residual = getattr(layer, f"{name}_residual")
                if name == "ffn":
                    written = {("ffn", index): values[f"{at}layers.{index}.ffn.output"][0, row].numpy()}
                else:
                    context = values[f"{at}layers.{index}.{name}.context"][0, :, row]
                    output = getattr(layer, name).output
                    matrix = output.weight.detach().double().unflatten(1, context.shape).numpy()
                    written = {
                        (name, index, head): matrix[:, head] @ context[head].double().numpy()
                        for head in range(len(context))
                    }
                    if output.bias is not None:
                        written["bias", name, index] = output.bias.detach().double().numpy()
                if isinstance(residual, SandwichNorm):
                    written = through(residual.after, written, ("norm", name, index))
                parts |= written
                if isinstance(residual, PostNorm):
                    parts = through(residual.norm, parts, ("norm", name, index))
        self.parts = through(stack.norm, parts, ("norm", "last"))
        self.state = values["last_hidden_state"][0, row].double().numpy()


def check_parts(found: Any, forward: Forward, direction: np.ndarray) -> None:
    wanted = {name: float(part @ direction) for name, part in forward.parts.items()}
    tolerance = 1000 * FP64 * max(map(abs, wanted.values()))

    def total(*start: Any) -> float:
        return sum(value for name, value in wanted.items() if name[: len(start)] == start)

    assert abs(found.embedding - wanted["embedding"]) < tolerance
    for name, heads in (("attention", found.heads), ("cross_attention", found.cross_heads)):
        for layer, values in enumerate(heads):
            for head, value in enumerate(values.tolist()):
                assert abs(value - wanted[name, layer, head]) < tolerance
    for layer in range(len(found.ffn)):
        assert abs(float(found.ffn[layer]) - wanted["ffn", layer]) < tolerance
        biases = total("bias", "attention", layer) + total("bias", "cross_attention", layer)
        assert abs(float(found.attention_bias[layer]) - biases) < tolerance
    assert abs(found.norm_bias - total("norm")) < tolerance
    assert abs(found.total - float(forward.state @ direction) - found.head_bias) < tolerance
    assert abs(found.error) < tolerance


@pytest.mark.parametrize("row", [0, 3, -1])
@pytest.mark.parametrize("name", HEADED)
def test_every_part_is_what_it_brings_to_the_end(name: str, row: int) -> None:
    network: Any = NETWORKS[name]()
    trace = traced(network)
    kind: Any = list(network.prefixes)[-1]
    forward = Forward(trace, kind, row)
    head = network.head
    assert isinstance(head, LanguageModelHead)
    rows = head.scale * head.output.weight.detach().double().numpy()
    bias = np.zeros(len(rows)) if head.output.bias is None else head.output.bias.detach().double().numpy()
    bias = bias + (0.0 if head.bias is None else head.bias[0].double().numpy())
    found = trace.direct_attribution(7, token=row)
    assert found.positions == (row % len(trace.stack(kind).tokens),)
    check_parts(found, forward, rows[7])
    assert abs(found.head_bias - bias[7]) < FP64
    apart = trace.direct_attribution((7, 2), token=row)
    check_parts(apart, forward, rows[7] - rows[2])
    assert abs(apart.head_bias - bias[7] + bias[2]) < FP64
    direction = torch.randn(rows.shape[1], dtype=torch.float64)
    check_parts(trace.direct_attribution(direction, token=row), forward, direction.numpy())


@pytest.mark.parametrize("name", HEADED)
def test_the_sum_is_the_model_s_logit(name: str) -> None:
    network: Any = NETWORKS[name]().float()
    trace = traced(network)
    logits = measured.seen(trace, [])["logits"][0, -1].double()
    found = trace.direct_attribution(7)
    softcap = network.head.softcap
    total = found.total if softcap is None else softcap * torch.tanh(found.total / softcap)
    assert abs(total - float(logits[7])) < FP32_OF_LARGEST * float(logits.abs().max())
    assert "DirectAttribution(" in repr(found)
    assert abs(found.error) < FP32_OF_LARGEST * float(logits.abs().max())
    # The table has the largest parts, and the sum of all: each number is rounded to three digits.
    title, _, _, *lines = str(found).splitlines()
    assert title == f"What adds up to {float(found.value):.3f} at position {found.positions[0]}:"
    parts = [float(line.split()[-1]) for line in lines]
    assert sum(parts) == pytest.approx(float(found.total), abs=0.0005 * len(parts) + 1e-9)
    assert abs(parts[0]) == pytest.approx(max(abs(row["value"]) for row in found.to_rows()), abs=0.0005)


def test_a_token_by_its_name() -> None:
    loaded = replace(make_loaded(), network=tiny.shaken(NETWORKS["encoder"]()).float())  # type: ignore[arg-type]
    trace = regard.Model(loaded).trace("the fishing bank")
    by_name = trace.direct_attribution(("river", "money"), token="fishing")
    by_id = trace.direct_attribution((9, 10), token=3)  # the last piece
    assert (by_name.positions, by_name.total) == ((3,), by_id.total)


def test_what_has_no_sum_is_refused() -> None:
    masked = regard.Model(make_loaded(head="masked-lm")).trace("the fishing bank")
    with pytest.raises(InputError, match=r"head of tiny is not linear .* give a direction"):
        masked.direct_attribution(3)
    assert abs(masked.direct_attribution(torch.ones(15)).error) < 1e-4
    with pytest.raises(InputError, match="has no head that gives every position"):
        regard.Model(make_loaded()).trace("the fishing bank").direct_attribution(3)
    for family, message in (
        ("bert", "layer 0 of BertForMaskedLM does more"),
        ("gpt_oss", "a mixture of experts"),
    ):
        seen = regard.lens(lens_models.FAMILIES[family]()).trace(token_ids=[3, 1])
        with pytest.raises(InputError, match=message):
            seen.direct_attribution(torch.ones(lens_models.D_MODEL))
    convolved = traced(measured.of_family("deberta-v2", convolution=Convolution()))
    with pytest.raises(InputError, match="layer 0 of tiny does more"):
        convolved.direct_attribution(torch.ones(15))


@pytest.mark.parametrize("name", ["encoder", "both", "gemma2"])
def test_several_positions_at_once(name: str) -> None:
    trace = traced(NETWORKS[name]())
    whole, targets = trace.direct_attribution(7, token=None), [3, 1, 4]
    some = trace.direct_attribution(targets, token=slice(0, 3))
    for row in range(3):
        alone, own = trace.direct_attribution(7, token=row), trace.direct_attribution(targets[row], token=row)
        for field in fields(alone)[1:]:
            for many, one in ((whole, alone), (some, own)):
                wanted, found = getattr(one, field.name), getattr(many, field.name)
                pairs = zip(wanted, found, strict=True) if isinstance(wanted, tuple) else [(wanted, found)]
                for each, values in pairs:
                    assert torch.allclose(values[row], each, rtol=1e-9, atol=1e-9), field.name
    assert float(whole.error.abs().max()) < 1e-9


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_through_the_lens_where_sublayers_add_up(family: str, tmp_path: Path) -> None:
    hf_model = lens_models.FAMILIES[family]()
    hf_model.save_pretrained(tmp_path)
    own, seen = regard.load(tmp_path), regard.lens(hf_model)
    wanted, found = (each.trace(token_ids=measured.IDS).direct_attribution(7) for each in (own, seen))
    assert abs(found.error) < FP32_OF_LARGEST * abs(found.value)
    for ours, theirs in zip((*found.heads, found.ffn), (*wanted.heads, wanted.ffn), strict=True):
        assert_close_to_largest(ours, theirs, 10 * FP32_OF_LARGEST)
    wide = regard.lens(hf_model.double()).trace(token_ids=measured.IDS).direct_attribution(7)
    assert abs(wide.error) < FP32_OF_LARGEST * abs(wide.value)  # norms of transformers stay in float32
    for ours, theirs in zip(wide.heads, wanted.heads, strict=True):
        assert_close_to_largest(ours, theirs, 10 * FP32_OF_LARGEST)


@pytest.mark.parametrize("name", ["encoder", "gemma2"])
@pytest.mark.parametrize(
    "site", ["weights", "head", "attention", "middle", "ffn", "residual", "layers.1.output"]
)
def test_of_an_edited_model(name: str, site: str) -> None:
    model = regard.Model(tiny.loaded(NETWORKS[name]()))
    layer = None if site.startswith("layers") else 1
    trace = model.edited(regard.Scale(site, factor=0.5, layer=layer)).trace(token_ids=measured.IDS)
    found = trace.direct_attribution(7, token=2)
    assert abs(found.error) < 1e-9
    if site != "layers.1.output":  # of which a norm takes the scale away
        assert (
            abs(found.value - model.trace(token_ids=measured.IDS).direct_attribution(7, token=2).value) > 1e-8
        )
    writes = site not in ("weights", "head", "ffn")
    assert (abs(found.edited) > 1e-6) == writes


@pytest.mark.parametrize(
    ("measure", "argument", "message"),
    [
        ("logit_lens", {"k": 0}, r"k must be from 1 to 31; got 0"),
        ("logit_lens", {"k": 32}, r"k must be from 1 to 31; got 32"),
        ("direct_attribution", {"target": 31}, "an id from 0 to 30; got 31"),
        ("direct_attribution", {"target": -1}, "an id from 0 to 30; got -1"),
        ("direct_attribution", {"target": True}, "an id from 0 to 30; got True"),
        ("direct_attribution", {"target": (1, 2, 3)}, "one token, or two for a difference; got 3"),
        ("direct_attribution", {"target": [1, 2]}, "a token for each of the 1 positions; got 2"),
        (
            "direct_attribution",
            {"target": torch.ones(7)},
            r"shape \(d_model,\) = \(30,\) .*got torch.float32 of shape \(7,\)",
        ),
        ("direct_attribution", {"target": torch.ones(30).long()}, "got torch.int64"),
    ],
)
def test_what_is_refused(measure: str, argument: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        getattr(traced(NETWORKS["decoder"]()), measure)(**argument)
