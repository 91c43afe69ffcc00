"""Products of linear layers by oneDNN: their numbers, where they are taken, and to the same bits."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.training import _products
from regard.training._products import Products, fastest_products
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.training.test_runs import test_a_run_that_was_killed_goes_on_to_the_same_model as goes_on


def _is_by_one_dnn(found: Tensor) -> bool:
    step = found.grad_fn
    return step is not None and any("_Linear" in str(before) for before, _ in step.next_functions)


@pytest.mark.parametrize("has_bias", [True, False])
def test_numbers_and_gradients_are_those_of_float64(has_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_products, "_WORTH_IT", 0)
    x = torch.randn(3, 7, 5).transpose(0, 1).requires_grad_()  # as heads leave it, not in a row
    weight, bias = torch.randn(11, 5, requires_grad=True), torch.randn(11, requires_grad=True)
    given: list[Any] = [x, weight, bias] if has_bias else [x, weight]
    upstream = torch.randn(7, 3, 11)
    with Products():
        found = functional.linear(*given)
    assert _is_by_one_dnn(found)
    ours = torch.autograd.grad(found.add_(0.0), given, upstream)  # it may be changed in place, as torch's own
    wide = [each.detach().double().requires_grad_() for each in given]
    wanted = wide[0] @ wide[1].T + (wide[2] if has_bias else 0.0)
    theirs = torch.autograd.grad(wanted, wide, upstream.double())
    for one, other in zip((found, *ours), (wanted, *theirs), strict=True):
        assert one.dtype == torch.float32
        assert_close_to_largest(one, other, FP32_OF_LARGEST)


_LAYOUTS = {
    "a matrix": lambda rows, columns: torch.randn(rows, columns),
    "its transpose": lambda rows, columns: torch.randn(columns, rows).t(),
    "rows of a transpose": lambda rows, columns: torch.randn(columns, 3 * rows).t()[rows : 2 * rows],
    "columns of a matrix": lambda rows, columns: torch.randn(rows, 2 * columns)[:, :columns],
    "every second row": lambda rows, columns: torch.randn(2 * rows, columns)[::2],
    "one row for all": lambda rows, columns: torch.randn(1, columns).expand(rows, columns),
}


@pytest.mark.parametrize("x_like", _LAYOUTS)
@pytest.mark.parametrize("weight_like", _LAYOUTS)
def test_one_dnn_gets_right_factors_without_gaps(
    x_like: str, weight_like: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes over a thousand times as long for others; a test of the time would ask for AVX-512."""

    def product(left: Tensor, right: Tensor, bias: Tensor | None, *_: Any) -> Tensor:
        assert right.is_contiguous() or right.t().is_contiguous(), right.stride()
        return functional.linear(left, right, bias)

    monkeypatch.setattr(_products, "_WORTH_IT", 0)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", product)
    given = [_LAYOUTS[x_like](7, 5).requires_grad_(), _LAYOUTS[weight_like](11, 5).requires_grad_()]
    with Products():
        found = functional.linear(*given)
    assert _is_by_one_dnn(found)
    ours = torch.autograd.grad(found.sum(), given)  # whose gradient is one number for all
    theirs = torch.autograd.grad((given[0] @ given[1].t()).sum(), given)
    for one, other in zip(ours, theirs, strict=True):
        assert_close_to_largest(one, other.double(), FP32_OF_LARGEST)


def test_small_products_and_other_numbers_are_left_to_torch() -> None:
    x, weight = torch.randn(2**10, 2**5, requires_grad=True), torch.randn(2**5, 2**5)
    with Products():
        assert _is_by_one_dnn(functional.linear(x, weight))
        assert not _is_by_one_dnn(functional.linear(x[1:], weight))  # one row too few
        assert not _is_by_one_dnn(functional.linear(x.double(), weight.double()))
        with torch.autocast("cpu", torch.bfloat16):
            assert functional.linear(x, weight).dtype == torch.bfloat16
    assert not _is_by_one_dnn(functional.linear(x, weight))


@pytest.mark.parametrize("task", ["clm", "seq2seq"])  # the last has a head with a bias
def test_a_run_goes_on_to_the_same_bits(task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_products, "_WORTH_IT", 0)
    _with_processor(monkeypatch, "AVX512", ZEN_5)
    goes_on(task, tmp_path)


def _with_processor(monkeypatch: pytest.MonkeyPatch, capability: str, about: str) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(_products, "_about_processor", lambda: about)


ZEN_5 = "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2"


@pytest.mark.parametrize(
    ("capability", "about", "takes_them"),
    [
        ("AVX512", ZEN_5, True),
        ("AVX512", "AMD64 Family 26 Model 68 Stepping 0, AuthenticAMD", True),  # Windows
        ("AVX512", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17", False),  # Zen 4
        ("AVX512", "vendor_id\t: GenuineIntel\ncpu family\t: 26", False),
        ("AVX512", "", False),
        ("AVX2", ZEN_5, False),
    ],
)
def test_only_amds_whole_units_need_them(
    capability: str, about: str, takes_them: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_processor(monkeypatch, capability, about)
    assert isinstance(fastest_products(), Products) == takes_them


def test_the_system_names_the_maker_and_the_family() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("only these processors say who made them")
    assert any(maker in _products._about_processor() for maker in ("AuthenticAMD", "GenuineIntel"))
    assert _products._FAMILY.search(_products._about_processor())
