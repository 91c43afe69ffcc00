"""transformers' masks as `regard.core` masks: an object where the rule is known, else the model's tensor."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.core import Bias, Causal, DenseBias, Mask, Padding, Predicate, TensorMask, Window


def read_tensor(values: Tensor, known: Mask | None, *, zero_rows: bool) -> tuple[Mask | None, Bias | None]:
    """The mask, or else the bias, that a tensor broadcastable to (batch, heads, queries, keys) amounts to.

    A model that adds its mask attends to everything alike where a row allows nothing: the lowest number
    swallows every score. No mask says that; the tensor as a bias does. With `zero_rows` such a row gives
    zeros, as only a bool mask can. `known` is the object that means the same, if there is one.
    """
    if values.dtype == torch.bool:
        if not zero_rows and bool((~values.any(dim=-1)).any()):
            lowest = torch.zeros(values.shape, device=values.device)
            return None, DenseBias(lowest.masked_fill(~values, torch.finfo(torch.float32).min))
        return known or TensorMask(values), None
    forbids = TensorMask.forbids(values)
    if bool(forbids.all(dim=-1).any()) or bool(((values != 0) & ~forbids).any()):
        return None, DenseBias(values)
    return known or TensorMask(values), None


def read_rule(masking: Any, values: Tensor, arguments: dict[str, Any]) -> Mask | None:
    """The object that means the same as a mask (batch, 1, queries, keys) made with these arguments of
    `transformers.masking_utils`; None where that cannot be told.
    """
    q_offset, kv_offset = arguments.get("q_offset", 0), arguments.get("kv_offset", 0)
    if arguments.get("use_vmap") or not (isinstance(q_offset, int) and isinstance(kv_offset, int)):
        return None  # a rule that only vmap can evaluate
    rule = arguments.get("mask_function", masking.causal_mask_function)
    parts: list[Mask] = []
    for part in _conjuncts(masking, rule):
        if part is not masking.bidirectional_mask_function:
            parts.append(
                _plain(masking, part, q_offset - kv_offset) or _asked(part, values, q_offset, kv_offset)
            )
    padding = arguments.get("attention_mask")
    if padding is not None:
        # transformers pads what is missing with False, and leaves out what is before kv_offset.
        real = padding[:, kv_offset : kv_offset + values.shape[3]].bool()
        real = torch.nn.functional.pad(real, (0, values.shape[3] - real.shape[1]))
        if not bool(real.all()):
            parts.append(Padding(real))
    if not parts:
        return None
    mask = parts[0]
    for other in parts[1:]:
        mask = mask & other
    return mask if _agrees(mask, values) else None


def _agrees(mask: Mask, values: Tensor) -> bool:
    """Whether a mask is the tensor in some rows: a newer transformers may mean something else by a rule."""
    rows = torch.tensor([0, values.shape[2] // 2, values.shape[2] - 1], device=values.device)
    keys = torch.arange(values.shape[3], device=values.device)
    theirs = TensorMask(values).block(rows, keys)
    # Of one row a tensor's block is one row, however many are asked for.
    return bool((mask.block(rows, keys) == theirs).all())


_Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _conjuncts(masking: Any, rule: _Rule) -> list[_Rule]:
    if _is_made_by(masking.and_masks, rule):
        return [inner for part in _held(rule)["mask_functions"] for inner in _conjuncts(masking, part)]
    return [rule]


def _plain(masking: Any, rule: _Rule, offset: int) -> Mask | None:
    if rule is masking.causal_mask_function:
        return Causal(offset)
    one_way = _is_made_by(masking.sliding_window_overlay, rule)
    if not one_way and not _is_made_by(masking.sliding_window_bidirectional_overlay, rule):
        return None
    width = _held(rule)["sliding_window"]
    if not isinstance(width, int) or width < one_way:
        return None
    return Window(left=width - one_way, right=None if one_way else width, offset=offset)


def _asked(rule: _Rule, values: Tensor, q_offset: int, kv_offset: int) -> Mask:
    """The rule itself, asked as transformers asks it."""
    batch = torch.arange(values.shape[0], device=values.device)[:, None, None, None]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.int64, device=values.device)

    def allowed(queries: Tensor, keys: Tensor) -> Tensor:
        return rule(batch, head, queries[None, None] + q_offset, keys[None, None] + kv_offset)

    return Predicate(allowed)


def _is_made_by(maker: Any, rule: Any) -> bool:
    """Whether a rule is the closure that this function returns, told by its code."""
    return getattr(rule, "__code__", None) in maker.__code__.co_consts


def _held(rule: Any) -> dict[str, Any]:
    return {
        name: cell.cell_contents
        for name, cell in zip(rule.__code__.co_freevars, rule.__closure__, strict=True)
    }
