"""How much of its matrices fused attention holds, beside the blocks that it then asks for."""

import math
from typing import Any

import pytest
import torch

from regard.core import (
    AttentionInputs,
    Causal,
    DenseBias,
    Matrices,
    Window,
    _fused,
    fused_attention,
    matrices_of,
)
from regard.core._capped import added_to_scores


def record(length: int, **fields: Any) -> AttentionInputs:
    q, k, v = torch.randn(3, 1, 3, length, 5)
    return AttentionInputs(q=q, k=k, v=v, **fields)


CASES: dict[str, Any] = {
    "nothing": {},
    "causal": {"mask": Causal()},
    "window": {"mask": Window(left=31, right=7)},
    "causal window": {"mask": Causal() & Window(left=130)},
    "capped": {"softcap": 5.0},
    "capped causal": {"softcap": 5.0, "mask": Causal()},
    "bias": {"bias": True},
}


@pytest.mark.parametrize("length", [47, 401, 1009])
@pytest.mark.parametrize("case", CASES)
def test_the_blocks_are_those_that_run(case: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = dict(CASES[case])
    if fields.get("bias"):
        fields["bias"] = DenseBias(torch.randn(1, 3, length, length))
    inputs = record(length, **fields)
    seen: list[int] = []

    def spy(module: Any, name: str, rows: int) -> None:
        real = getattr(module, name)

        def spied(*args: Any) -> Any:
            seen.append(len(args[rows]) * len(args[rows + 1]))
            return real(*args)

        monkeypatch.setattr(module, name, spied)

    spy(_fused, "attend_block", 4)
    monkeypatch.setattr(
        "regard.core._capped.added_to_scores",
        lambda inputs, rows, keys: (seen.append(len(rows) * len(keys)), added_to_scores(inputs, rows, keys))[
            1
        ],
    )
    told = matrices_of(inputs)
    fused_attention(inputs)
    if told is None:
        assert not seen
    else:
        assert (math.prod(told.largest), told.whole) == (max(seen), length**2)


def test_by_hand() -> None:
    """Rows as many as the first of them sees keys: 65 x 129, 30 times 129 x 257, 129 x 225 and 32 x 96.

    No number is read.
    """
    one = torch.full((1, 1, 1, 1), torch.nan).expand(1, 12, 4096, 64)
    inputs = AttentionInputs(q=one, k=one, v=one, mask=Window(left=64, right=64))
    assert matrices_of(inputs) == Matrices(largest=(129, 257), whole=2**24)
