"""A mask and a bias that the layers of one pass share: the same numbers, worked out once."""

import gc
import weakref

import pytest
import torch

from regard.core import (
    AttentionInputs,
    Causal,
    Padding,
    Predicate,
    Window,
    _shared,
    forget,
    fused_attention,
    reference_attention,
    shared,
)
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.core.cases import BIASES, MASKS, Case, Distance, Form, Made


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_sharing_changes_no_number(mask: str, bias: str, softcap: float | None, form: Form) -> None:
    made = Made(Case(mask=mask, bias=bias, softcap=softcap, kv_heads=2, queries=7, keys=7))
    plain, _ = made.record(torch.float64)
    common, common_bias = shared(plain.mask), shared(plain.bias)
    for layer in range(3):
        q, k, v = (x.detach() * (layer + 1) for x in (plain.q, plain.k, plain.v))
        inputs = AttentionInputs(q=q, k=k, v=v, mask=common, bias=common_bias, softcap=softcap)
        alone = AttentionInputs(q=q, k=k, v=v, mask=plain.mask, bias=plain.bias, softcap=softcap)
        with torch.no_grad():
            assert_close_to_largest(form(inputs), reference_attention(alone).context, FP64)
            assert_close_to_largest(form(inputs.head(3)), reference_attention(alone.head(3)).context, FP64)


class _Counted(Distance):
    def __init__(self, slopes: torch.Tensor) -> None:
        super().__init__(slopes)
        self.asked = 0

    def block(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        return super().block(queries, keys)


def _inputs(**options: object) -> AttentionInputs:
    return AttentionInputs(**{name: torch.randn(2, 3, 7, 5) for name in "qkv"}, **options)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_a_mask_is_asked_once_for_all_layers(with_bias: bool, softcap: float | None) -> None:
    asked = []
    mask = shared(Predicate(lambda i, j: asked.append(1) or (i + j) % 3 != 0) & Causal(offset=1))
    bias = _Counted(torch.randn(3))
    common = shared(bias) if with_bias else None
    with torch.no_grad():
        for _ in range(5):
            fused_attention(_inputs(mask=mask, bias=common, softcap=softcap))
    assert (len(asked), bias.asked) == (1, int(with_bias))


def test_a_bias_is_asked_once_for_all_layers() -> None:
    bias = _Counted(torch.randn(3))
    common = shared(bias)
    with torch.no_grad():
        for _ in range(5):
            fused_attention(_inputs(bias=common))
    assert bias.asked == 1


def test_what_is_kept_is_for_that_bias_that_size_and_that_type() -> None:
    mask, one, two = shared(Causal()), shared(_Counted(torch.ones(3))), shared(_Counted(-torch.ones(3)))
    alone = _Counted(torch.zeros(3))
    with torch.no_grad():
        for bias in (None, one, two, alone, one, None):
            for length in (41, 4):  # torch takes a mask of another type, and reads it wrongly
                for dtype in (torch.float32, torch.float64):
                    tensors = {name: torch.randn(2, 3, length, 5, dtype=dtype) for name in "qkv"}
                    inputs = AttentionInputs(**tensors, mask=mask, bias=bias)
                    assert_close_to_largest(
                        fused_attention(inputs), reference_attention(inputs).context, FP32_OF_LARGEST
                    )


def test_a_bias_that_learns_gets_its_gradient_in_every_layer() -> None:
    bias = _Counted(torch.randn(3).requires_grad_())
    common = shared(bias)
    gradients = []
    for _ in range(2):
        torch.manual_seed(1)
        inputs = _inputs(bias=common, mask=shared(Causal()))
        gradients.append(torch.autograd.grad(fused_attention(inputs).sum(), bias.slopes)[0])
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().sum() > 0


def test_what_would_be_large_is_made_again_for_each_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared, "MOST_ENTRIES", 7 * 7)
    asked = []
    fits = shared(Predicate(lambda i, j: asked.append(1) or (i != j)))
    with torch.no_grad():
        for _ in range(3):
            fused_attention(_inputs(mask=fits))
        assert len(asked) == 1
        of_every_head = shared(_Counted(torch.ones(3)))  # three times as much
        for _ in range(3):
            fused_attention(_inputs(mask=fits, bias=of_every_head))
    assert len(asked) == 4


def test_what_is_kept_goes_with_the_object() -> None:
    mask = shared(Causal() & Padding(torch.tensor([[True] * 5 + [False] * 2])))
    with torch.no_grad():
        fused_attention(_inputs(mask=mask))
    gone = weakref.ref(mask)
    del mask
    gc.collect()
    assert gone() is None


def test_sharing_what_is_shared_or_nothing_changes_nothing() -> None:
    mask, bias = shared(Window(left=2)), shared(_Counted(torch.ones(3)))
    assert shared(mask) is mask
    assert shared(bias) is bias
    assert shared(None) is None


def test_a_shared_mask_is_simplified_once() -> None:
    mask = shared(Causal() & Window(left=9))
    simple = mask.simplified(7, 7)
    assert simple is mask.simplified(7, 7)
    assert simple is not None
    assert simple.parts() == (Causal(),)
    assert mask.simplified(11, 11) is mask
    assert shared(Window(left=9)).simplified(7, 7) is None


def test_what_is_forgotten_is_made_again_and_the_same() -> None:
    asked = []
    inner = Window(left=9) & Predicate(lambda i, j: asked.append(1) or (i != j))
    mask, bias = shared(inner), shared(_Counted(torch.ones(3)))
    inputs = _inputs(mask=mask, bias=bias)
    with torch.no_grad():
        first = fused_attention(inputs)
        simple = mask.simplified(7, 7)
        assert mask.memory._kept or simple.memory._kept
        forget(mask, bias, None)
        assert not mask.memory._kept
        assert not simple.memory._kept
        assert not bias.memory._kept
        assert torch.equal(fused_attention(inputs), first)
    assert len(asked) == 2
