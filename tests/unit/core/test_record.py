"""Attention's record refuses what does not fit together, and says what came."""

import math

import pytest
import torch
from torch import ones

from regard.core import (
    AttentionInputs,
    Causal,
    Padding,
    Predicate,
    Segments,
    fused_attention,
    reference_attention,
)
from regard.core.errors import InputError


def _tensors(**changed: object) -> dict[str, object]:
    fitting = {"q": ones(2, 6, 5, 3), "k": ones(2, 2, 7, 3), "v": ones(2, 2, 7, 5)}
    return {**fitting, **changed}


def _real(*shape: int) -> torch.Tensor:
    return ones(shape, dtype=torch.bool)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": ones(6, 5, 3)}, r"q must be floating point .*got torch.float32 of shape \(6, 5, 3\)"),
        ({"k": ones(2, 2, 7, 3).long()}, r"k must be floating point .*got torch.int64"),
        ({"k": ones(2, 2, 7, 3).double()}, "share dtype .*k is torch.float64"),
        ({"v": ones(2, 2, 7, 5).half()}, "share dtype .*v is torch.float16"),
        ({"v": ones(2, 2, 7, 5, device="meta")}, "share dtype and device.*on meta"),
        ({"k": ones(2, 2, 7, 5)}, r"k must have q's batch and head_dim.*\(2, 2, 7, 3\).*\(2, 2, 7, 5\)"),
        ({"k": ones(1, 2, 7, 3)}, r"k must have q's batch.*got \(1, 2, 7, 3\)"),
        ({"v": ones(2, 2, 5, 5)}, r"v must have k's .*\(2, 2, 7\); got \(2, 2, 5\)"),
        ({"v": ones(2, 1, 7, 5)}, r"v must have k's .*\(2, 2, 7\); got \(2, 1, 7\)"),
        ({"k": ones(2, 4, 7, 3), "v": ones(2, 4, 7, 5)}, "must divide those of q; got 4 and 6"),
        ({"k": ones(2, 0, 7, 3), "v": ones(2, 0, 7, 5)}, "must divide those of q; got 0 and 6"),
        ({"q": ones(2, 6, 0, 3)}, r"at least one position.*got q \(2, 6, 0, 3\)"),
        ({"k": ones(2, 2, 0, 3), "v": ones(2, 2, 0, 5)}, r"at least one .*v \(2, 2, 0, 5\)"),
        ({"scale": math.inf}, "scale must be a finite number; got inf"),
        ({"softcap": 0.0}, r"softcap must be finite and greater than 0.*got 0\.0"),
        ({"softcap": math.inf}, "softcap must be .*got inf"),
        ({"mask": Padding(_real(2, 5))}, r"padding must have shape .*\(2, 7\); got \(2, 5\)"),
        ({"mask": Causal() & Padding(_real(3, 7))}, r"padding must have shape .*got \(3, 7\)"),
        ({"mask": Segments(ones(2, 5).long())}, r"segments of keys must have shape \(2, 7\); got \(2, 5\)"),
        (
            {"mask": Segments(*ones(2, 2, 7).long())},
            r"segments of queries must have shape \(2, 5\); got \(2, 7\)",
        ),
        ({"bias": ones(5, 7)}, r"bias must be floating point with four axes.*got .*\(5, 7\)"),
        ({"bias": ones(2, 6, 5, 7).long()}, "bias must be floating point.*got torch.int64"),
        ({"bias": ones(2, 2, 5, 7)}, r"bias must broadcast .*\(2, 6, 5, 7\); got shape \(2, 2, 5, 7\)"),
        ({"bias": ones(1, 1, 7, 5)}, r"bias must broadcast .*got shape \(1, 1, 7, 5\)"),
        ({"sinks": ones(2)}, r"sinks must be .*\(heads,\) = \(6,\) on cpu; got .*\(2,\)"),
        ({"sinks": ones(6, 1)}, r"sinks must be .*got torch.float32 of shape \(6, 1\)"),
        ({"sinks": ones(6).long()}, r"sinks must be floating point .*got torch.int64"),
        ({"sinks": ones(6, device="meta")}, "sinks must be .*on meta"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object], message: str) -> None:
    AttentionInputs(**_tensors())
    with pytest.raises(InputError, match=message) as caught:
        AttentionInputs(**_tensors(**changed))
    assert "\n" not in str(caught.value)


class _ConstantBias:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def block(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return torch.zeros(self.shape)

    def learned(self) -> tuple[torch.Tensor, ...]:
        return ()


class _SecretBias(_ConstantBias):
    def __init__(self) -> None:
        self.weight = ones(1, requires_grad=True)

    def block(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return self.weight.expand(1, 1, len(queries), len(keys))


def test_a_bias_with_a_gradient_that_it_does_not_name_is_refused() -> None:
    inputs = AttentionInputs(**_tensors(bias=_SecretBias()))
    with pytest.raises(InputError, match=r"must name in `learned` .*_SecretBias names none"):
        fused_attention(inputs)
    with torch.no_grad():
        assert fused_attention(inputs).shape == (2, 6, 5, 5)


@pytest.mark.parametrize("shape", [(5, 7), (6, 5, 7), (2, 2, 5, 7), (3, 1, 5, 7), (1, 1, 4, 7)])
def test_a_bias_object_that_gives_the_wrong_block_is_refused(shape: tuple[int, ...], form) -> None:
    with pytest.raises(InputError, match="the bias must give blocks that broadcast"):
        form(AttentionInputs(**_tensors(bias=_ConstantBias(*shape))))


@pytest.mark.parametrize("shape", [(2, 2, 5, 7), (3, 1, 5, 7), (1, 1, 4, 7), (4, 7)])
def test_a_predicate_that_gives_the_wrong_block_is_refused(shape: tuple[int, ...], form) -> None:
    # In blocks or whole: torch would broadcast a batch of 3 into a context that nobody asked for.
    mask = Predicate(lambda i, j: ones(shape, dtype=torch.bool))
    with pytest.raises(InputError, match="the mask must give blocks that broadcast"):
        form(AttentionInputs(**_tensors(mask=mask, q=ones(2, 6, 5, 3))))


def test_the_record_cannot_be_changed() -> None:
    inputs = AttentionInputs(**_tensors())
    with pytest.raises(AttributeError):
        inputs.scale = 2.0  # type: ignore[misc]


def test_the_scale_in_force_is_one_over_the_root_of_the_head_dimension() -> None:
    assert AttentionInputs(**_tensors()).factor == pytest.approx(3**-0.5, rel=1e-15)
    assert AttentionInputs(**_tensors(scale=0.0)).factor == 0.0
    wide = AttentionInputs(**_tensors(v=ones(2, 2, 7, 16)))
    assert wide.factor == AttentionInputs(**_tensors()).factor
    torch.testing.assert_close(fused_attention(wide), reference_attention(wide).context)
