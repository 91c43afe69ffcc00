"""The dilated window: by its rule, in blocks, behind a cache, and in attention."""

import pytest
import torch

from regard.core import AttentionInputs, Causal, DilatedWindow, Window, fused_attention, reference_attention
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, assert_close_to_largest

N = 43


@pytest.mark.parametrize(("left", "right", "dilation"), [(2, 3, 5), (0, 1, 2), (3, 0, 1), (7, 7, 3)])
def test_a_query_sees_the_keys_of_the_rule(left: int, right: int, dilation: int) -> None:
    mask = DilatedWindow(left=left, right=right, dilation=dilation)
    dense = mask.dense(N, N)[0, 0]
    for i in range(N):
        wanted = {i + dilation * m for m in range(-left, right + 1)} & set(range(N))
        assert set(dense[i].nonzero()[:, 0].tolist()) == wanted
        start, stop = mask.key_range(i, i, N)
        assert wanted <= set(range(start, stop))
    assert torch.equal(mask.since(17, 4).dense(N - 17, N - 4), mask.dense(N, N)[:, :, 17:, 4:])
    assert torch.equal((mask & Causal()).dense(N, N)[0, 0], dense.tril())
    simple = mask.simplified(N, N)
    assert isinstance(simple, Window) == (dilation == 1)
    assert simple is not None
    assert torch.equal(simple.dense(N, N)[0, 0], dense)


def test_attention_is_exact_in_blocks() -> None:
    q, k, v = torch.randn(3, 1, 2, 300, 5)
    inputs = AttentionInputs(q=q, k=k, v=v, mask=DilatedWindow(left=4, right=2, dilation=3))
    exact = reference_attention(inputs)
    assert_close_to_largest(fused_attention(inputs), exact.context, FP32_OF_LARGEST)
    assert int((exact.weights[0, 0, 150] > 0).sum()) == 7
    assert isinstance(inputs.head(1).mask, DilatedWindow)


@pytest.mark.parametrize("given", [{"left": -1}, {"right": -1}, {"dilation": 0}])
def test_numbers_that_are_none_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(given))} must be at least"):
        DilatedWindow(**{"left": 1, "right": 1} | given)
