"""`view`: what it takes, and what it refuses."""

from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.views import LayerRecord, _arrays, view, weight_rows
from regard.views._page import pack_records
from regard.views._records import AttentionRecord, PageToken, Side
from unit.views.conftest import facts_of

TOKENS = ["[CLS]", "a", "b", "##c", "[SEP]"]


def _weights(layers: int = 2, heads: int = 3, queries: int = 5, keys: int = 5) -> Any:
    made = np.random.default_rng(0).random((layers, heads, queries, keys))
    return made / made.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    "of",
    [
        lambda w: w.astype(np.float32),
        lambda w: w[None],  # a batch of one
        lambda w: w[:, None],
        lambda w: torch.tensor(w).bfloat16(),
        lambda w: torch.tensor(w).requires_grad_(),
        lambda w: tuple(torch.tensor(w)[:, None]),  # as transformers has it
        lambda w: list(w),
        lambda w: list(w.tolist() and [np.asarray(each) for each in w]),
    ],
)
def test_takes_arrays_of_any_kind(of: Any) -> None:
    page = view(of(_weights()), TOKENS)
    assert page.encoding == "int16"
    assert page.largest_difference < 5e-5
    assert page.html == view(of(_weights()), TOKENS).html


def test_a_layer_may_have_heads_of_its_own() -> None:
    layers = facts_of(view([_weights()[0], _weights()[0][:2]], TOKENS))["kinds"]["encoder"]["layers"]
    assert [layer["heads"] for layer in layers] == [3, 2]


def test_draws_the_layers_asked_for() -> None:
    layers = facts_of(view(_weights(layers=4), TOKENS, layers=[-1, 1]))["kinds"]["encoder"]["layers"]
    assert [layer["layer"] for layer in layers] == [1, 3]


@pytest.mark.parametrize(
    ("weights", "options", "said"),
    [
        (_weights() * 2, {}, r"rows that sum to 1 or less; got 2 at \(head, query\) \(0, 0\) of layer 0"),
        (-_weights(), {}, "take the softmax"),
        (_weights() * np.nan, {}, "finite"),
        (_weights(queries=4), {}, "got 4 and 5; of cross-attention give key_tokens"),
        (_weights(keys=4), {}, "got 5 and 4"),
        (_weights()[0], {}, r"of shape \(layers, heads, queries, keys\), or \(queries, keys\) of one"),
        ([0.9, 0.1], {}, r"or \(queries, keys\) of one head, all at least 1; got \(2,\)"),
        ([[0.9, 0.1], [0.5]], {}, "rows of equal length"),
        (np.stack([_weights(), _weights()]), {}, "a batch of one; got 2|got 3"),
        ([], {}, "got none"),
        ([None, None], {}, "eager"),
        ([[_weights()[0]]], {}, "generate"),
        (np.array(["x"]), {}, "must be numbers"),
        (_weights(), {"layers": [2]}, "among 0 to 1"),
        (_weights(), {"layers": []}, "among 0 to 1"),
        (_weights(), {"second": 5}, "from 1 to 4"),
        (_weights(), {"second": 1, "key_tokens": TOKENS}, "None beside key_tokens"),
        (_weights(), {"key_tokens": "abcde"}, "key_tokens must be a list"),
        (_weights(), {"tokens": [101, 7, 8, 9, 102]}, "^tokens must be a list"),
    ],
)
def test_refuses_what_is_no_attention(weights: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        view(weights, **{"tokens": TOKENS} | options)


def test_one_head_is_a_matrix_of_any_kind() -> None:
    rows = [[0.9, 0.1], [0.25, 0.75]]
    pages = [view(each, ["a", "bank"]).html for each in (rows, np.array(rows), np.array([[rows]]))]
    assert pages[0] == pages[1] == pages[2]


def test_refuses_more_than_a_page_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arrays, "_MOST_BYTES", 299)
    with pytest.raises(
        InputError, match=r"2 layers x 3 heads x 5 queries x 5 keys take .* MB .*regard\.lens"
    ):
        view(_weights(), TOKENS)
    view(_weights(), TOKENS, layers=[1])


def test_rows_may_sum_to_less_and_to_what_bfloat16_makes_of_one() -> None:
    view(_weights() * 0.5, TOKENS)
    view(_weights() * 1.004, TOKENS)


def test_words_and_specials_are_found() -> None:
    side = _arrays._side("tokens", ["<s>", "Ġtime", "Ġfl", "ies", "</s>", "Ġx", "##y"], 5)
    assert (side.text, side.pair, side.words) == ("time flies", "x##y", ("time", "flies", "x##y"))
    assert [token.word for token in side.tokens] == [None, 0, 1, 1, None, 2, 2]
    assert [token.special for token in side.tokens] == [True, False, False, False, True, False, False]
    assert [token.surface for token in side.tokens[1:4]] == ["time", "fl", "ies"]
    side = _arrays._side("tokens", TOKENS, None)
    assert (side.text, side.words) == ("a bc", ("a", "bc"))


def test_a_given_layer_gives_its_weights_back() -> None:
    weights = _weights()[0].astype(np.float32)
    layer = LayerRecord.of_weights(0, weights)
    np.testing.assert_array_equal(weight_rows(layer, 1, np.array([2, 0])), weights[1, [2, 0]])
    side = Side(text=None, tokens=tuple(PageToken(text=text) for text in TOKENS))
    record = AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)})
    (packed,) = pack_records([record])[1]
    shown = packed.layers["encoder"][0].shown.weights
    assert shown is not None
    assert 0 < np.abs(shown - weights).max() <= packed.largest_difference + 1e-9
