"""The record of an attention call against transformers' own functions, called with the same arguments."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from regard.core import reference_attention
from regard.core.errors import InputError
from regard.foreign._implementations import Call
from regard.foreign._survey import IGNORED_FIELDS, Masks, read_inputs
from tolerances import FP32_OF_LARGEST, assert_close_to_largest

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, DIM, V_DIM = 2, 6, 3, 7, 11, 5, 4
LOWEST = torch.finfo(torch.float32).min


class Attending(nn.Module):
    """What a module that attends has, as far as the functions read it."""

    def __init__(self, *, is_causal: bool = False) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.num_key_value_groups = HEADS // KV_HEADS
        self.sinks = torch.randn(HEADS)

    def forward(self) -> None:
        eager_attention_forward  # noqa: B018 - the name is how eager attention is found


def tensors(keys: int = KEYS) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(BATCH, HEADS, QUERIES, DIM),
        torch.randn(BATCH, KV_HEADS, keys, DIM),
        torch.randn(BATCH, KV_HEADS, keys, V_DIM),
    )


def allowed(*, empty_row: bool) -> Tensor:
    mask = torch.rand(BATCH, 1, QUERIES, KEYS) > 0.4
    mask[:, :, :, 0] = True
    if empty_row:
        mask[1, :, 3] = False
    return mask


BIAS = torch.randn(1, HEADS, QUERIES, KEYS)
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scaling": 0.7},
    "mask": {"attention_mask": allowed(empty_row=False)},
    "empty row": {"attention_mask": allowed(empty_row=True)},
    "added": {"attention_mask": torch.where(allowed(empty_row=False), 0.0, LOWEST)},
    "added, empty row": {"attention_mask": torch.where(allowed(empty_row=True), 0.0, LOWEST)},
    "other numbers": {"attention_mask": torch.randn(BATCH, 1, QUERIES, KEYS)},
    "bias": {"position_bias": BIAS},
    "bias and mask": {"position_bias": BIAS, "attention_mask": allowed(empty_row=False)},
    "bias and empty row": {"position_bias": BIAS, "attention_mask": allowed(empty_row=True)},
    "bias and numbers": {"position_bias": BIAS, "attention_mask": torch.randn(BATCH, 1, QUERIES, KEYS)},
    "causal": {"is_causal": True},
    "causal with bias": {"is_causal": True, "position_bias": BIAS},
    "causal beside a mask": {"is_causal": True, "attention_mask": allowed(empty_row=False)},
}


@pytest.mark.parametrize("name", CASES)
def test_the_record_gives_the_context_of_sdpa(name: str) -> None:
    module, arguments = Attending(), {"scaling": None, **CASES[name]}
    q, k, v = tensors()
    inputs = read_inputs(Call("sdpa", module, q, k, v, dict(arguments)), Masks())
    expected, _ = sdpa_attention_forward(module, q, k, v, arguments.pop("attention_mask", None), **arguments)
    assert_close_to_largest(reference_attention(inputs).context.transpose(1, 2), expected, FP32_OF_LARGEST)


@pytest.mark.parametrize("asked", [None, False, True])
@pytest.mark.parametrize("of_module", [False, True])
def test_what_the_module_says_of_causality_counts_where_the_call_says_nothing(
    of_module: bool, asked: bool | None
) -> None:
    module = Attending(is_causal=of_module)
    q, k, v = tensors(QUERIES)
    inputs = read_inputs(Call("sdpa", module, q, k, v, {"is_causal": asked}), Masks())
    expected, _ = sdpa_attention_forward(module, q, k, v, None, is_causal=asked)
    assert_close_to_largest(reference_attention(inputs).context.transpose(1, 2), expected, FP32_OF_LARGEST)
    one, _ = sdpa_attention_forward(module, q[:, :, -1:], k, v, None, is_causal=asked)
    inputs = read_inputs(Call("sdpa", module, q[:, :, -1:], k, v, {"is_causal": asked}), Masks())
    assert_close_to_largest(reference_attention(inputs).context.transpose(1, 2), one, FP32_OF_LARGEST)


@pytest.mark.parametrize("empty_row", [False, True])
def test_sinks_in_eager_attention(empty_row: bool) -> None:
    module = Attending()
    q, k, v = tensors()
    mask = torch.where(allowed(empty_row=empty_row), 0.0, LOWEST)
    arguments = {"attention_mask": mask, "scaling": 0.6, "s_aux": module.sinks, "is_causal": True}
    inputs = read_inputs(Call("eager", module, q, k, v, arguments), Masks())
    expected, weights = eager_attention_forward(module, q, k, v, mask, scaling=0.6)
    found = reference_attention(inputs)
    assert found.weights.shape == (BATCH, HEADS, QUERIES, KEYS + 1)
    assert_close_to_largest(found.weights[..., :-1], weights, FP32_OF_LARGEST)
    assert_close_to_largest(found.context.transpose(1, 2), expected, FP32_OF_LARGEST)


def test_arguments_that_are_empty_or_change_no_number_are_taken() -> None:
    module = Attending()
    known = dict.fromkeys(IGNORED_FIELDS, 3) | {"tilt": None, "lean": 0.0, "turn": False, "bend": ()}
    assert read_inputs(Call("sdpa", module, *tensors(), known), Masks()).bias is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tilt": 0.5}, r"hands tilt=0\.5 to the attention of Attending, which regard does not know"),
        ({"tilt": torch.zeros(3)}, r"hands tilt=a tensor \(3,\)"),
        ({"dropout": 0.1}, r"drops attention weights \(dropout=0\.1\).*hf_model\.eval\(\)"),
        ({"attention_mask": torch.ones(2, 11)}, r"something other than a tensor .*: \(2, 11\)"),
        ({"attention_mask": "block"}, "something other than a tensor .*: str"),
        ({"attention_mask": torch.ones(2, 1, 7, 11).long()}, r"by torch\.int64, not bool or floating"),
    ],
)
def test_what_cannot_be_read_is_refused(arguments: dict[str, Any], message: str) -> None:
    module = Attending()
    with pytest.raises(InputError, match=message):
        read_inputs(Call("sdpa", module, *tensors(), arguments), Masks())


def test_a_mask_is_read_once_until_it_is_written_to() -> None:
    masks, values = Masks(), allowed(empty_row=False)
    first = masks.read(values, zero_rows=True)
    assert masks.read(values, zero_rows=True) is first
    assert masks.read(values.view_as(values), zero_rows=True) is first
    assert masks.read(values[:, :, 1:], zero_rows=True) is not first
    values[0, 0, 0, 1] = False
    assert masks.read(values, zero_rows=True) is not first
