"""The fused form never reaches the kernel that writes out the whole matrix: torch is forbidden to use it."""

import itertools
import warnings

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from regard.core import _fused, fused_attention
from unit.core.cases import BIASES, MASKS, Case, Made
from unit.core.grid import named

SHAPES = {
    "as is": {"d_k": 5, "d_v": 5},
    "wide values": {"d_k": 3, "d_v": 5},
    "narrow values": {"d_k": 5, "d_v": 3},
    "one number": {"d_k": 1, "d_v": 1},
}


@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_goes_through_torchs_fused_kernel(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: object, **kwargs: object) -> torch.Tensor:
        calls.append(1)
        return scaled_dot_product_attention(*args, **kwargs)

    monkeypatch.setattr(_fused, "scaled_dot_product_attention", counted)
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    for layout, shape in itertools.product(("plain", "projected", "transposed"), SHAPES.values()):
        case = Case(mask=mask, kv_heads=2, queries=7, keys=7, layout=layout, **shape)
        made = Made(case)
        for dtype in dtypes:
            calls.clear()
            inputs, leaves = made.record(dtype)
            with named(case), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                torch.autograd.grad(fused_attention(inputs).sum(), list(leaves.values()))
                with torch.no_grad():
                    fused_attention(inputs)
                assert len(calls) >= 2


@pytest.mark.parametrize("mask", ["causal empty", "window offset", "causal & padded item"])
def test_blocks_of_rows_that_see_nothing_go_through_it_too(
    mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fused, "_BLOCK_ENTRIES", 1)
    inputs, leaves = Made(Case(mask=mask, queries=7, keys=7)).record(torch.float32)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        torch.autograd.grad(fused_attention(inputs).sum(), list(leaves.values()))


@pytest.mark.parametrize("mask", ["none", "padding", "causal"])
def test_what_no_kernel_takes_is_not_handed_to_one(mask: str) -> None:
    for bias, (softcap, dropped) in itertools.product(BIASES, [(None, False), (1.5, False), (None, True)]):
        case = Case(mask=mask, bias=bias, softcap=softcap, dropped=dropped, kv_heads=2, queries=7, keys=7)
        inputs, leaves = Made(case).record(torch.float32)
        with named(case), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            torch.autograd.grad(fused_attention(inputs).sum(), list(leaves.values()))


@pytest.mark.parametrize("fallback", ["wide values", "transposed", "dropout", "bias"])
def test_torch_alone_would_fall_back(fallback: str) -> None:
    q, k, v = (torch.randn(1, 2, 7, 4) for _ in range(3))
    options: dict[str, object] = {}
    if fallback == "wide values":
        v = torch.randn(1, 2, 7, 5)
    if fallback == "transposed":
        k = torch.randn(1, 2, 4, 7).mT
    if fallback == "dropout":
        options["dropout_p"] = 0.1
    if fallback == "bias":
        options["attn_mask"] = torch.randn(7, 7, requires_grad=True)
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="No available kernel"):
            scaled_dot_product_attention(q, k, v, **options)
