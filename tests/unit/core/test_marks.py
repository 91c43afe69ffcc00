"""Marks: another text, name, shape, type or byte is another mark."""

from __future__ import annotations

import torch

from regard.core.marks import mark


def test_what_a_mark_is_of() -> None:
    ones = torch.ones(6)
    others = [
        mark("a", [("b", ones)]),
        mark("a", [("c", ones)]),
        mark("d", [("b", ones)]),
        mark("a", [("b", ones.view(2, 3))]),
        mark("a", [("b", ones.half())]),
        mark("a", [("b", ones.view(torch.int32))]),
        mark("a", [("b", torch.zeros(6))]),
        mark("a", [("b", ones), ("b", ones)]),
        mark("a", []),
    ]
    assert len(set(others)) == len(others)
    assert mark("a", [("b", torch.ones(3, 2).T.reshape(6))]) == others[0]
    assert mark("a", [("b", ones.bfloat16())]) == mark("a", [("b", torch.ones(6, dtype=torch.bfloat16))])
