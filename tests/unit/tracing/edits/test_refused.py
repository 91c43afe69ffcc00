"""Edits that a model has no place for, or that do not fit."""

from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard.blocks import Embeddings, FeedForward, MultiHeadAttention, PostNorm, SelfAttentionLayer, Stack
from regard.core import Causal, Segments, Taps
from regard.core.errors import InputError, RegardError
from regard.models import Transformer
from unit.models import tiny
from unit.tracing.stacks import OTHER, make, model_of, trace_of

WIDE = torch.float64
NAN, INF = float("nan"), float("inf")


def wide(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=WIDE)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Zero", {"site": 3}, "site must be a name, one of weights, scores, .*; got 3"),
        ("Zero", {"site": "residual", "head": 1}, "head must be None at 'residual', where query can"),
        ("Zero", {"site": "k", "query": 1}, "query must be None at 'k', where head and key can be chosen"),
        ("Zero", {"site": "context", "key": 1}, "key must be None at 'context', where head and query"),
        ("Zero", {"site": "ffn", "neuron": 1}, "neuron must be None at 'ffn'"),
        ("Write", {"site": "ffn", "function": 2}, "function must be a function"),
        ("Scale", {"site": "ffn", "factor": NAN}, "factor must be a finite number; got nan"),
        ("Add", {"site": "ffn", "value": [1.0]}, "value must be a tensor, floating point; got list"),
        ("Add", {"site": "ffn", "value": wide(0, NAN)}, "value must be finite; got nan for 'ffn'"),
        ("Add", {"site": "scores", "value": wide(INF)}, "finite, or -inf where a pair .*; got inf"),
        ("Replace", {"site": "ffn", "value": 0.0}, "value must be a tensor or a regard.Trace, .*; got float"),
        ("Replace", {"site": "weights", "value": wide(-INF)}, "value must be finite; got -inf"),
        ("Replace", {"site": "ffn", "value": wide(3), "source": 1}, "source must be None with a tensor"),
        ("Mean", {"site": "ffn", "reference": []}, "reference must be traces .*, at least one; got \\[\\]"),
        (
            "Mean",
            {"site": "ffn", "reference": ["a bank"]},
            "at least one; got .'a bank'.",
        ),
        ("Resample", {"site": "ffn", "reference": wide(3)}, "reference must be traces .*, at least one"),
        ("Resample", {"site": "ffn", "seed": 1.5}, "seed must be a whole number, .*; got 1.5"),
    ],
)
def test_when_an_edit_is_made(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        getattr(regard, name)(**arguments)


@pytest.mark.parametrize(
    ("shape", "edit", "message"),
    [
        ("encoder", regard.Zero("pattern"), "site must be one of .*, or a tap .*; got 'pattern'"),
        ("encoder", regard.Zero("layers.0.attention.inputs"), "site must be the tap of a tensor"),
        ("encoder", regard.Zero("layers.0.output", layer=0), "layer must be None at the tap"),
        ("encoder", regard.Zero("layers.0.ffn.output", head=0), "head must be None at 'layers.0.ffn.output'"),
        ("encoder", regard.Zero("layers.0.output", query=0), "query must be None at 'layers.0.output'"),
        ("encoder", regard.Zero("ffn", layer=2), "layer must be from 0 to 1, or negative .*; got 2"),
        ("encoder", regard.Zero("ffn", layer="input"), "layer must be from 0 to 1, .*; got 'input'"),
        ("encoder", regard.Zero("residual", layer=3), 'layer must be from 0 to 2, .*, or "input", .*; got 3'),
        ("encoder", regard.Zero("ffn", layer=[0, 0]), "layer must pick each one once"),
        ("encoder", regard.Zero("ffn", layer=[]), r"layer must pick at least one of 2; \[\] picks none"),
        ("encoder", regard.Zero("q", kind="decoder"), 'kind must be "encoder", of which this model has q'),
        ("both", regard.Zero("q", layer=0), 'kind must be "encoder" or "decoder" or "cross", .*; got None'),
        ("both", regard.Zero("residual", kind="cross"), 'kind must be "encoder" or "decoder", .*\'cross\''),
        ("encoder", ["weights"], r"edits must be regard.Write, .*; got str"),
        (
            "encoder",
            [[regard.Zero("weights")]],
            r"given one by one, as in model\.edited\(\*edits\); got list",
        ),
        ("encoder", [], "edits must be at least one"),
    ],
)
def test_when_a_model_is_edited(models: Any, shape: str, edit: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        models[shape].edited(*(edit if isinstance(edit, list) else [edit]))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (regard.Zero("q", head=3), "head must be from 0 to 2, or negative .*; got 3"),
        (regard.Zero("neuron", neuron=99), "neuron must be from 0 to "),
        (regard.Zero("ffn", query=9), "query must be a word of the text, or a token from 0 to 8"),
        (regard.Zero("ffn", query="boat"), "boat"),
        (regard.Zero("ffn", query="the"), "the"),  # twice
        (regard.Zero("ffn", query=["bank", 4]), "query must pick each one once"),
        (regard.Zero("ffn", query=slice(5, 5)), "query must pick at least one of the 9"),
        (regard.Zero("ffn", query=slice(1, 5, 0)), r"slice\(1, 5, 0\) must have whole numbers, and a step"),
        (regard.Zero("ffn", query=[1, -8]), "query must pick each one once"),
        (regard.Zero("weights", key=[]), "key must pick at least one of the 9"),
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
            r"\(head, query, key\) = \(1, 9, 9\), or broadcast to it; got \(9, 8\)",
        ),
        (regard.Write("ffn", lambda x: None), "what function returns must be a tensor .*; got NoneType"),  # type: ignore[arg-type,return-value]
        (regard.Write("ffn", lambda x: x.float()), "what function returns must be torch.float64"),
        (regard.Write("ffn", lambda x: x[..., :7]), r"what function returns must have .*got \(1, 9, 7\)"),
        (regard.Resample("weights"), "reference must be traces at 'weights'"),
    ],
)
def test_when_an_edited_model_runs(models: Any, edit: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace_of(models["encoder"].edited(edit))


def test_another_text_that_does_not_fit(models: Any) -> None:
    model = models["encoder"]
    other = trace_of(model, OTHER)
    one = regard.Replace("residual", query="fishing", source="bank", value=other)
    for edit, message in (
        (regard.Replace("residual", layer=1, value=other), r"= \(9, 30\); got \(8, 30\)"),
        (regard.Replace("residual", query="bank", source="river bank", value=other), "river bank"),
        (regard.Replace("residual", query="fishing", value=other), "fishing"),
        (one, r"= \(2, 30\); got \(1, 30\)"),
        (regard.Replace("weights", value=other), r"= \(3, 9, 9\); got \(3, 8, 8\)"),
        (regard.Mean("scores", reference=[other]), r"got \(3, 8, 8\)"),
    ):
        with pytest.raises(InputError, match=message):
            trace_of(model.edited(edit))


def test_another_model_that_does_not_fit(models: Any) -> None:
    model = models["encoder"]
    with pytest.raises(InputError, match=r"must be of a model with kind 'encoder', .*; it has decoder"):
        trace_of(model.edited(regard.Replace("context", layer=1, head=2, value=trace_of(make("decoder")))))
    layer = SelfAttentionLayer(
        MultiHeadAttention(30, 2),
        FeedForward(30, 7),
        attention_residual=PostNorm(nn.LayerNorm(30)),
        ffn_residual=PostNorm(nn.LayerNorm(30)),
    )
    stack = Stack(Embeddings(31, 30), [layer])
    small = trace_of(model_of(Transformer(tiny.TinyConfig(num_token_types=0), encoder=stack).double().eval()))
    with pytest.raises(InputError, match=r"no tap is called 'layers.1.attention.context'"):
        model.edited(regard.Replace("context", layer=1, value=small))
    for choice, message in (
        ({"layer": 0, "head": 2}, "head must be one of the 2 of the trace's model"),
        ({"layer": 0, "head": 1}, r"\(head, query, dim\) = \(1, 9, 10\).*; got \(1, (9|1), 15\)"),
        ({"layer": 0}, r"= \(3, 9, 10\).*; got \(2, (9|1), 15\)"),
    ):
        for made in (
            regard.Replace("context", value=small, **choice),
            regard.Mean("context", reference=small, **choice),
            regard.Resample("context", reference=small, **choice),
        ):
            with pytest.raises(InputError, match=message):
                trace_of(model.edited(made))


def test_a_trace_without_its_model(models: Any) -> None:
    from dataclasses import replace

    alone = replace(trace_of(models["encoder"]), loaded=None)
    with pytest.raises(InputError, match="the trace came without the model"):
        models["encoder"].edited(regard.Replace("ffn", value=alone))
    models["encoder"].edited(regard.Replace("head", value=alone))  # which it holds


def test_a_network_in_training_mode() -> None:
    model = make("encoder")
    edited = model.edited(regard.Zero("ffn"))
    model.network.train()
    for ask in (lambda: model.edited(regard.Zero("ffn")), lambda: edited(torch.tensor([[2, 3]]))):
        with pytest.raises(InputError, match="the network must be in evaluation mode"):
            ask()


def test_words_in_a_batch(models: Any) -> None:
    ids = torch.tensor([[2, 4, 7, 3], [2, 7, 4, 3]])
    edited = models["encoder"].edited(regard.Zero("ffn", query="bank"))
    with pytest.raises(InputError, match=r"query must be a token from 0 to 3.*trace them one by one"):
        edited(ids)
    edited(ids[:1])  # by piece


def test_resampling_where_texts_share_a_row(models: Any) -> None:
    ids = torch.tensor([[2, 4, 7, 9, 3]])
    packed = Segments(torch.tensor([[0, 0, 0, 1, 1]])) & Causal()
    with pytest.raises(InputError, match="reference must be traces under a mask of Segments"):
        models["encoder"].edited(regard.Resample("residual", layer=1))(ids, mask=packed)
    one = torch.tensor([[True, False, False, False, False]])
    with pytest.raises(InputError, match="reference must be traces for a text of one position"):
        models["encoder"].edited(regard.Resample("residual", layer=1, query=0))(ids, mask=one)


def test_what_the_network_refuses_is_still_refused(models: Any) -> None:
    both, one = (
        models[shape].edited(regard.Zero("ffn", layer=0, kind="encoder")) for shape in ("both", "encoder")
    )
    pair = torch.tensor([[1, 2]])
    for model, arguments, message in (
        (both, {"token_ids": [[1]]}, "token_ids must be a tensor"),
        (both, {"token_ids": pair}, "decoder_token_ids must be given"),
        (both, {"token_ids": torch.tensor([[99]])}, "token_ids must"),
        (one, {"token_ids": pair, "decoder_token_ids": pair}, "decoder_positions must be None"),
        (one, {"token_ids": pair, "taps": Taps({"nowhere": lambda _: None})}, "no tap is called 'nowhere'"),
    ):
        with pytest.raises(InputError, match=message):
            model(**arguments)


@pytest.mark.parametrize("keep", ["all", "residual"])
def test_an_edit_that_makes_no_number_is_named(models: Any, keep: Any) -> None:
    edited = models["encoder"].edited(regard.Write("ffn", lambda x: x / 0 * 0, layer=0))
    with pytest.raises(RegardError, match=r"not finite: an edit wrote them, at layers.0.ffn.output; or the"):
        edited.trace(token_ids=[3, 1, 4], keep=keep)
    models["encoder"].trace(token_ids=[3, 1, 4])


def test_a_tap_that_is_not_offered() -> None:
    """A network that says it has a tap, and does not offer it."""
    model = make("encoder")
    edited = model.edited(regard.Zero("ffn", layer=1))
    model.network.encoder.layers[1].ffn.forward = lambda x, taps=None: x
    with pytest.raises(
        RegardError, match=r"the tap 'layers.1.ffn.output' was not offered .* Zero\('ffn', layer=1\)"
    ):
        edited(torch.tensor([[2, 3]]))


def test_the_model_of_transformers_by_itself_has_no_edits() -> None:
    from lens_models import FAMILIES, bert

    edited = regard.lens(bert()).edited(regard.Zero("head", layer=0))
    with pytest.raises(AttributeError, match="`generate` too, runs without the edits"):
        _ = edited.network.hf_model  # type: ignore[union-attr]
    experts = regard.lens(FAMILIES["gpt_oss"]())
    with pytest.raises(InputError, match="site 'ffn' cannot be seen in this model: it has no such tap"):
        experts.edited(regard.Zero("ffn", layer=0))
