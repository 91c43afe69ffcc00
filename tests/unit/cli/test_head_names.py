"""Heads on the command line."""

from typing import Any

import pytest

from regard.cli._head_names import parse_heads, parse_heads_or_layers
from regard.core.errors import InputError


@pytest.mark.parametrize(
    ("words", "heads"),
    [
        ("3.5", [(3, 5)]),
        ("0.0,11.7", [(0, 0), (11, 7)]),
        (" cross.1.0 , -1.-2", [("cross", 1, 0), (-1, -2)]),
    ],
)
def test_reads_heads(words: str, heads: list[Any]) -> None:
    assert parse_heads("--values", words) == heads


@pytest.mark.parametrize("words", ["", "3", "3.", "3.5;4.1", "3.5,", "1.2.3.4", "cross.x.1", "٣.٥", "--1.0"])
def test_refuses_what_names_no_head(words: str) -> None:
    with pytest.raises(InputError, match=r"--values must be layers and heads such as 3\.5,4\.1"):
        parse_heads("--values", words)


def test_a_layer_stands_for_its_heads() -> None:
    assert parse_heads_or_layers("--heads", "3.5, -1,cross.1.0") == [(3, 5), -1, ("cross", 1, 0)]
    with pytest.raises(InputError, match="--heads must be layers and heads"):
        parse_heads_or_layers("--heads", "3,x")
