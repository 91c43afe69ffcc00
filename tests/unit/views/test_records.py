"""A record that cannot be drawn is refused where it is made, with the argument's name and a way out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import AttentionRecord, PageToken

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
        ({"q": _random(2, 3, 11, 5)}, "q: wanted shape (2, 3, 7, 5)"),
        ({"k": _random(2, 3, 11, 5)}, "k: wanted shape (2, 3, 7, 5)"),
        ({"k": _random(13, 3, 7, 5)}, "k: wanted shape (2, 3, 7, 5)"),
        ({"k": _random(2, 3, 7, 11)}, "k: wanted shape (2, 3, 7, 5)"),
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
    assert make_record(k=_random(2, 1, 7, 5)).k.shape == (2, 1, 7, 5)


def test_token_refuses_what_is_not_text() -> None:
    token: Any = 101
    with pytest.raises(InputError, match="text: wanted a str, got int"):
        PageToken(text=token)


def test_token_refuses_a_third_sequence() -> None:
    with pytest.raises(InputError, match=r"sequence: wanted 0 .* got 2"):
        PageToken(text="x", sequence=2)
