"""transformers' masks as objects: each against the tensor that transformers itself makes."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import masking_utils

from regard.core import Causal, DenseBias, Mask, Padding, Predicate, TensorMask, Window
from regard.foreign._implementations import read_rule
from regard.foreign._survey import read_tensor

QUERIES, KEYS = 7, 11
PADDED = torch.tensor([[True] * KEYS, [False] * 3 + [True] * 8])
LOWEST = torch.finfo(torch.float32).min


def made(**arguments: Any) -> tuple[Tensor, Mask | None]:
    arguments = {"batch_size": 2, "q_length": QUERIES, "kv_length": KEYS, **arguments}
    values = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False)
    assert values is not None
    return values, read_rule(masking_utils, values, arguments)


RULES = {
    "causal": (masking_utils.causal_mask_function, (Causal,)),
    "window": (masking_utils.sliding_window_causal_mask_function(3), (Window, Causal)),
    "both sides": (masking_utils.sliding_window_bidirectional_mask_function(2), (Window,)),
    "chunks": (
        masking_utils.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.int64)),
        (Predicate, Causal),
    ),
    "another": (lambda batch, head, q, k: (q + k + batch) % 3 > 0, (Predicate,)),
}


@pytest.mark.parametrize("padding", [None, PADDED], ids=["whole", "padded"])
@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_read_as_the_object_that_means_the_same(
    name: str, offset: int, padding: Tensor | None
) -> None:
    rule, kinds = RULES[name]
    values, mask = made(mask_function=rule, q_offset=offset, attention_mask=padding)
    assert mask is not None
    wanted = kinds if padding is None else (*kinds, Padding)
    assert tuple(type(part) for part in mask.parts()) == wanted
    assert torch.equal(mask.dense(QUERIES, KEYS).expand(2, 1, -1, -1), values)


def test_keys_before_the_offset_are_left_out() -> None:
    longer = torch.cat([torch.tensor([[False, True], [True, True]]), PADDED], dim=1)
    values, mask = made(
        mask_function=masking_utils.sliding_window_causal_mask_function(5),
        q_offset=6,
        kv_offset=2,
        attention_mask=longer,
    )
    assert mask is not None
    assert torch.equal(mask.dense(QUERIES, KEYS).expand(2, 1, -1, -1), values)


def test_what_allows_everything_or_needs_vmap_is_no_object() -> None:
    assert made(mask_function=masking_utils.bidirectional_mask_function)[1] is None
    values, _ = made()
    assert read_rule(masking_utils, values, {"use_vmap": True}) is None


def test_a_rule_that_means_something_else_is_not_believed() -> None:
    values, _ = made(mask_function=masking_utils.causal_mask_function)
    assert read_rule(masking_utils, ~values, {"mask_function": masking_utils.causal_mask_function}) is None


def test_a_bool_tensor_is_the_mask_itself() -> None:
    values = torch.rand(2, 1, QUERIES, KEYS) > 0.3
    mask, bias = read_tensor(values, None, zero_rows=True)
    assert isinstance(mask, TensorMask)
    assert bias is None
    assert torch.equal(mask.dense(QUERIES, KEYS), values)
    rows, keys = torch.tensor([5, 0]), torch.tensor([2])
    assert torch.equal(mask.block(rows, keys), values[:, :, rows][..., keys])
    narrow = TensorMask(values[:, :, :1])
    assert torch.equal(narrow.block(rows, keys), values[:, :, :1, keys])


def test_a_float_tensor_of_zeros_and_lowest_is_a_mask() -> None:
    allowed = torch.rand(2, 1, QUERIES, KEYS) > 0.3
    mask, bias = read_tensor(torch.where(allowed, 0.0, LOWEST), None, zero_rows=False)
    assert bias is None
    assert mask is not None
    assert torch.equal(mask.dense(QUERIES, KEYS), allowed)


def test_a_float_tensor_with_other_numbers_is_a_bias() -> None:
    values = torch.randn(2, 1, QUERIES, KEYS)
    mask, bias = read_tensor(values, None, zero_rows=False)
    assert mask is None
    assert isinstance(bias, DenseBias)
    assert bias.values is values


@pytest.mark.parametrize("as_bool", [True, False])
def test_a_row_that_allows_nothing_is_uniform_where_masks_are_added(as_bool: bool) -> None:
    allowed = torch.ones(1, 1, QUERIES, KEYS, dtype=torch.bool)
    allowed[:, :, 2] = False
    values = allowed if as_bool else torch.where(allowed, 0.0, LOWEST)
    mask, bias = read_tensor(values, Causal(), zero_rows=False)
    assert mask is None
    assert bias is not None
    scores = torch.randn(1, 1, QUERIES, KEYS) + bias.block(torch.arange(QUERIES), torch.arange(KEYS))
    torch.testing.assert_close(scores.softmax(-1)[0, 0, 2], torch.full((KEYS,), 1 / KEYS))


def test_an_object_that_is_known_is_preferred() -> None:
    values, known = made(mask_function=masking_utils.causal_mask_function)
    assert read_tensor(values, known, zero_rows=True) == (known, None)
