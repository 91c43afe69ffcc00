"""The rules of a key map: which templates mean something, and what a stored tensor is taken apart into."""

from __future__ import annotations

import pytest
import torch

from regard.checkpoints import KeyMap, Rename, Shared, Split, _rules
from regard.core.errors import CheckpointError, InputError


@pytest.mark.parametrize(
    ("hf", "ours", "message"),
    [
        ("a.{layer}", ("b.{layer}",), r"at least two different names, got \('b"),
        ("a.{layer}", ("b.{layer}", "b.{layer}"), "at least two different names"),
        ("a.{layer}", (), "at least two different names"),
        ("a.{layer}", ("b.{layer}", "c"), "must hold the same placeholders"),
        ("a", ("b", "c.{part}"), "must hold the same placeholders"),
        ("a.{head}", ("b.{head}", "c.{head}"), r"Split: 'a\.\{head\}' may hold \{layer\} and \{part\}, once"),
    ],
)
def test_splits_that_mean_nothing(hf: str, ours: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=rf"Split: .*{message}|{message}"):
        Split(hf, ours)


@pytest.mark.parametrize(
    ("hf", "ours", "message"),
    [
        ("a", (), "different names, at least one"),
        ("a", ("b", "b"), "different names, at least one"),
        ("a.{layer}", ("b",), "must hold no placeholder"),
        ("a", ("b", "c.{layer}"), r"'c\.\{layer\}' must hold no placeholder"),
    ],
)
def test_shared_names_that_mean_nothing(hf: str, ours: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=f"Shared: .*{message}"):
        Shared(hf, ours)


def test_a_split_goes_both_ways() -> None:
    keymap = KeyMap(rules=(Split("Wi.{layer}.{part}", ("up.{layer}.{part}", "gate.{layer}.{part}")),))
    assert keymap.to_ours("Wi.11.weight") == ("up.11.weight", "gate.11.weight")
    assert keymap.to_hf("gate.11.weight") == keymap.to_hf("up.11.weight") == "Wi.11.weight"
    assert keymap.to_ours("Wi.x.weight") == ()


def test_a_piece_that_another_rule_has() -> None:
    with pytest.raises(CheckpointError, match=r"ambiguous: the network's 'x' fits 'a' -> 'a' and 'b' -> 'b'"):
        KeyMap(rules=(Split("a", ("x", "y")), Rename("b", "x")))
    with pytest.raises(CheckpointError, match=r"ambiguous: 'a' on disk fits 'a' -> 'x, y' and 'a' -> 'z'"):
        KeyMap(rules=(Split("a", ("x", "y")), Rename("a", "z")))


def test_a_shared_name_that_another_rule_has() -> None:
    with pytest.raises(CheckpointError, match=r"ambiguous: another rule has the shared 'a'"):
        KeyMap(rules=(Shared("a", ("x",)), Rename("a", "x")))


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
