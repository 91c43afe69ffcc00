"""The fused form where no gradient of a bias or a sink is wanted: other paths, the same numbers."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.core import (
    AttentionInputs,
    Causal,
    DenseBias,
    Padding,
    Segments,
    Window,
    _fused,
    fused_attention,
    reference_attention,
)
from tolerances import BF16, FP32_OF_LARGEST, assert_close_to_largest


def test_a_bias_in_single_precision_is_not_rounded_to_the_half_precision_of_the_queries() -> None:
    # 8 + 2^-7 is 8 in bfloat16: rounded, the second key would weigh as much as the first.
    q, k = torch.zeros(1, 1, 1, 8).bfloat16(), torch.zeros(1, 1, 2, 8).bfloat16()
    v = torch.zeros(1, 1, 2, 8).bfloat16()
    v[..., 1, :] = 1000.0
    bias = torch.tensor([8.0, 8.0 + 2**-7])[None, None, None]
    with torch.no_grad():
        context = fused_attention(AttentionInputs(q=q, k=k, v=v, bias=bias))
    assert (context > 500).all()


class _Calls:
    """Counts the calls of torch's kernel, and remembers how they were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[tuple[int, ...], int, dict[str, object]]] = []
        monkeypatch.setattr(_fused, "scaled_dot_product_attention", self)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        self.made.append((tuple(q.shape), k.shape[2], options))
        return scaled_dot_product_attention(q, k, v, **options)


def _inputs(length: int, **options: object) -> AttentionInputs:
    return AttentionInputs(**{name: torch.randn(2, 3, length, 5) for name in "qkv"}, **options)


ALL_REAL = Padding(torch.ones(2, 13, dtype=torch.bool))


@pytest.mark.parametrize(
    ("mask", "is_causal"),
    [
        (Causal(), True),
        (Causal() & Window(left=12), True),
        (Window(left=40) & ALL_REAL & Causal(), True),
        (Window(left=None, right=0), True),
        (Causal() & Segments(torch.full((2, 13), 4)), True),
        (ALL_REAL, False),
        (Window(left=12, right=12), False),
        (Segments(torch.ones(2, 13).long()), False),
        (Causal(offset=12), False),
    ],
)
def test_a_mask_that_hides_no_more_than_the_future_makes_no_matrix(
    mask, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _Calls(monkeypatch)
    with torch.no_grad():
        fused_attention(_inputs(13, mask=mask))
    ((_, _, options),) = calls.made
    assert (options["attn_mask"], options["is_causal"]) == (None, is_causal)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"mask": Causal() & Padding(torch.arange(13)[None] < 9)},
        {"mask": Window(left=2, right=3)},
        {"bias": torch.zeros(1, 3, 13, 13)},
        {"mask": Causal(), "bias": torch.zeros(1, 3, 13, 13)},
        {"sinks": torch.zeros(3)},
    ],
)
def test_what_is_small_is_one_call(
    options: dict[str, object], grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _Calls(monkeypatch)
    inputs = _inputs(13, **options)
    inputs.q.requires_grad_(grad)
    context = fused_attention(inputs)
    assert len(calls.made) == 1
    if grad:
        context.sum().backward()
        assert len(calls.made) == 1, "nothing is worked out twice"


@pytest.mark.parametrize("mask", [Causal(), Causal() & Window(left=60), Window(left=20, right=20)])
def test_blocks_of_a_long_text_leave_out_keys_that_nobody_in_them_sees(
    mask, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = 512
    calls = _Calls(monkeypatch)
    with torch.no_grad():
        inputs = _inputs(length, mask=mask)
        assert_close_to_largest(fused_attention(inputs), reference_attention(inputs).context, FP32_OF_LARGEST)
    assert sum(shape[2] for shape, _, _ in calls.made) == length
    assert sum(shape[2] * keys for shape, keys, _ in calls.made) < 0.6 * length**2


def test_a_long_causal_text_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _Calls(monkeypatch)
    with torch.no_grad():
        fused_attention(_inputs(_fused._CAUSAL_BLOCKS_BELOW, mask=Causal()))
    ((_, _, options),) = calls.made
    assert options["is_causal"]


def test_a_bias_that_is_there_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _Calls(monkeypatch)
    values = torch.randn(1, 3, 13, 13)
    with torch.no_grad():
        fused_attention(_inputs(13, bias=DenseBias(values)))
    ((_, _, options),) = calls.made
    given = options["attn_mask"]
    assert isinstance(given, Tensor)
    assert given.data_ptr() == values.data_ptr()


def test_padding_without_anything_harmful_is_not_set_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs(13, mask=Padding(torch.arange(13)[None] < 9))
    with torch.no_grad():
        clean = fused_attention(inputs)
        set_to_zero = []
        monkeypatch.setattr(
            _fused, "silence_padding", lambda mask, k, v: set_to_zero.append(1) or _silenced(mask, k, v)
        )
        fused_attention(inputs)
        assert not set_to_zero
        for harm in (float("nan"), float("inf"), -3e38):
            inputs.k[:, :, 9:] = harm
            torch.testing.assert_close(fused_attention(inputs), clean)
        assert len(set_to_zero) == 3


_silenced = _fused.silence_padding


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("v_dim", [5, 3])
def test_one_query_of_each_head(grad: bool, dtype: torch.dtype, kv_heads: int, v_dim: int) -> None:
    q = torch.randn(2, 6, 1, 5, dtype=dtype)
    k, v = (torch.randn(2, kv_heads, 13, dim, dtype=dtype) for dim in (5, v_dim))
    nothing_real = Padding(torch.arange(13) < torch.tensor([[9], [0]]))
    for more in (
        {},
        {"mask": nothing_real},
        {"bias": torch.randn(1, 6, 1, 13)},
        {"mask": nothing_real, "bias": torch.randn(2, 1, 1, 13)},
        {"sinks": torch.randn(6)},
    ):
        inputs = AttentionInputs(q=q, k=k, v=v, **more)
        wide = inputs.changed(q=q.double(), k=k.double(), v=v.double())
        with torch.set_grad_enabled(grad):
            found = fused_attention(inputs)
        assert found.dtype == dtype
        tolerance = FP32_OF_LARGEST if dtype == torch.float32 else BF16
        assert_close_to_largest(found.double(), reference_attention(wide).context, tolerance)
