"""Whatever is given in the place of an argument, it is refused by name: no traceback from inside."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.models import Output
from regard.tracing import default_patterns, divergence, heads, heads_of_trace, repeated_tokens
from unit.tracing import measured
from unit.tracing.stacks import OTHER, TEXT, make, trace_of

THINGS: tuple[Any, ...] = (b"x", {}, {1}, object(), 1j, type, torch.zeros(2), math.nan, -1.5, True, False)
"""What is never meant, in the place of anything."""

NO_NUMBER = (*THINGS[:-4], math.nan, math.inf, None, "a", "", [], [0.5], slice(2), len)
NO_INDEX = (*THINGS, math.inf, "a", "", [], [0.5], slice(2), 1.0, torch.tensor(1.0), -(10**20))
NO_WHOLE = (*NO_INDEX, None, np.float64(1))
NO_FUNCTION = (*THINGS[:5], *THINGS[6:], 0, "a", [], [len])
NO_KIND = (*THINGS, 0, "", "both", "Encoder", [], ["encoder"])
NO_LAYER = (*NO_INDEX, 2, -3)
NO_TOKEN = (*THINGS, 9, -10, [0.5], [9], (), slice(0, 0), slice("a", None), slice(0, 2, 0))
NO_TRACE = (*THINGS, None, 0, [], ["bank"])
NO_WORD_IN = (*THINGS, 0, "", "Gradient", "zeroed", None, [])


def first(output: Output) -> torch.Tensor:
    return output.last_hidden_state[0, 0, 0]


def of_example(output: Output, number: int) -> torch.Tensor:
    return output.last_hidden_state[0, 0, 0]


class Models:
    """What the calls below are made of, once."""

    def __init__(self) -> None:
        self.model = make("encoder")
        self.trace = trace_of(self.model)
        self.speaker = measured.traced(measured.NETWORKS["decoder"]())

    def edited(self, edit: regard.tracing.Edit) -> None:
        self.model.edited(edit).trace(TEXT)


@pytest.fixture(scope="module")
def m() -> Models:
    return Models()


NO_HEADS = (
    *(None, 0, "a", [], [0], {0: 1}, {0: None}, {0: "1"}, {0: torch.tensor(1)}, {0: []}),
    *({2: [0]}, {"a": {0: [0]}}, {True: [0]}, {0: [3]}, {0: [0.5]}, {0: [True]}, {0: [0, 1, 2]}),
)

Call = Callable[..., object]
VECTOR = torch.ones(30, dtype=torch.float64)
TABLE = torch.ones(2, 3)

CALLS: dict[str, tuple[Callable[[Models], Call], dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "heads": (
        lambda m: lambda **k: heads(m.model.loaded, **{"texts": TEXT, **k}),
        {},
        {
            "texts": (None, 0, 1.5, True, object(), [0], [1.5], [None], [], torch.tensor(0)),
            "targets": (0, 1.5, True, object(), torch.tensor(0), [], [None]),
            "on_refused": NO_FUNCTION,
        },
    ),
    "heads_of_trace": (
        lambda m: lambda **k: heads_of_trace(**{"trace": m.trace, **k}),
        {},
        {
            "trace": NO_TRACE,
            "kind": (*NO_KIND, "decoder", "cross"),
            "layer": NO_LAYER,
            "head": (*NO_INDEX, 3, -4),
            "patterns": (*NO_FUNCTION, None, lambda kind: 1, lambda kind: [], lambda kind: [kind]),
            "threshold": (*NO_NUMBER, True, 1.0, 1, -0.1),
            "level": (*NO_NUMBER, True, 0, 1.0, -0.5, 1 - 1e-9),
            "resamples": (*NO_WHOLE, 400.5, 0, 39, 10**9),
            "seed": (*NO_WHOLE, -1),
        },
    ),
    "repeated_tokens": (
        lambda m: lambda **k: repeated_tokens(m.model.loaded, **k),
        {"count": 1},
        {"count": (*NO_WHOLE, 0), "length": (*NO_WHOLE, 3), "seed": (*NO_WHOLE, -1)},
    ),
    "default_patterns": (lambda m: default_patterns, {}, {"kind": (*NO_KIND, None)}),
    "statistics": (
        lambda m: m.trace.statistics,
        {},
        {"kind": NO_KIND, "layers": (*NO_LAYER, [0, 2], ["a"]), "top_k": (*NO_WHOLE, -1, 10)},
    ),
    "importance": (
        lambda m: lambda **k: m.model.head_importance(**{"examples": [m.trace], **k}),
        {"metric": of_example},
        {
            "examples": (*THINGS, None, 0, "", TEXT, [], [0], [None], [torch.zeros(2)]),
            "metric": (*NO_FUNCTION, None, lambda output, i: math.nan, lambda output, i: "a"),
            "method": NO_WORD_IN,
            "kind": NO_KIND,
            "progress": NO_FUNCTION,
        },
    ),
    "patch": (
        lambda m: m.model.patch,
        {"clean": TEXT, "corrupted": TEXT, "metric": first, "layer": 1},
        {
            "clean": NO_TRACE,
            "corrupted": NO_TRACE,
            "metric": (*NO_FUNCTION, None, lambda output: output, lambda output: math.inf),
            "site": (*NO_WORD_IN, "head "),
            "kind": NO_KIND,
            "per": (*NO_WORD_IN[:-2], "head"),
            "layer": (*THINGS, 3, -4, [], [0, 0], [0.5], slice(9, 9)),
            "method": NO_WORD_IN,
            "progress": NO_FUNCTION,
        },
    ),
    "divergence": (
        lambda m: lambda **k: divergence(**{"one": m.trace, "other": m.trace, **k}),
        {},
        {"one": NO_TRACE, "other": NO_TRACE, "kind": NO_KIND},
    ),
    "rollout": (
        lambda m: m.trace.rollout,
        {},
        {"token": NO_TOKEN, "kind": (*NO_KIND, "cross"), "layer": NO_LAYER},
    ),
    "flow": (
        lambda m: m.trace.flow,
        {"token": "bank"},
        {"token": NO_TOKEN, "key": NO_TOKEN, "kind": (*NO_KIND, "cross"), "layer": NO_LAYER},
    ),
    "value_zeroing": (
        lambda m: m.trace.value_zeroing,
        {"layer": 0},
        {"layer": NO_LAYER, "kind": NO_KIND, "query": NO_TOKEN, "key": NO_TOKEN},
    ),
    "norm_weighted": (
        lambda m: m.trace.norm_weighted,
        {"layer": 0},
        {"layer": NO_LAYER, "head": (*THINGS, 3, "a"), "kind": NO_KIND, "query": NO_TOKEN, "key": NO_TOKEN},
    ),
    "norm_weighted_layer": (
        lambda m: m.trace.norm_weighted_layer,
        {"layer": 0},
        {"layer": NO_LAYER, "kind": NO_KIND, "query": NO_TOKEN, "key": NO_TOKEN},
    ),
    "gradients": (
        lambda m: m.trace.gradients,
        {"of": first, "at": "embeddings.tokens"},
        {
            "of": (*NO_FUNCTION, None, lambda output: 1.0, lambda output: output.last_hidden_state),
            "at": (*THINGS, None, 0, [], [0]),
        },
    ),
    "gradients of a model": (
        lambda m: m.model.gradients,
        {"text": TEXT, "of": first, "at": "embeddings.tokens"},
        {"text": NO_TRACE[:-1]},  # ["bank"] is a text in words
    ),
    "attention_gradients": (
        lambda m: m.trace.attention_gradients,
        {"layer": 0, "of": first},
        {"layer": NO_LAYER, "head": (*THINGS, 3, "a"), "of": (*NO_FUNCTION, None), "kind": NO_KIND},
    ),
    "relevance": (
        lambda m: m.trace.relevance,
        {"of": first},
        {"token": NO_TOKEN, "of": (*NO_FUNCTION, None), "kind": (*NO_KIND, "cross")},
    ),
    "integrated_gradients": (
        lambda m: m.trace.integrated_gradients,
        {"of": first},
        {
            "of": (*NO_FUNCTION, None),
            "baseline": (*THINGS, -1, 31, "a", [], torch.zeros(29), torch.zeros(30, dtype=torch.int64)),
            "steps": (*NO_WHOLE, 0, 10**9),
            "kind": (*NO_KIND, "cross"),
        },
    ),
    "logit_lens": (lambda m: m.speaker.logit_lens, {}, {"token": NO_TOKEN, "k": (*NO_WHOLE, 0, 32)}),
    "direct_attribution": (
        lambda m: m.speaker.direct_attribution,
        {"target": 3},
        {"target": (*THINGS, -1, 31, None, (), (1, 2, 3), [1, 2], torch.zeros(29)), "token": NO_TOKEN},
    ),
    "embedding": (
        lambda m: m.trace.embedding,
        {"token": "bank"},
        {"token": (*NO_TOKEN, None), "layer": (*NO_INDEX, 3, -4), "kind": (*NO_KIND, "cross")},
    ),
    "weights": (
        lambda m: m.trace.weights,
        {"layer": 0},
        {
            "layer": [each for each in NO_LAYER if not isinstance(each, slice)],
            "head": (*THINGS, 3, "a"),
            "kind": NO_KIND,
            "query": NO_TOKEN,
            "key": NO_TOKEN,
        },
    ),
    "zero": (
        lambda m: lambda **k: m.edited(regard.Zero(**k)),
        {"site": "weights", "layer": 1},
        {
            "site": NO_WORD_IN,
            "layer": (*THINGS, 2, -3, [], [0, 0], [0.5], slice(9, 9)),
            "head": (*THINGS, 3, -4, [], [0, 0], [0.5], slice(9, 9)),
            "query": (*THINGS, 9, -10, [], [0, 0], [0.5], slice(9, 9)),
            "key": (*THINGS, 9, -10, [], [0, 0], [0.5], slice(9, 9)),
            "kind": (*NO_KIND, "cross"),
        },
    ),
    "scale": (lambda m: lambda **k: m.edited(regard.Scale("ffn", **k)), {}, {"factor": (*NO_NUMBER, True)}),
    "add": (
        lambda m: lambda **k: m.edited(regard.Add("ffn", **k)),
        {},
        {"value": (*THINGS, None, 1, [1.0], VECTOR[:7], VECTOR.float(), VECTOR.long(), VECTOR.to("meta"))},
    ),
    "replace": (
        lambda m: lambda **k: m.edited(regard.Replace("ffn", **{"value": m.trace, **k})),
        {},
        {
            "value": (*THINGS, None, 1, [1.0], VECTOR[:7], VECTOR.float(), VECTOR.to("meta")),
            "source": (*THINGS, 9, [], [0, 0], slice(9, 9)),
        },
    ),
    "mean": (
        lambda m: lambda **k: m.edited(regard.Mean("ffn", **k)),
        {},
        {"reference": (*THINGS, None, 1, [], [1.0], VECTOR, VECTOR[None, :7], VECTOR[None].float())},
    ),
    "resample": (
        lambda m: lambda **k: m.edited(regard.Resample("ffn", **k)),
        {},
        {"reference": (*THINGS, 1, [], [1.0], VECTOR[None]), "seed": (*NO_WHOLE, -1, 2**63)},
    ),
    "prune": (lambda m: m.model.prune, {}, {"heads": (*THINGS, *NO_HEADS)}),
    "weakest_heads": (
        lambda m: m.model.weakest_heads,
        {"importance": TABLE, "number": 1},
        {
            "importance": (*THINGS, None, TABLE.long(), TABLE[:1], TABLE * math.nan, {"decoder": TABLE}),
            "number": (*NO_WHOLE, 0, 5),
            "evenly": (*THINGS[:-2], 0, 1, "a", []),
        },
    ),
    "pruning_curve": (
        lambda m: m.model.pruning_curve,
        {"importance": TABLE, "metric": lambda model: 1.0},
        {
            "metric": (*NO_FUNCTION, None, lambda model: None, lambda model: math.nan),
            "every": (*NO_WHOLE, 0),
            "evenly": (*THINGS[:-2], 0, 1, "a", []),
            "progress": NO_FUNCTION,
        },
    ),
    "compare": (
        lambda m: m.model.compare,
        {"texts": [TEXT, OTHER], "word": "bank"},
        {"texts": (*THINGS, None, TEXT, [], [TEXT], [0, 1]), "word": (*THINGS, None, 0, [], ["bank"])},
    ),
}
"""By name: the function, what it is given besides, and for each argument what is to be refused."""


@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name, (_, _, bad) in CALLS.items() for argument in bad]
)
def test_it_is_refused_by_name(m: Models, name: str, argument: str) -> None:
    function, others, bad = CALLS[name]
    for value in bad[argument]:
        message = refusal(lambda value=value: function(m)(**{**others, argument: value}))
        assert argument.removesuffix("s") in message, f"{argument}={value!r}: {message}"
        assert "\n" not in message


def refusal(call: Callable[[], object]) -> str:
    """What is said; any other exception is passed on."""
    try:
        call()
    except InputError as error:
        return str(error)
    return "nothing was refused"
