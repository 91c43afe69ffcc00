"""Edits: what they write, what a trace of an edited model holds, and that nothing else is changed."""

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import regard
from regard.core import Taps, attention_weights
from regard.core.errors import InputError
from regard.tracing import Edit, page_record
from tolerances import FP32_OF_LARGEST, FP64, WEIGHTS, assert_close_to_largest
from unit.tracing.stacks import OTHER, TEXT, make, trace_of

KINDS = [
    ("encoder", "encoder"),
    ("decoder", "decoder"),
    ("both", "encoder"),
    ("both", "decoder"),
    ("both", "cross"),
]


def edited_trace(model: regard.Model, *edits: Edit, text: str = TEXT) -> regard.Trace:
    return trace_of(model.edited(*edits), text)


def last_state(trace: regard.Trace) -> Tensor:
    passage = trace.encoder if trace.decoder is None else trace.decoder
    assert passage is not None
    return passage.hidden[-1]


# --- weights and scores


@pytest.mark.parametrize(("shape", "kind"), KINDS)
def test_a_trace_holds_the_weights_that_were_used(models: Any, shape: str, kind: Any) -> None:
    model = models[shape]
    before = trace_of(model)
    after = edited_trace(model, regard.Zero("weights", layer=1, head=2, query=[1, 3], key=0, kind=kind))
    wanted = before.weights(1, kind=kind)
    wanted[2, [1, 3], 0] = 0.0
    assert (after.weights(1, kind=kind) - wanted).abs().max() < WEIGHTS
    assert after.weights(1, 2, kind=kind, query=3).sum() < 1.0 - 1e-3
    layer = after.attention_of(1, kind)
    v = layer.inputs.v[0].repeat_interleave(len(layer.context) // layer.inputs.v.shape[1], dim=0)
    assert_close_to_largest(layer.context, attention_weights(layer.inputs)[0] @ v, FP64)
    assert not torch.equal(last_state(after), last_state(before))
    after.parity().check("edited")


def test_the_layer_by_hand(models: Any) -> None:
    """The last layer of the encoder, in float64, from its input and parameters alone."""
    model = models["encoder"]
    layer, x = model.network.encoder.layers[1], trace_of(model).encoder.hidden[1]
    heads, attention = 3, layer.attention
    q, k, v = (part(x).view(9, heads, 10).transpose(0, 1) for part in (attention.q, attention.k, attention.v))
    weights = (q @ k.mT / 10**0.5).softmax(dim=-1)
    weights[0, :, 4] = 0.0
    weights[2] = weights[2] * 3.0
    added = attention.output((weights @ v).transpose(0, 1).flatten(1))
    x = layer.attention_residual.norm(x + added)
    x = layer.ffn_residual.norm(x + layer.ffn.output(functional.gelu(layer.ffn.hidden(x))))
    edits = (
        regard.Zero("weights", layer=-1, head=0, key="bank"),
        regard.Scale("weights", layer=1, head=[2], factor=3.0),
    )
    assert_close_to_largest(edited_trace(model, *edits).encoder.hidden[2], x, FP64)


@pytest.mark.parametrize(("shape", "kind"), KINDS)
def test_removed_scores_leave_rows_that_sum_to_one(models: Any, shape: str, kind: Any) -> None:
    model = models[shape]
    before = trace_of(model).weights(0, kind=kind)
    after = edited_trace(model, regard.Zero("scores", layer=0, head=1, query=slice(2, 4), key=0, kind=kind))
    found = after.weights(0, kind=kind)
    wanted = before.clone()
    wanted[1, 2:4, 0] = 0.0
    wanted[1, 2:4] /= wanted[1, 2:4].sum(dim=-1, keepdim=True)
    assert (found - wanted).abs().max() < WEIGHTS
    after.parity().check("edited")


def test_an_edited_trace_goes_with_its_last_name(models: Any) -> None:
    after = edited_trace(models["encoder"], regard.Zero("weights", layer=1, head=0, key=2))
    assert after.encoder is not None
    held = weakref.ref(after.encoder.attention[1].inputs)
    gc.disable()  # which would find what holds itself
    try:
        del after
        assert held() is None
    finally:
        gc.enable()


def test_one_edited_head_leaves_the_others_to_be_looked_at(models: Any) -> None:
    """Of the edited head what q and k alone would tell is refused; all else is of the weights in use."""
    model = models["encoder"]
    before, after = trace_of(model), edited_trace(model, regard.Zero("weights", layer=1, head=0, key=2))
    for ask in (after.scores, lambda layer, head: after.explain("bank", layer, head)):
        with pytest.raises(InputError, match="an edit wrote the weights of this attention layer, of head 0,"):
            ask(1, 0)
        ask(1, 2)
    with pytest.raises(InputError, match=r"of head 0, .*for another head or layer"):
        after.scores(1)
    assert torch.equal(after.scores(1, 2), before.scores(1, 2))
    assert after.attention_of(1).inputs.weights.shape == (1, 1, 9, 9)  # the edited head alone
    weights = after.weights(1).double()
    found = after.statistics(layers=1)
    assert_close_to_largest(found.received[0], weights.sum(dim=1).float(), FP32_OF_LARGEST)
    assert_close_to_largest(found.entropy[0], torch.special.entr(weights).sum(dim=2).float(), FP32_OF_LARGEST)
    record = page_record(after)
    assert torch.equal(torch.from_numpy(record.layers["encoder"][1].weights), after.weights(1))
    assert record.layers["encoder"][0].weights is None
    assert len(after.heads()) == 6
    with pytest.raises(
        InputError, match=r"the page cannot draw layer 0 exactly: .*an edit wrote.*sum to 1 or less"
    ):
        edited_trace(model, regard.Scale("weights", layer=0, factor=2.0)).page()


def test_a_saved_trace_of_an_edited_model(models: Any, tmp_path: Path) -> None:
    model = models["encoder"]
    edits = (regard.Zero("weights", layer=1, head=0, key=2), regard.Zero("head", layer=0, head=1))
    after = edited_trace(model, *edits)
    opened = regard.Trace.open(after.save(tmp_path / "edited.trace"))
    assert torch.equal(opened.weights(1), after.weights(1))
    assert list(map(repr, opened.edits)) == list(map(repr, after.edits))
    assert torch.equal(opened.scores(1, 1), after.scores(1, 1))
    with pytest.raises(InputError, match="an edit wrote the weights"):
        opened.scores(1, 0)
    opened.parity().check("opened")
    with pytest.raises(InputError, match="model must be the one that the trace"):
        regard.Trace.open(tmp_path / "edited.trace", model)


def test_an_explanation_of_a_written_context_is_refused(models: Any) -> None:
    after = edited_trace(models["encoder"], regard.Zero("head", layer=1, head=0))
    with pytest.raises(InputError, match="an edit wrote the contexts of head 0 of encoder"):
        after.explain("bank", 1, 0)
    after.explain("bank", 1, 1)
    with pytest.raises(InputError, match="an edit wrote the output of encoder attention layer 1"):
        edited_trace(models["encoder"], regard.Zero("attention", layer=1)).explain("bank", 1, 1)


# --- the other sites

SITES: list[tuple[str, str, dict[str, Any]]] = [
    ("q", "attention.q", {"head": 1}),
    ("k", "attention.k", {"head": 0}),
    ("v", "attention.v", {"head": 0}),
    ("context", "attention.context", {"head": [0, 2]}),
    ("attention", "attention.output", {}),
    ("middle", "middle", {}),
    ("ffn", "ffn.output", {}),
]


@pytest.mark.parametrize("shape", ["encoder", "decoder", "both"])
@pytest.mark.parametrize(("site", "tap", "choice"), SITES)
def test_the_tap_is_written_where_it_is_chosen(
    models: Any, shape: str, site: Any, tap: str, choice: dict[str, Any]
) -> None:
    """Against a listener written by hand."""
    model = models[shape]
    axis = "key" if site in "kv" else "query"
    prefix, kind = ("decoder.", "decoder") if shape == "both" else ("", None)

    def by_hand(value: Tensor) -> Tensor:
        changed = value.clone()
        if "head" in choice:
            for head in [choice["head"]] if isinstance(choice["head"], int) else choice["head"]:
                changed[:, head, [1, 2]] = 0.0
        else:
            changed[:, [1, 2]] = 0.0
        return changed

    ids = torch.tensor([trace_of(model).token_ids])
    target = torch.tensor([[2, 10, 9]]) if shape == "both" else None
    with torch.no_grad():
        taps = Taps({f"{prefix}layers.1.{tap}": by_hand})
        wanted = model(ids, decoder_token_ids=target, taps=taps).last_hidden_state
        edit = regard.Zero(site, layer=1, kind=kind, **choice, **{axis: slice(1, 3)})
        edited = model.edited(edit)
        found = edited(ids, decoder_token_ids=target).last_hidden_state
    assert torch.equal(found, wanted)


def test_all_layers_and_heads_where_none_is_named(models: Any) -> None:
    after = edited_trace(models["decoder"], regard.Zero("context"))
    for layer in range(3):
        assert not after.context(layer).any()
    after.parity().check("edited")


# --- what takes the place


def test_replace_by_a_tensor(models: Any) -> None:
    model = models["encoder"]
    value = torch.randn(2, 30, dtype=torch.float64)
    after = edited_trace(model, regard.Replace("residual", layer=1, query="fishing", value=value))
    assert torch.equal(after.encoder.hidden[1][2:4], value)
    weights = torch.eye(9, dtype=torch.float64)
    after = edited_trace(model, regard.Replace("weights", layer=1, head=1, value=weights))
    assert torch.equal(after.weights(1, 1).double(), weights)
    assert_close_to_largest(after.context(1, 1), after.attention_of(1).inputs.v[0, 1], FP32_OF_LARGEST)


@pytest.mark.parametrize(("shape", "kind"), KINDS)
def test_replace_by_what_another_text_has(models: Any, shape: str, kind: Any) -> None:
    """The same word, which stands elsewhere there; and a head at other positions."""
    model = models[shape]
    other = trace_of(model, OTHER)
    stack = "decoder" if kind == "cross" else kind
    if stack == "encoder":
        patch = regard.Replace("residual", layer=1, query="bank", value=other, kind=kind)
        after = edited_trace(model, patch)
        assert (after.encoding.find("bank"), other.encoding.find("bank")) == ((4,), (3,))
        assert torch.equal(after.encoder.hidden[1][4], other.encoder.hidden[1][3])
    patch = regard.Replace("context", layer=1, head=1, query=[2, 0], source=[1, 4], value=other, kind=kind)
    after = edited_trace(model, patch)
    assert torch.equal(after.context(1, 1, kind=kind)[[2, 0]], other.context(1, 1, kind=kind)[[1, 4]])


def test_all_residuals_of_another_text_give_its_output(models: Any) -> None:
    model = models["decoder"]
    other = model.trace("the river bank by the river")  # as many tokens: 8 of TEXT's 9
    text = "the money bank by the river"
    after = edited_trace(model, regard.Replace("residual", layer=0, value=other), text=text)
    assert torch.equal(last_state(after), last_state(other))


def test_the_mean_of_a_reference(models: Any) -> None:
    model = models["decoder"]
    reference = model.trace([TEXT, "money"])
    after = edited_trace(model, regard.Mean("head", layer=2, head=3, query="bank", reference=reference))
    pooled = torch.cat([each.attention_of(2).context[3] for each in reference])
    assert_close_to_largest(after.attention_of(2).context[3, 4], pooled.mean(dim=0), FP64)


def test_the_mean_of_weights_is_entry_by_entry(models: Any) -> None:
    model = models["encoder"]
    reference = model.trace([OTHER, "the river bank by the bank"])
    after = edited_trace(
        model,
        regard.Mean("weights", layer=0, head=1, reference=reference),
        text="money money bank by the river",
    )
    wanted = (reference[0].weights(0, 1) + reference[1].weights(0, 1)) / 2
    assert (after.weights(0, 1) - wanted).abs().max() < WEIGHTS


def test_resampling_from_the_same_text(models: Any) -> None:
    model = models["encoder"]
    before = trace_of(model).attention_of(1).context
    edit = regard.Resample("context", layer=1, head=2, query=[3, 5, 6], seed=1)
    after = edited_trace(model, edit).attention_of(1).context
    donors = [
        [other for other in range(9) if torch.equal(after[2, place], before[2, other])] for place in (3, 5, 6)
    ]
    assert all(len(found) == 1 for found in donors)
    untouched = [place for place in range(9) if place not in (3, 5, 6)]
    assert torch.equal(after[2, untouched], before[2, untouched])
    assert torch.equal(after[:2], before[:2])
    again = edited_trace(model, edit).attention_of(1).context
    assert torch.equal(again, after)
    other = edited_trace(model, regard.Resample("context", layer=1, head=2, query=[3, 5, 6], seed=2))
    assert not torch.equal(other.attention_of(1).context, after)


def test_no_position_is_resampled_from_itself(models: Any) -> None:
    model = models["encoder"]
    before = trace_of(model).attention_of(1).inputs.v[0, 1]
    donors = set()
    for seed in range(30):
        edit = regard.Resample("v", layer=1, head=1, key=[8, 0], seed=seed)
        after = edited_trace(model, edit).attention_of(1).inputs.v[0, 1]
        assert not torch.equal(after[0], before[0])
        assert not torch.equal(after[8], before[8])
        donors |= {
            other for other in range(9) for place in (0, 8) if torch.equal(after[place], before[other])
        }
    assert donors == set(range(9))


@pytest.mark.parametrize("site", ["residual", "context", "v"])
def test_resampling_in_a_padded_batch(models: Any, site: Any) -> None:
    """Rows draw from their own tokens, and as they do alone; padding stays, and is drawn by nobody."""
    model = models["encoder"]
    ids = torch.tensor([[2, 4, 7, 9, 4, 10, 3], [2, 9, 5, 3, 0, 0, 0], [0, 0, 0, 2, 9, 5, 3]])
    mask = ids != 0
    given: Any = {"mask": mask, "positions": (mask.cumsum(1) - 1).clamp(min=0)}
    point = {"residual": "layers.1.input", "context": "layers.1.attention.context"}.get(
        site, "layers.1.attention.v"
    )
    before, after, alone = [], [], []
    with torch.no_grad():
        model(ids, **given, taps=Taps({point: before.append}))
        for seed in range(9):
            edited = model.edited(regard.Resample(site, layer=1, seed=seed))
            edited(ids, **given, taps=Taps({point: after.append}))
            edited(ids[:1], taps=Taps({point: alone.append}))
    before = before[0].movedim(-2, 1)
    donors = set()
    for found, single in zip(after, alone, strict=True):
        rows = found.movedim(-2, 1)
        assert_close_to_largest(rows[0], single.movedim(-2, 1)[0], FP64)
        for row, padding, real in ((1, [4, 5, 6], range(4)), (2, [0, 1, 2], range(3, 7))):
            assert torch.equal(rows[row, padding], before[row, padding])
            for place in real:
                [donor] = [each for each in range(7) if torch.equal(rows[row, place], before[row, each])]
                assert donor in {*real} - {place}
                donors.add((row, place, donor))
    assert len(donors) == 24


def test_resampling_from_other_texts(models: Any) -> None:
    model = models["encoder"]
    reference = model.trace(["money", "the river"])
    pool = torch.cat([each.encoder.hidden[1] for each in reference])
    after = edited_trace(model, regard.Resample("residual", layer=1, reference=reference, seed=5))
    found = [any(torch.equal(row, each) for each in pool) for row in after.encoder.hidden[1]]
    assert all(found)
    texts = model.trace([OTHER, "the river bank by the bank"])
    text = "money money bank by the river"
    after = edited_trace(model, regard.Resample("weights", layer=0, reference=texts, seed=5), text=text)
    rows = {
        place: [
            number
            for number, each in enumerate(texts)
            if (after.weights(0)[:, place] - each.weights(0)[:, place]).abs().max() < WEIGHTS
        ]
        for place in range(8)
    }
    assert all(rows.values())
    assert {number for found in rows.values() if len(found) == 1 for number in found} == {0, 1}


# --- the model is left as it was


def test_threads_do_not_meet() -> None:
    model = make("encoder")
    edit = regard.Zero("weights", layer=0, head=1, key="bank")
    wanted = {True: last_state(edited_trace(model, edit)), False: last_state(trace_of(model))}
    assert not torch.equal(wanted[True], wanted[False])
    wrong: list[bool] = []
    start = threading.Barrier(2)

    def work(edits: bool) -> None:
        start.wait()
        for _ in range(10):
            found = edited_trace(model, edit) if edits else trace_of(model)
            if not torch.equal(last_state(found), wanted[edits]):
                wrong.append(edits)

    threads = [threading.Thread(target=work, args=(edits,)) for edits in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- layers of the residual stream are those of trace.embedding


@pytest.mark.parametrize("layer", [0, "input", 1, 2, -1])
def test_a_layer_of_the_residual_stream_is_one_of_the_trace(models: Any, layer: Any) -> None:
    """What a trace has at a layer, written there on the same text, is the identity, and nothing else is."""
    model = models["encoder"]
    trace = trace_of(model)
    vector = trace.stack().embeddings(layer)[4]
    written = regard.Replace("residual", layer=layer, query="bank", value=vector)
    after = edited_trace(model, written)
    assert after.edits[0].changed == 0.0
    assert torch.equal(last_state(after), last_state(trace))
    doubled = edited_trace(model, regard.Scale("residual", layer=layer, query="fishing", factor=2.0))
    wanted = trace.stack().embeddings(layer).clone()
    wanted[2:4] *= 2.0  # a word of two pieces
    assert torch.equal(doubled.stack().embeddings(layer), wanted)
    doubled.parity().check("edited")


def test_all_layers_of_the_residual_stream(models: Any) -> None:
    model = models["both"]
    after = edited_trace(model, regard.Scale("residual", kind="decoder", factor=1.0))
    assert [change.tap for change in after.edits] == [
        "decoder.layers.0.input",
        "decoder.layers.1.input",
        "decoder.layers.2.input",
        "decoder.output",
    ]
    assert model.patch(trace_of(model), trace_of(model), size_of, kind="encoder").layers == ("input", 1, 2)


def size_of(output: Any) -> Tensor:
    return output.last_hidden_state.norm()  # type: ignore[no-any-return]


# --- write


def test_write_is_any_function_at_a_site_or_a_tap(models: Any) -> None:
    model = models["encoder"]
    ids = torch.tensor([trace_of(model).token_ids])
    clamped = regard.Write("neuron", lambda x: x.clamp(max=0.1), layer=1, neuron=[3, -1], query=slice(1, 4))
    seen: list[Tensor] = []
    shapes: list[Any] = []

    def project(x: Tensor) -> Tensor:
        shapes.append(x.shape)
        return x - x.mean(dim=-1, keepdim=True)

    edited = model.edited(clamped, regard.Write("layers.0.attention.q", project, head=1))
    with torch.no_grad():
        point = "layers.1.ffn.hidden"
        edited(ids, taps=Taps({point: seen.append, "layers.0.attention.q": seen.append}))
        model.edited(edited_twin := regard.Write("layers.0.attention.q", project, head=1))(
            ids, taps=Taps({point: seen.append})
        )
    assert shapes == [(1, 1, 9, 10)] * 2
    assert seen[0][:, 1].mean(dim=-1).abs().max() < 1e-12
    wanted = seen[2].clone()
    wanted[:, 1:4, 3] = wanted[:, 1:4, 3].clamp(max=0.1)
    wanted[:, 1:4, -1] = wanted[:, 1:4, -1].clamp(max=0.1)
    assert torch.equal(seen[1], wanted)
    assert not torch.equal(seen[1], seen[2])
    assert repr(edited_twin) == "Write('layers.0.attention.q', head=1)"


def test_a_function_may_write_into_what_it_gets(models: Any) -> None:
    model = models["encoder"]
    wanted = edited_trace(model, regard.Zero("ffn", layer=1))
    after = edited_trace(model, regard.Write("ffn", lambda x: x.zero_(), layer=1))
    assert torch.equal(last_state(after), last_state(wanted))
    assert after.edits[0].changed == 1.0


def test_write_at_a_tap_that_is_no_site() -> None:
    from lens_models import FAMILIES

    model = regard.lens(FAMILIES["gpt2"]())
    edited = model.edited(regard.Write("logits", lambda x: x * 0 + 3.0))
    assert bool((edited(torch.tensor([[2, 3]])).logits == 3.0).all())
    after = model.edited(regard.Write("layers.1.output", lambda x: 0.0 * x)).trace(token_ids=[2, 3])
    assert after.edits[0].tap == "layers.1.output"
    assert after.edits[0].changed == 1.0


# --- what an edit changed is told, and nothing is no error


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        (regard.Scale("context", layer=1, factor=1.0), 0.0),
        (regard.Zero("weights", layer=0, head=1, query=0, key=slice(1, None)), 0.0),  # the future
        (regard.Zero("scores", layer=0, query=0, key=-1), 0.0),
        (regard.Zero("ffn", layer=0), 1.0),
        (regard.Zero("weights", layer=2, query=0, key=[0, 1]), 0.5),
    ],
)
def test_what_an_edit_changed(models: Any, edit: Edit, changed: float) -> None:
    [told] = edited_trace(models["decoder"], edit).edits
    assert (told.changed, told.edit) == (changed, repr(edit))
    assert (told.moved > 0) == (changed > 0)
    assert f"changed {100 * changed:.3g} %" in repr(told)


def test_a_removed_score_moved_without_bound(models: Any) -> None:
    assert edited_trace(models["decoder"], regard.Zero("scores", layer=1, query=2, key=0)).edits[0].moved == (
        float("inf")
    )


def test_a_steering_vector_is_learned_from_zero(models: Any) -> None:
    model = models["encoder"]
    vector = torch.zeros(30, dtype=torch.float64, requires_grad=True)
    edited = model.edited(regard.Add("residual", layer=1, query=2, value=vector))
    edited(torch.tensor([[2, 4, 7, 3]])).last_hidden_state[0, 2, 5].backward()
    assert vector.grad is not None
    assert vector.grad.abs().sum() > 0


def test_path_patching(models: Any) -> None:
    """One head from the other text, while the other heads of the layer after it are frozen: by hand."""
    model = models["encoder"]
    text, other = "the river bank by money", "the money bank by fish"
    clean, corrupted = model.trace(text), model.trace(other)
    edits = (
        regard.Replace("head", layer=0, head=1, value=clean),
        regard.Replace("head", layer=1, head=[0, 2], value=corrupted),
    )
    found = model.edited(*edits).trace(other)
    freely = model.edited(edits[0]).trace(other)
    assert torch.equal(found.context(1, 0), corrupted.context(1, 0))
    assert_close_to_largest(found.context(1, 1), freely.context(1, 1), FP64)
    assert not torch.equal(found.context(1, 1), corrupted.context(1, 1))
    assert model.edited(edits[1]).trace(other).edits[0].changed == 0.0


# --- references


def test_what_a_trace_holds_is_not_worked_out_again(models: Any) -> None:
    model = models["encoder"]
    references = model.trace([TEXT, OTHER, "money"])
    passes: list[object] = []
    handle = model.network.register_forward_pre_hook(lambda *_: passes.append(1))
    try:
        model.edited(regard.Mean("head", layer=1, reference=references))
        model.edited(regard.Replace("residual", layer=1, value=references[0]))
        assert not passes
        edits = [regard.Mean("ffn", layer=layer, reference=references) for layer in (0, 1)]
        model.edited(*edits, regard.Resample("q", reference=references))
        assert len(passes) == 3  # one for each reference
    finally:
        handle.remove()


# --- the model is left as it was


def test_edits_that_meet_are_made_in_order(models: Any) -> None:
    model = models["encoder"]
    x = trace_of(model).encoder.hidden[1]
    one = torch.ones(30, dtype=torch.float64)
    edits = (regard.Add("residual", layer=1, value=one), regard.Scale("residual", layer=1, factor=2.0))
    first = model.edited(edits[0])
    for both in (model.edited(*edits), first.edited(edits[1])):
        after = trace_of(both)
        assert torch.equal(after.encoder.hidden[1], (x + 1.0) * 2.0)
        assert [change.edit for change in after.edits] == [
            "Add('residual', layer=1)",
            "Scale('residual', layer=1)",
        ]
        assert both.name == "tiny (edited)"
    assert torch.equal(trace_of(first).encoder.hidden[1], x + 1.0)
    assert torch.equal(trace_of(model).encoder.hidden[1], x)


def test_the_model_is_left_as_it_was(models: Any) -> None:
    model = models["both"]
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    untouched = last_state(trace_of(model))
    edited = model.edited(regard.Zero("head", layer=0, head=0, kind="cross"))
    assert {id(p) for p in edited.network.parameters()} == {id(p) for p in model.network.parameters()}
    assert edited.network.stack("encoder") is model.network.stack("encoder")
    assert not torch.equal(last_state(trace_of(edited)), untouched)
    with pytest.raises(ZeroDivisionError):
        trace_of(model.edited(regard.Write("ffn", lambda x: x * (1 // 0), kind="encoder")))
    assert torch.equal(last_state(trace_of(model)), untouched)
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())
    assert not any(module._forward_hooks for module in model.network.modules())
    assert edited.describe(7) == model.describe(7) | {"name": "tiny (edited)"}
    parity = edited.parity()
    assert parity.largest <= parity.bound


def test_a_batch_and_the_callers_taps(models: Any) -> None:
    """Every row is edited, and is what it is alone; taps see what the edits left."""
    edited = models["encoder"].edited(regard.Zero("v", layer=1, head=0, key=[1, -2]))
    ids, seen = torch.tensor([[2, 4, 7, 9, 3], [2, 9, 9, 4, 3]]), []
    with torch.no_grad():
        both = edited(ids, taps=Taps({"layers.1.attention.v": seen.append})).last_hidden_state
        for row in range(2):
            assert_close_to_largest(both[row], edited(ids[row : row + 1]).last_hidden_state[0], FP64)
    assert not seen[0][:, 0, [1, 3]].any()
    assert seen[0][:, 1].any()


def test_layers_are_counted_where_some_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last is the output, seen or not; and nothing is not quietly left as it is."""
    model = make("encoder")
    names = [name for name in model.network.tap_names() if name != "output"]
    monkeypatch.setattr(model.network, "tap_names", lambda: names)
    with pytest.raises(InputError, match="layer must be one that has 'residual', of 0, input, 1; got 2"):
        model.edited(regard.Zero("residual", layer=-1))
    names[:] = ["embeddings.tokens"]
    with pytest.raises(InputError, match="site 'residual' cannot be seen in this model"):
        model.edited(regard.Zero("residual"))
