"""Fingerprints: another text, name, shape, type or byte is another one."""

from __future__ import annotations

import torch

from regard.core.tensors import fingerprint


def test_what_a_mark_is_of() -> None:
    ones = torch.ones(6)
    others = [
        fingerprint("a", [("b", ones)]),
        fingerprint("a", [("c", ones)]),
        fingerprint("d", [("b", ones)]),
        fingerprint("a", [("b", ones.view(2, 3))]),
        fingerprint("a", [("b", ones.half())]),
        fingerprint("a", [("b", ones.view(torch.int32))]),
        fingerprint("a", [("b", torch.zeros(6))]),
        fingerprint("a", [("b", ones), ("b", ones)]),
        fingerprint("a", []),
    ]
    assert len(set(others)) == len(others)
    assert fingerprint("a", [("b", torch.ones(3, 2).T.reshape(6))]) == others[0]
    assert fingerprint("a", [("b", ones.bfloat16())]) == fingerprint(
        "a", [("b", torch.ones(6, dtype=torch.bfloat16))]
    )
