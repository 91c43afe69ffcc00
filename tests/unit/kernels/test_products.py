"""What products in float32, in 16 and in 8 bits have in common."""

import math

import pytest
import torch
from torch import Tensor

from regard.kernels import _float32, _int8, _int16
from regard.kernels._float32 import Float32Product
from regard.kernels._int8 import Int8Product
from regard.kernels._int16 import Int16Product
from regard.kernels._products import KernelProduct
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.kernels.targets import TARGETS, WITH_VNNI

GELU = {Float32Product: 2e-7, Int16Product: 4e-6, Int8Product: 4.5e-5}
"""How far each is from GELU, of what it is given or of 1."""

EVERY = [
    *((_float32, Float32Product, target) for target in TARGETS),
    *((_int16, Int16Product, target) for target in TARGETS),
    *((_int8, Int8Product, target) for target in WITH_VNNI),
]


@pytest.fixture(params=EVERY, ids=lambda each: f"{each[1].__name__}-{each[2]}")
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[KernelProduct]:
    module, kind, target = request.param
    monkeypatch.setattr(module, "here", lambda: target)
    return kind


def _made(product: type[KernelProduct], weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return product(weight, bias).into(torch.full((len(x), len(weight)), math.nan), x)


@pytest.mark.parametrize("depth", [384, 1536])
def test_a_row_does_not_depend_on_the_others(product: type[KernelProduct], depth: int) -> None:
    """At every number of rows that is left over by tiles, and across blocks."""
    torch.manual_seed(0)
    weight = torch.randn(32, depth)
    x = torch.randn(809, depth) * torch.logspace(-3, 3, 809)[:, None]
    whole = _made(product, weight, x)
    parts = [
        (0, 1),
        *((3, 3 + n) for n in range(1, 14)),
        (47, 49),
        (95, 97),
        (380, 390),
        (380, 409),
        (700, 809),
    ]
    for start, stop in parts:
        assert torch.equal(_made(product, weight, x[start:stop].clone()), whole[start:stop])


def test_what_is_not_a_number_stays_in_its_row(product: type[KernelProduct]) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(32, 256), torch.randn(7, 256)
    clean = _made(product, weight, x)
    x[1, 255], x[3, 0], x[5, 20] = math.nan, math.inf, -math.inf
    found = _made(product, weight, x)
    assert not found[[1, 3, 5]].isfinite().any()
    assert product is not Int16Product or found[[1, 3, 5]].isnan().all()
    assert torch.equal(found[[0, 2, 4, 6]], clean[[0, 2, 4, 6]])


def test_gelu_and_adding_to_rows_that_lie_apart(product: type[KernelProduct]) -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(96, 384), torch.randn(96) * 3, torch.randn(211, 384) * 0.3
    plain = _made(product, weight, x, bias)
    assert plain.min() < -9
    assert plain.max() > 9  # beyond where the distribution is 0 or 1
    wide = torch.full((211, 160), math.nan)
    made = wide[:, 5:101]
    product(weight, bias).gelu_into(made, x)
    exact = torch.nn.functional.gelu(plain.double())
    assert (made - exact).abs().le(GELU[product] * plain.abs().clamp(min=1.0)).all()
    before = made.clone()
    product(weight, bias).add_to(made, x)
    assert_close_to_largest(made, before + _made(product, weight, x), FP32_OF_LARGEST)
    product(weight, bias).into(made, x)
    assert torch.equal(made, plain)
    x[3, 5] = math.nan
    product(weight, bias).gelu_into(made, x)
    assert made[3].isnan().all()
    assert not made[[2, 4]].isnan().any()
    assert wide[:, :5].isnan().all()
    assert wide[:, 101:].isnan().all()


@pytest.mark.parametrize(
    ("x", "out"),
    [
        (torch.zeros(3, 128, dtype=torch.float64), torch.zeros(3, 32)),
        (torch.zeros(128, 3).T, torch.zeros(3, 32)),
        (torch.zeros(3, 127), torch.zeros(3, 32)),
        (torch.zeros(3, 128), torch.zeros(3, 32, dtype=torch.float64)),
        (torch.zeros(3, 128), torch.zeros(32, 3).T),
        (torch.zeros(3, 128), torch.zeros(2, 32)),
    ],
    ids=["x in float64", "x turned", "x too short", "out in float64", "out turned", "out of other rows"],
)
def test_a_kernel_gets_no_address_of_anything_else(
    product: type[KernelProduct], x: Tensor, out: Tensor
) -> None:
    with pytest.raises(AssertionError):
        product(torch.zeros(32, 128), None).into(out, x)
