"""Edits that a model has no place for, that do not fit, or that change nothing."""

from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard._lens import lens
from regard.blocks import Embeddings, EncoderLayer, FeedForward, MultiHeadAttention, PostNorm, Stack
from regard.core import Taps
from regard.core.errors import InputError, RegardError
from regard.models import Output, Transformer
from regard.tracing.edits._network import EditedNetwork, EditPlan
from unit.models import tiny
from unit.tracing.edit_models import OTHER, TEXT, make, model_of, trace_of

WIDE = torch.float64


@pytest.fixture(scope="module")
def models() -> dict[str, regard.Model]:
    return {shape: make(shape) for shape in ("encoder", "decoder", "both")}


def start(model: regard.Model, *edits: Any) -> None:
    """Enter a block, and leave it by the error."""
    with model.edit(*edits):
        pytest.fail("the block began")


def run(model: regard.Model, *edits: Any, text: str = TEXT) -> None:
    """Trace within a block; the error comes before the network computes anything."""
    calls: list[object] = []
    handle = model.network.register_forward_pre_hook(lambda *_: calls.append(1))
    try:
        with model.edit(*edits) as edited:
            calls.clear()  # the look at the sizes
            trace_of(edited, text)
    finally:
        handle.remove()
        assert not calls, "the network ran"


# --- when it is made


def test_what_is_no_edit(models: Any) -> None:
    for made, message in (
        (lambda: regard.Zero("pattern"), "site must be one of weights, scores, q, k, v, .*; got 'pattern'"),
        (
            lambda: regard.Zero("residual", head=1),
            "head must be None at site 'residual', which has none$|none\\.",
        ),
        (
            lambda: regard.Zero("k", query=1),
            "query must be None at site 'k', .* positions are chosen by key=",
        ),
        (lambda: regard.Zero("context", key=1), "key must be None at site 'context', .* by query="),
        (lambda: regard.Zero("embeddings", layer=0), "layer must be None at site 'embeddings'"),
        (lambda: regard.Scale("ffn", factor=float("nan")), "factor must be a finite number; got nan"),
        (lambda: regard.Scale("ffn", factor="2"), "factor must be a finite number; got '2'"),
        (lambda: regard.Add("ffn", value=[1.0]), "value must be a tensor; got list"),
        (lambda: regard.Replace("ffn", value=0.0), "value must be a tensor or a regard.Trace; got float"),
        (
            lambda: regard.Replace("ffn", value=torch.zeros(3), source=1),
            "source must be None with a tensor",
        ),
        (lambda: regard.Mean("ffn", reference=[]), "reference must be traces, at least one; got list"),
        (lambda: regard.Mean("ffn", reference=torch.zeros(3)), r"samples \(samples, ...\), at least one"),
        (
            lambda: regard.Resample("ffn", reference=torch.zeros(2, 3)),
            "reference must be traces, at least one",
        ),
        (lambda: regard.Resample("weights"), "reference must be traces at site 'weights'"),
        (lambda: regard.Resample("ffn", seed=1.5), "seed must be a whole number, .*; got 1.5"),
    ):
        with pytest.raises(InputError, match=message):
            made()  # type: ignore[no-untyped-call]


# --- when the block begins


@pytest.mark.parametrize(
    ("shape", "edit", "message"),
    [
        ("encoder", regard.Zero("ffn", layer=2), "layer must be from 0 to 1, or negative .*; got 2"),
        ("encoder", regard.Zero("residual", layer=3), "layer must be from 0 to 2, .*; got 3"),
        ("encoder", regard.Zero("ffn", layer=[0, 0]), "layer must pick each one once"),
        ("encoder", regard.Zero("ffn", layer=[]), r"layer must pick at least one of 2; \[\] picks none"),
        ("encoder", regard.Zero("ffn", layer=True), "layer must be from 0 to 1, .*; got True"),
        ("encoder", regard.Zero("q", head=3), "head must be from 0 to 2, or negative .*; got 3"),
        ("encoder", regard.Zero("q", head="one"), "head must be from 0 to 2, .*; got 'one'"),  # type: ignore[arg-type]
        ("decoder", regard.Zero("k", head=1), "head must be from 0 to 0, .*; got 1"),
        ("encoder", regard.Zero("q", kind="decoder"), 'kind must be "encoder", of which this model has q'),
        ("encoder", regard.Zero("q", kind="cross"), "kind must be \"encoder\", .*; got 'cross'"),
        ("both", regard.Zero("q", layer=0), 'kind must be "encoder" or "decoder" or "cross", .*; got None'),
        ("both", regard.Zero("residual", kind="cross"), 'kind must be "encoder" or "decoder", .*\'cross\''),
    ],
)
def test_places_that_are_not_there(models: Any, shape: str, edit: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        start(models[shape], edit)


def test_no_edits_and_no_edits_by_another_name(models: Any) -> None:
    with pytest.raises(InputError, match="edits must be at least one"):
        start(models["encoder"])
    with pytest.raises(InputError, match=r"edits must be regard.Zero, .*; got str"):
        start(models["encoder"], "weights")
    edit = regard.Zero("ffn")
    with pytest.raises(InputError, match="one was given twice"):
        start(models["encoder"], edit, edit)


def in_training(edited: regard.Model) -> regard.Model:
    """The same model, after somebody put the network into training mode."""
    edited.network.plain.train()
    return edited


def test_a_network_in_training_mode() -> None:
    model = make("encoder")
    model.network.train()
    with pytest.raises(InputError, match="the network must be in evaluation mode"):
        start(model, regard.Zero("ffn"))
    model.network.eval()
    with (
        pytest.raises(InputError, match="the network must be in evaluation mode"),
        model.edit(regard.Zero("ffn")) as edited,
    ):
        in_training(edited)(torch.tensor([[2, 3]]))


def test_the_lens_sees_no_feed_forward_layer() -> None:
    from lens_models import bert

    model = regard.Model(lens(bert()))
    with pytest.raises(InputError, match="site 'ffn' cannot be seen in this model: it has no such tap"):
        start(model, regard.Zero("ffn", layer=0))


def test_a_trace_without_its_model(models: Any) -> None:
    from dataclasses import replace

    alone = replace(trace_of(models["encoder"]), loaded=None)
    with pytest.raises(InputError, match="the trace came without the model"):
        start(models["encoder"], regard.Replace("ffn", value=alone))


# --- before the model runs


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (regard.Zero("ffn", query=9), "9"),
        (regard.Zero("ffn", query="boat"), "boat"),
        (regard.Zero("ffn", query="the"), "the"),  # twice
        (regard.Zero("ffn", query=slice(5, 5)), "query must pick at least one of 9"),
        (regard.Zero("ffn", query=slice(1, 5, 0)), r"slice\(1, 5, 0\) must have whole numbers, and a step"),
        (regard.Zero("ffn", query=[1, -8]), "query must pick each one once"),
        (regard.Zero("weights", key=[]), "key must pick at least one of 9"),
        (
            regard.Add("ffn", layer=0, value=torch.zeros(29, dtype=WIDE)),
            r"value must have the shape .* encoder ffn of layer 0, \(query, dim\) = \(9, 30\), .*got \(29,\)",
        ),
        (regard.Add("ffn", value=torch.zeros(30)), "value must be torch.float64 on cpu, as encoder ffn"),
        (
            regard.Add("ffn", value=torch.zeros(30, dtype=WIDE, device="meta")),
            r"got torch.float64 on meta. Convert it with value.to\('cpu', torch.float64\)",
        ),
        (
            regard.Replace("weights", layer=1, head=0, value=torch.zeros(9, 8, dtype=WIDE)),
            r"\(head, query, key\) = \(1, 9, 9\), or of its last axes; got \(9, 8\)",
        ),
        (
            regard.Mean("v", reference=torch.zeros(4, 7, dtype=WIDE)),
            r"the mean of reference must have the shape .*\(3, 9, 10\), .*got \(7,\)",
        ),
    ],
)
def test_what_does_not_fit_is_told_before_the_network_runs(models: Any, edit: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(models["encoder"], edit)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_values_that_are_not_finite(models: Any, number: float) -> None:
    vector = torch.zeros(30, dtype=WIDE)
    vector[7] = number
    row = torch.zeros(9, dtype=WIDE)
    row[7] = number
    for made in (
        regard.Add("residual", layer=1, value=vector),
        regard.Replace("ffn", layer=1, query=2, value=vector),
        regard.Mean("residual", layer=1, reference=vector.expand(5, -1)),
        regard.Replace("weights", layer=1, head=0, value=row),
    ):
        with pytest.raises(InputError, match=rf"must be finite; got {number} for '{made.where.name}'"):
            run(models["encoder"], made)
    made = regard.Add("scores", layer=1, head=0, value=row)
    if number == -INF:  # a pair that is not seen
        with models["encoder"].edit(made) as edited:
            assert not trace_of(edited).weights(1, 0)[:, 7].any()
    else:
        with pytest.raises(InputError, match=rf"value must be finite, or -inf where a pair .*; got {number}"):
            run(models["encoder"], made)


def test_what_another_model_has_that_is_not_finite(models: Any) -> None:
    """Its trace keeps nothing, so that nothing was looked at yet."""
    damaged = make("encoder")
    other = trace_of(damaged)
    with torch.no_grad():
        damaged.network.encoder.layers[0].ffn_residual.norm.bias[7] = NAN
    for made in (
        regard.Replace("residual", layer=1, value=other),
        regard.Mean("residual", layer=1, reference=[other]),
        regard.Resample("residual", layer=1, reference=other),
    ):
        with pytest.raises(InputError, match="must be finite; got nan for 'residual'"):
            run(models["encoder"], made)


class Root(regard.tracing.Edit):
    """An edit of somebody's own, which is not defined everywhere."""

    def writer(self, place: Any, sources: Any) -> Any:
        return lambda value, part: part.sqrt()


@pytest.mark.parametrize("keep", ["qk", "all"])
def test_an_edit_that_makes_what_is_not_finite(models: Any, keep: Any) -> None:
    huge = regard.Scale("context", layer=1, factor=1e308)
    for made, got in ((Root("context", layer=1), "nan"), (huge, "-?inf")):
        with (
            pytest.raises(
                InputError,
                match=rf"what {type(made).__name__}\('context', layer=1\) makes of encoder context of "
                rf"layer 1 must be finite; got {got}",
            ),
            models["encoder"].edit(made, regard.Scale("context", layer=1, factor=1e3)) as edited,
        ):
            edited.trace(TEXT, keep=keep)


def test_another_text_that_does_not_fit(models: Any) -> None:
    model = models["encoder"]
    other = trace_of(model, OTHER)
    for edit, message in (
        (regard.Replace("residual", layer=1, value=other), r"= \(9, 30\), .*; got \(8, 30\)"),
        (regard.Replace("residual", query="bank", source="river bank", value=other), "river bank"),
        (regard.Replace("residual", query="fishing", value=other), "fishing"),
        (regard.Replace("weights", value=other), r"= \(3, 9, 9\), .*; got \(3, 8, 8\)"),
        (regard.Mean("scores", reference=[other]), r"got \(3, 8, 8\)"),
    ):
        with pytest.raises(InputError, match=message):
            run(model, edit)


def test_another_model_that_does_not_fit(models: Any) -> None:
    edit = regard.Replace("context", layer=1, head=2, value=trace_of(make("decoder")))
    with pytest.raises(InputError, match=r"must be of a model with kind 'encoder', .*; it has decoder"):
        run(models["encoder"], edit)
    small = model_of(Transformer(tiny.TinyConfig(num_token_types=0), encoder=small_stack()).double().eval())
    with pytest.raises(InputError, match=r"no tap is called 'layers.1.attention.context'"):
        start(models["encoder"], regard.Replace("context", layer=1, value=trace_of(small)))
    for choice, message in (
        ({"layer": 0, "head": 2}, "head must be one of the 2 that the trace's model has"),
        ({"layer": 0, "head": 1}, r"\(head, query, dim\) = \(1, 9, 10\), .*; got \(1, 9, 15\)"),
        ({"layer": 0}, r"= \(3, 9, 10\), .*; got \(2, 9, 15\)"),
    ):
        for made in (
            regard.Replace("context", value=trace_of(small), **choice),
            regard.Mean("context", reference=trace_of(small), **choice),
            regard.Resample("context", reference=trace_of(small), **choice),
        ):
            with pytest.raises(InputError, match=message):
                run(models["encoder"], made)


def small_stack() -> Stack:
    """One layer of two heads."""
    layer = EncoderLayer(
        MultiHeadAttention(30, 2),
        FeedForward(30, 7),
        attention_residual=PostNorm(nn.LayerNorm(30)),
        ffn_residual=PostNorm(nn.LayerNorm(30)),
    )
    return Stack(Embeddings(31, 30), [layer])


def test_words_in_a_batch(models: Any) -> None:
    ids = torch.tensor([[2, 4, 7, 3], [2, 7, 4, 3]])
    with (
        pytest.raises(InputError, match="query must be positions in a batch of texts"),
        models["encoder"].edit(regard.Zero("ffn", query="bank")) as edited,
    ):
        edited(ids)
    with models["encoder"].edit(regard.Zero("ffn", query="bank")) as edited:
        edited(ids[:1])  # by piece


def test_what_the_network_refuses_is_still_refused(models: Any) -> None:
    with models["both"].edit(regard.Zero("ffn", kind="encoder")) as edited:
        for arguments, message in (
            ({"token_ids": [[1]]}, "token_ids must be a tensor"),
            ({"token_ids": torch.tensor([[1]])}, "decoder_token_ids must be given"),
            ({"token_ids": torch.tensor([[99]])}, "token_ids must"),
        ):
            with pytest.raises(InputError, match=message):
                edited(**arguments)  # type: ignore[arg-type]
        trace_of(edited)
    with models["encoder"].edit(regard.Zero("ffn")) as edited:
        with pytest.raises(InputError, match="decoder_token_ids and decoder_mask must be None"):
            edited(torch.tensor([[1, 2]]), decoder_token_ids=torch.tensor([[1]]))
        edited(torch.tensor([[1, 2]]))


# --- afterwards


@pytest.mark.parametrize(
    "edit",
    [
        regard.Scale("context", layer=1, factor=1.0),
        regard.Zero("weights", layer=0, head=1, query=0, key=slice(1, None)),  # the future
        regard.Zero("scores", query=0, key=-1),
        regard.Add("residual", value=torch.zeros(30, dtype=WIDE)),
    ],
)
def test_an_edit_that_changes_nothing(models: Any, edit: Any) -> None:
    with (
        pytest.raises(InputError, match=rf"the edit {type(edit).__name__}\('.*\) changed nothing: all that"),
        models["decoder"].edit(edit) as edited,
    ):
        trace_of(edited)


def test_each_of_several_edits_must_change_something(models: Any) -> None:
    edits = (regard.Zero("ffn", layer=0), regard.Scale("q", layer=1, factor=1.0))
    with (
        pytest.raises(InputError, match=r"the edit Scale\('q', layer=1\) changed nothing"),
        models["decoder"].edit(*edits) as edited,
    ):
        trace_of(edited)


def test_an_edit_of_many_places_may_leave_some_as_they_are(models: Any) -> None:
    zeros = torch.zeros(30, dtype=WIDE)
    with (
        models["encoder"].edit(regard.Zero("ffn", layer=0)) as first,
        first.edit(regard.Replace("ffn", value=zeros)) as second,
    ):
        trace_of(second)
        trace_of(first)


def test_a_block_without_a_run(models: Any) -> None:
    with (
        pytest.raises(InputError, match="the edited model was not run inside the with block"),
        models["encoder"].edit(regard.Zero("ffn")),
    ):
        trace_of(models["encoder"])
    with pytest.raises(KeyError), models["encoder"].edit(regard.Zero("ffn")):
        raise KeyError


def test_a_tap_that_is_not_offered(models: Any) -> None:
    """A network that says it has a tap, and does not offer it."""
    model = make("encoder")
    plan = EditPlan(model.network, [regard.Zero("ffn", layer=1)])
    model.network.encoder.layers[1].ffn.forward = lambda x, taps=None: x
    with pytest.raises(
        RegardError, match=r"the tap 'layers.1.ffn.output' was not offered .* Zero\('ffn', layer=1\)"
    ):
        EditedNetwork(model.network, plan)(torch.tensor([[2, 3]]))


def test_the_callers_unknown_taps_are_named(models: Any) -> None:
    with models["encoder"].edit(regard.Zero("ffn")) as edited:
        with pytest.raises(InputError, match="no tap is called 'nowhere'"):
            edited(torch.tensor([[2, 3]]), taps=Taps({"nowhere": lambda _: None}))
        output: Output = edited(torch.tensor([[2, 3]]))
        assert output.last_hidden_state.shape == (1, 2, 30)
