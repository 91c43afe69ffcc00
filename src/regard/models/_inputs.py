"""What a network is called with, checked before anything is computed."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from regard.core import Conjunction, Mask, Padding, Segments
from regard.core.errors import InputError

_WHOLE = (torch.int64, torch.int32)

# From the name of a size to the least that it may be; a config has some of them.
_LEAST = {
    "vocab_size": 1,
    "decoder_vocab_size": 1,
    "d_model": 1,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 1,
    "num_decoder_heads": 1,
    "num_kv_heads": 1,
    "head_dim": 1,
    "d_embedding": 1,
    "d_ff": 1,
    "d_decoder_ff": 1,
    "max_seq_len": 1,
    "num_token_types": 0,
    "num_labels": 1,
    "norm_eps": 0,
    "initializer_range": 0,
}


def check_sizes(config: Any) -> None:
    """Raise InputError for a size or a probability that no transformer can have."""
    named = (each.name for each in fields(config))
    present = {name for name in (*_LEAST, *named) if hasattr(config, name)}
    for name in sorted(present & _LEAST.keys(), key=list(_LEAST).index):
        value = getattr(config, name)
        if value is not None and not _LEAST[name] <= value < 2**31:
            raise InputError(f"{name} must be at least {_LEAST[name]} and below 2^31; got {value}.")
    for name in sorted(name for name in present if name.endswith("dropout_p")):
        value = getattr(config, name)
        if value is not None and not 0.0 <= value < 1.0:
            raise InputError(f"{name} must be a probability below 1; got {value}.")


def check_ids(name: str, ids: Tensor, size: int, limit: int | None) -> None:
    """Raise InputError unless ids are whole numbers (batch, N) below `size`, N within the limit."""
    if not isinstance(ids, Tensor):
        raise InputError(f"{name} must be a tensor; got {type(ids).__name__}. Make one: torch.tensor(...).")
    if ids.ndim != 2 or not ids.shape[0] or ids.dtype not in _WHOLE:
        raise InputError(
            f"{name} must be int64 of shape (batch, positions), with at least one row; "
            f"got {ids.dtype} of shape {tuple(ids.shape)}."
        )
    if not ids.shape[1] or (limit is not None and ids.shape[1] > limit):
        wanted = "at least 1 position" if limit is None else f"from 1 to {limit} positions, the model's limit"
        raise InputError(f"{name} must hold {wanted}; got {ids.shape[1]}.")
    _check_range(name, ids, size)


def check_beside(name: str, values: Tensor, token_ids: Tensor, size: int | None, *, one_row: bool) -> None:
    """Raise InputError unless whole numbers of the shape of token_ids, or of one row, lie below `size`."""
    if not isinstance(values, Tensor):
        raise InputError(
            f"{name} must be a tensor; got {type(values).__name__}. Make one: torch.tensor(...)."
        )
    shapes = [tuple(token_ids.shape), *([(1, token_ids.shape[1])] if one_row else [])]
    if tuple(values.shape) not in shapes:
        raise InputError(
            f"{name} must have the shape of token_ids, {tuple(token_ids.shape)}; got {tuple(values.shape)}."
        )
    if values.dtype not in _WHOLE:
        raise InputError(f"{name} must be int64; got {values.dtype}.")
    _check_range(name, values, size)


def _check_range(name: str, values: Tensor, size: int | None) -> None:
    """Raise InputError where whole numbers are below 0, or not below `size`."""
    if torch.compiler.is_compiling():  # a look would break the graph; the lookup itself refuses there
        return
    low, high = torch.stack(torch.aminmax(values)).tolist()  # one wait for a device
    if low < 0 or (size is not None and high >= size):
        wanted = "at least 0" if size is None else f"from 0 to {size - 1}"
        raise InputError(f"{name} must be {wanted}; got {low if low < 0 else high}.")


def as_mask(name: str, mask: Tensor | Mask | None, token_ids: Tensor) -> Mask | None:
    """The mask as an object; a tensor, of bool or of 0 and 1, says where there is a token."""
    if mask is None or isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor) and mask.dtype in _WHOLE:
        _check_range(name, mask, 2)
        mask = mask.bool()
    if not isinstance(mask, Tensor) or mask.shape != token_ids.shape or mask.dtype != torch.bool:
        got = (
            f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        )
        raise InputError(
            f"{name} must be bool of the shape of {name.replace('mask', 'token_ids')}, "
            f"{tuple(token_ids.shape)}, True for a token, or a regard.core.Mask; got {got}. "
            "Convert 0/1 with .bool()."
        )
    return Padding(mask)


def for_cross_attention(mask: Mask | None, decoder_mask: Mask | None) -> Mask | None:
    """Who may attend to whom between a decoder and its encoder: no padding, and each segment to its own.

    Everything else that the two masks say is about pairs of positions of one text.
    """
    sources, targets = (() if each is None else each.parts() for each in (mask, decoder_mask))
    keys = [part for part in sources if isinstance(part, Segments)]
    queries = [part for part in targets if isinstance(part, Segments)]
    if len(keys) != len(queries):
        raise InputError(
            "mask and decoder_mask must both hold Segments, or neither: a decoder reads the segment of the "
            f"same number; got {len(keys)} in mask and {len(queries)} in decoder_mask."
        )
    parts: list[Mask] = [part for part in sources if isinstance(part, Padding)]
    parts += [
        Segments(query.queries, key.queries if key.keys is None else key.keys)
        for query, key in zip(queries, keys, strict=True)
    ]
    return Conjunction(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None
