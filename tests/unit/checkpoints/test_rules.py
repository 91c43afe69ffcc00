"""The rules of a key map, and what a stored tensor is taken apart into."""

from __future__ import annotations

import pytest
import torch

from regard.checkpoints import KeyMap, Rename, _rules


def test_a_split_goes_both_ways() -> None:
    keymap = KeyMap(rules=(Rename("Wi.{layer}.{part}", ("up.{layer}.{part}", "gate.{layer}.{part}")),))
    assert keymap.to_ours("Wi.11.weight") == ("up.11.weight", "gate.11.weight")
    assert keymap.to_hf("gate.11.weight") == keymap.to_hf("up.11.weight") == "Wi.11.weight"
    assert keymap.to_ours("Wi.x.weight") == ()


@pytest.mark.parametrize(
    ("shapes", "transposed", "expected"),
    [
        ([(3, 5)], False, (3, 5)),
        ([(3, 5)], True, (5, 3)),
        ([(3,)], True, (3,)),
        ([()], True, ()),
        ([(3, 5), (3, 5), (3, 5)], False, (9, 5)),
        ([(3, 5), (2, 5)], True, (5, 5)),
        ([(3,), (3,)], True, (6,)),
        ([(3, 5), (3, 7)], False, None),
        ([(3, 5), (3,)], False, None),
        ([(), ()], False, None),
        ([(3, 5, 2), (1, 5, 2)], True, (4, 5, 2)),
    ],
)
def test_the_shape_on_disk(
    shapes: list[tuple[int, ...]], transposed: bool, expected: tuple[int, ...] | None
) -> None:
    assert _rules.shape_on_disk(shapes, transposed=transposed) == expected


@pytest.mark.parametrize("transposed", [True, False])
def test_taken_apart(transposed: bool) -> None:
    stored = torch.arange(35).reshape(7, 5) if transposed else torch.arange(35).reshape(5, 7)
    first, second = _rules.taken_apart(stored, [2, 3], transposed=transposed)
    ours = stored.t() if transposed else stored
    assert torch.equal(first, ours[:2])
    assert torch.equal(second, ours[2:])
    assert second.untyped_storage().data_ptr() == stored.untyped_storage().data_ptr()
