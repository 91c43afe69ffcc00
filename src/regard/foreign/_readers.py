"""How queries and keys read their layer's input: which norm and which linear layers stand between."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from regard.foreign._points import Layout, block_of
from regard.foreign._survey import SeenCall, Survey
from regard.models import Kind, Reader, bound_of, is_linear, read_readers, relative_error

Readers = Callable[[], tuple[Reader, ...]]
"""Makes those of the queries and of the keys: in float64 they are large."""


def find_readers(layout: Layout, found: Survey) -> dict[tuple[Kind, int], Readers]:
    """Those of each self-attention where they were seen; not where more is done than to turn them."""
    sites = {site.execution: site for site in layout.sites}
    readers: dict[tuple[Kind, int], Readers] = {}
    for call in found.calls:
        site = sites[call.execution]
        if site.kind != "cross" and (pair := _readers(found, call)) is not None:
            readers[site.kind, site.layer] = pair
    return readers


def _readers(found: Survey, call: SeenCall) -> Readers | None:
    block = block_of(found, call)
    if block is None or call.projection is None:
        return None
    # What runs within the layer, up to the output projection.
    inside = [each for each in found.order if block in found.around[each]]
    before = inside[: inside.index(call.projection)]
    linear = [each for each in before if is_linear(each.module)]
    x, read = (found.inputs.get(each) for each in (block, linear[0] if linear else block))
    outputs = [value for each in linear if (value := found.outputs.get(each)) is not None]
    # Every linear layer must have been seen with input and output.
    if x is None or read is None or len(outputs) < max(1, len(linear)):
        return None
    # All of them read the same tensor.
    if any(found.inputs.get(each) is not read for each in linear):
        return None
    norm = None
    # A norm stands between where the layer's input is not what they read.
    if not torch.equal(read, x):
        norms = (
            each.module
            for each in before
            if _makes(found.inputs.get(each), x) and _makes(found.outputs.get(each), read)
        )
        if (norm := next(norms, None)) is None:
            return None
    recorded = call.inputs.q, call.inputs.k
    heads, head_dim = [each.shape[1] for each in recorded], recorded[0].shape[3]
    # Rows of all linear layers side by side: queries first, then keys.
    rows, start = torch.cat(outputs, dim=-1), 0
    for count, values in zip(heads, recorded, strict=True):
        own = rows[..., start : (start := start + count * head_dim)]
        # Other layers in between would leave too few rows.
        if own.shape[-1] < count * head_dim:
            return None
        # A turn keeps lengths; a norm or a scale of its own would not.
        lengths = own.reshape(*own.shape[:2], count, head_dim).transpose(1, 2).norm(dim=-1)
        if lengths.shape != values.shape[:3] or not relative_error(lengths, values.norm(dim=-1)) <= bound_of(
            values.dtype
        ):
            return None
    return partial(read_readers, [each.module for each in linear], norm, heads, head_dim)


def _makes(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and torch.equal(one, other)
