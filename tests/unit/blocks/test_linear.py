"""The linear map in half precision, on processors with and without arithmetic for it."""

import pytest
import torch
from torch.nn import functional as F

from regard.blocks import Linear, _linear
from regard.blocks._linear import is_native

HALVES = (torch.bfloat16, torch.float16)


def layer(dtype: torch.dtype, *, bias: bool = True) -> Linear:
    torch.manual_seed(3)
    return Linear(11, 29, bias=bias).to(dtype).requires_grad_(False)


def rounded_once(of: Linear, x: torch.Tensor) -> torch.Tensor:
    """The product in double precision, rounded to the layer's type at the end."""
    bias = 0.0 if of.bias is None else of.bias.double()
    return (x.double() @ of.weight.double().T + bias).to(x.dtype)


@pytest.fixture
def without_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that has none for half precision."""
    monkeypatch.setattr(_linear, "is_native", lambda dtype: False)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("entries", [2**21, 5 * 11])
@pytest.mark.usefixtures("without_arithmetic")
def test_rounds_once_and_in_pieces(
    dtype: torch.dtype, bias: bool, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the weights are converted whole or five rows at a time: the exact product, rounded once."""
    monkeypatch.setattr(_linear, "_ENTRIES", entries)
    linear, x = layer(dtype, bias=bias), torch.randn(2, 7, 11).to(dtype)
    result = linear(x)
    assert result.dtype == dtype
    assert result.shape == (2, 7, 29)
    # Float32's own rounding may tip a tie, by one unit in the last place of the half type.
    exact = rounded_once(linear, x)
    assert (result == exact).float().mean() > 0.99
    assert torch.allclose(result.double(), exact.double(), rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.usefixtures("without_arithmetic")
def test_a_row_or_two_and_gradients_take_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converting pays for neither."""
    linear, x = layer(torch.bfloat16), torch.randn(3, 11).to(torch.bfloat16)
    wide: list[int] = []
    monkeypatch.setattr(Linear, "_in_float32", lambda self, x: wide.append(len(x)) or x)
    linear(x[:2])
    linear(x.requires_grad_())
    assert wide == []
    with torch.no_grad():
        linear(x)
    assert wide == [3]


def test_float32_is_torchs_own_bit_for_bit() -> None:
    """Nothing changes for other types."""
    linear, x = layer(torch.float32), torch.randn(5, 11)
    assert torch.equal(linear(x), F.linear(x, linear.weight, linear.bias))


def test_a_layer_of_another_type_than_its_input_is_refused_as_torch_does() -> None:
    """No silent conversion."""
    with pytest.raises(RuntimeError, match="dtype"):
        layer(torch.float32)(torch.randn(5, 11).to(torch.bfloat16))


@pytest.mark.parametrize(
    ("machine", "has", "native"),
    [
        ("x86_64", {}, False),
        ("AMD64", {"avx2": True}, False),
        ("x86_64", {"avx512_bf16": True}, True),
        ("x86_64", {"amx_bf16": True}, True),
        ("aarch64", {}, True),
    ],
)
def test_reads_what_the_processor_has(
    machine: str, has: dict[str, bool], native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of processors that are not x86 nothing is known: torch's own way."""
    monkeypatch.setattr(_linear.platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert is_native.__wrapped__(torch.bfloat16) is native
    assert is_native.__wrapped__(torch.float32) is True
