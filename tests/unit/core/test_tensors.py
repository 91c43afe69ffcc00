"""Unit length and cosines at any scale; fingerprints: another text, name, shape, type or byte is another."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.core.tensors import cosine, fingerprint, unit
from tolerances import BF16, FP32_OF_LARGEST, FP64, assert_close_to_largest

SCALES = [
    *((torch.float32, scale, FP32_OF_LARGEST) for scale in (1e-42, 1e-30, 1e-12, 1.0, 2e19, 1e38)),
    *((torch.float64, scale, FP64) for scale in (1e-300, 1e-12, 1.0, 1e200, 1e307)),
    (torch.bfloat16, 1e38, BF16),
    (torch.float16, 1e4, BF16),
]


@pytest.mark.parametrize(("dtype", "scale", "tol"), SCALES, ids=str)
def test_lengths_and_cosines_are_those_of_wider_numbers(dtype: torch.dtype, scale: float, tol: float) -> None:
    """Whose squares neither overflow nor vanish: 80 bits."""
    x, y = (torch.randn(2, 3, 5, 7, dtype=torch.float64).clamp(-1.5, 1.5) * scale).to(dtype)
    wide = [each.double().numpy().astype(np.longdouble) for each in (x, y)]
    units = [each / np.sqrt((each**2).sum(-1, keepdims=True)) for each in wide]
    assert unit(x).dtype == dtype
    assert_close_to_largest(unit(x), units[0].astype(np.float64), tol)
    assert_close_to_largest(cosine(x, y), (units[0] * units[1]).sum(-1).astype(np.float64), tol)


def test_what_has_no_length_one() -> None:
    nothing, inf, nan = torch.zeros(7), torch.tensor([1.0, torch.inf]), torch.tensor([torch.nan, 1.0])
    assert torch.equal(unit(nothing), nothing)
    assert cosine(nothing, torch.ones(7)) == 0.0
    assert unit(inf).isnan().all()
    assert unit(nan).isnan().all()
    assert unit(torch.ones(0, 7)).shape == (0, 7)


def test_the_gradient_is_that_of_the_quotient() -> None:
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 5, dtype=torch.float64)
    (expected,) = torch.autograd.grad((x / x.square().sum(-1, keepdim=True).sqrt() * weight).sum(), x)
    (found,) = torch.autograd.grad((unit(x) * weight).sum(), x)
    assert_close_to_largest(found, expected, FP64)


def test_nobody_normalises_by_other_means() -> None:
    """Those of torch square before they divide, and have thresholds of 1e-12 and 1e-8."""
    root = Path(regard.__file__).parent
    other = re.compile(r"functional\.normalize\(|cosine_similarity\(")
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if other.search(line) and not line.lstrip().startswith(">>>")
    }
    assert found == {str(Path("core", "tensors.py"))}


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
