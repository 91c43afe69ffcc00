"""A record that cannot be drawn is refused where it is made, with the argument's name and a way out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import AttentionRecord, LayerRecord, MaskRecord, PageToken, Side

MakeRecord = Callable[..., AttentionRecord]


def _random(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def _with(array: Any, value: float) -> Any:
    array[1, 2, 3, 4] = value
    return array


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tokens": ()}, "tokens: wanted at least one, got none"),
        ({"q": _random(2, 3, 7, 5).astype(np.float64)}, "q: wanted a float32 numpy array, got float64"),
        ({"k": [[1.0]]}, "k: wanted a float32 numpy array, got list"),
        ({"q": _random(3, 7, 5)}, "q: wanted shape (layers, heads, tokens, head_dim)"),
        ({"k": _random(2, 3, 7, 0)}, "k: wanted shape (layers, heads, tokens, head_dim)"),
        ({"k": _random(2, 2, 7, 5)}, "k: wanted a number of heads that divides q's 3, got 2"),
        ({"q": _random(2, 3, 11, 5)}, "q: wanted 7 tokens in encoder layer 0, got 11"),
        ({"k": _random(2, 3, 11, 5)}, "k: wanted 7 tokens in encoder layer 0, got 11"),
        ({"k": _random(13, 3, 7, 5)}, "k: wanted 2 layers as q has, got 13"),
        ({"k": _random(2, 3, 7, 11)}, "k: wanted q's head_dim 5, got 11"),
        ({"q": _with(_random(2, 3, 7, 5), np.nan)}, "q: wanted finite numbers, got nan at (1, 2, 3, 4)"),
        ({"k": _with(_random(2, 3, 7, 5), -np.inf)}, "k: wanted finite numbers, got -inf at (1, 2, 3, 4)"),
        ({"scale": 0.0}, "scale: wanted a finite number above 0, got 0.0"),
        ({"scale": float("nan")}, "scale: wanted a finite number above 0, got nan"),
        ({"tokens": (PageToken(text="b", sequence=1),) * 7}, "pair: wanted the second text, got None"),
    ],
)
def test_refuses(make_record: MakeRecord, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        make_record(**fields)
    message = str(caught.value)
    assert message.startswith(says)
    assert ";" in message.removeprefix(says), "no way out"
    assert "\n" not in message


def test_takes_shared_key_heads(make_record: MakeRecord) -> None:
    assert [each.k.shape for each in make_record(k=_random(2, 1, 7, 5)).layers["encoder"]] == [(1, 7, 5)] * 2


def _layer(**fields: Any) -> LayerRecord:
    usual: dict[str, Any] = {"layer": 0, "q": _random(3, 7, 5), "k": _random(3, 11, 5), "scale": 0.5}
    return LayerRecord(**(usual | fields))


def _mask(**fields: Any) -> dict[str, Any]:
    return {"mask": MaskRecord(**fields)}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"q": _random(2, 3, 7, 5)}, "q: wanted shape (heads, queries, head_dim)"),
        ({"softcap": 0.0}, "softcap: wanted a finite number above 0, got 0.0"),
        ({"bias": _random(3, 16)}, "bias: wanted shape (3, 17)"),
        ({"bias": _random(2, 17)}, "bias: wanted shape (3, 17)"),
        ({"bias": _random(3, 11, 7)}, "bias: wanted shape (3, 7, 11)"),
        ({"bias": np.zeros((3, 7, 11))}, "bias: wanted a float32 numpy array, got float64"),
        ({"bias": np.full((1, 7, 11), -np.inf, np.float32)}, "bias: wanted finite numbers, got -inf"),
        ({"sinks": _random(4)}, "sinks: wanted shape (3,), one a head, got (4,)"),
        (_mask(keys=np.ones(7, bool)), "mask.keys: wanted shape (11,), got (7,)"),
        (_mask(segments=(np.zeros(11), np.zeros(11))), "mask.segments: wanted shape (7,), got (11,)"),
        (_mask(bits=np.ones((3, 11, 7), bool)), "mask.bits: wanted shape (3, 7, 11)"),
        (_mask(bits=np.ones((2, 7, 11), bool)), "mask.bits: wanted shape (3, 7, 11)"),
    ],
)
def test_layer_refuses(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        _layer(**fields)
    message = str(caught.value)
    assert message.startswith(says)
    assert ";" in message.removeprefix(says), "no way out"


def _side(count: int) -> Side:
    return Side(text="t", tokens=tuple(PageToken(text=str(i)) for i in range(count)))


def test_each_kind_has_its_own_sides_and_sizes() -> None:
    record = AttentionRecord(
        model="m",
        encoder=_side(11),
        decoder=_side(7),
        layers={
            "cross": (_layer(layer=1), _layer(layer=4, q=_random(1, 7, 2), k=_random(1, 11, 2))),
            "decoder": (_layer(k=_random(3, 7, 5)),),
            "encoder": (_layer(q=_random(3, 11, 5)),) * 1,
        },
    )
    assert record.kinds == ("encoder", "decoder", "cross")
    sizes = {kind: tuple(len(side.tokens) for side in record.sides(kind)) for kind in record.kinds}
    assert sizes == {"encoder": (11, 11), "decoder": (7, 7), "cross": (7, 11)}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"layers": {}}, "layers: wanted the layers of at least one kind"),
        ({"layers": {"encoder": ()}}, "layers: wanted at least one encoder layer"),
        ({"layers": {"both": (_layer(),)}}, "layers: wanted kinds of encoder, decoder, cross, got 'both'"),
        (
            {"layers": {"cross": (_layer(layer=2), _layer(layer=1))}},
            "layers: wanted numbers from 0 that grow",
        ),
        (
            {"layers": {"cross": (_layer(layer=1), _layer(layer=1))}},
            "layers: wanted numbers from 0 that grow",
        ),
        ({"layers": {"decoder": (_layer(),)}}, "k: wanted 7 tokens in decoder layer 0, got 11"),
        ({"decoder": None}, "decoder: wanted the tokens that cross attention reads, got None"),
        ({"encoder": None}, "encoder: wanted the tokens that cross attention reads, got None"),
    ],
)
def test_record_refuses(fields: dict[str, Any], says: str) -> None:
    usual: dict[str, Any] = {
        "model": "m",
        "encoder": _side(11),
        "decoder": _side(7),
        "layers": {"cross": (_layer(),)},
    }
    with pytest.raises(InputError) as caught:
        AttentionRecord(**(usual | fields))
    assert str(caught.value).startswith(says)


def test_words_must_be_there_for_every_token_that_names_one() -> None:
    with pytest.raises(InputError, match="words: wanted a text for every word"):
        Side(text="t", tokens=(PageToken(text="x", word=1),), words=("x",))


def test_token_refuses_what_is_not_text() -> None:
    token: Any = 101
    with pytest.raises(InputError, match="text: wanted a str, got int"):
        PageToken(text=token)


def test_token_refuses_a_third_sequence() -> None:
    with pytest.raises(InputError, match=r"sequence: wanted 0 .* got 2"):
        PageToken(text="x", sequence=2)
