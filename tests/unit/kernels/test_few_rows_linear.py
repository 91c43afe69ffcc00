"""Products of a few rows against the formula in float64, of every kind of stored weight and processor."""

import pytest
import torch
from torch import Tensor, nn

from regard.kernels import FewRowsLinear
from regard.kernels import _few_rows as few_rows
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.kernels.targets import TARGETS

pytestmark = pytest.mark.skipif(not TARGETS, reason="the processor has no AVX2")

MANY = few_rows.MOST_ROWS + 1


@pytest.fixture(params=TARGETS, ids=str)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "here", lambda: request.param)


def _weight(linear: nn.Linear, stored: torch.dtype) -> Tensor:
    """What the product is to use, in float64, made by other means."""
    weight = linear.weight.detach()
    if stored == torch.int8:
        steps = weight.double().abs().max(dim=1, keepdim=True).values / 127
        return torch.round(weight.double() / steps) * steps
    return weight.to(stored).double()


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", [192, 2112])  # in one piece; in three, the last short
def test_equals_the_sums_in_float64(stored: torch.dtype, bias: bool, depth: int) -> None:
    linear = nn.Linear(depth, 37, bias=bias).requires_grad_(False)  # 3 portions, a column alone
    made = FewRowsLinear(linear, stored)
    for rows in (*range(1, 10), MANY, 2 * MANY):
        x = torch.randn(rows, depth)
        rounded = x.bfloat16() if stored == torch.bfloat16 else x
        wanted = rounded.double() @ _weight(linear, stored).T + (linear.bias.double() if bias else 0.0)
        assert_close_to_largest(made(x).double(), wanted, FP32_OF_LARGEST)


def test_every_thread_takes_its_share() -> None:
    linear = nn.Linear(64, 1000).requires_grad_(False)
    made, x = FewRowsLinear(linear, torch.float32), torch.randn(2, 64)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert_close_to_largest(made(x), linear(x), FP32_OF_LARGEST)
    finally:
        torch.set_num_threads(before)


def test_keeps_shapes_and_reads_rows_that_are_apart() -> None:
    linear = nn.Linear(64, 5).requires_grad_(False)
    x = torch.randn(2, 64, 3).transpose(1, 2)
    made = FewRowsLinear(linear, torch.float32)
    assert made(x).shape == (2, 3, 5)
    assert_close_to_largest(made(x), linear(x), FP32_OF_LARGEST)
    assert made(x[:0]).shape == (0, 3, 5)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_a_weight_that_lies_transposed_is_laid_out_anew(stored: torch.dtype) -> None:
    linear = nn.Linear(64, 5).requires_grad_(False)
    linear.weight = nn.Parameter(torch.randn(64, 5).t(), requires_grad=False)
    wanted = torch.ones(1, 64).double() @ _weight(linear, stored).T + linear.bias.double()
    made = FewRowsLinear(linear, stored)
    assert_close_to_largest(made(torch.ones(1, 64)).double(), wanted, FP32_OF_LARGEST)
    assert linear.weight.is_contiguous() == (stored == torch.float32)


def test_the_weight_is_not_copied_and_a_row_of_zeros_stays_one() -> None:
    linear = nn.Linear(64, 3).requires_grad_(False)
    assert FewRowsLinear(linear, torch.float32).weight is linear.weight
    linear.weight[1] = 0.0
    in_codes = FewRowsLinear(linear, torch.int8)
    assert not hasattr(in_codes, "weight")  # nobody is to take codes for weights
    made = in_codes(torch.ones(1, 64))
    assert float(made[0, 1]) == float(linear.bias[1])


def test_sizes_that_the_kernel_does_not_know_are_told() -> None:
    assert FewRowsLinear.takes(nn.Linear(128, 7))
    assert not FewRowsLinear.takes(nn.Linear(67, 7))
    assert not FewRowsLinear.takes(nn.Linear(128, 7).double())
