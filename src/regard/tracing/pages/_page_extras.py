"""What a page shows beside the weights: values, statistics, and how the model knows positions."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Kind, StackKind, bound_of, positions_of
from regard.tracing.measures import statistics
from regard.tracing.record import AttentionTrace, ScoreTrace, Trace
from regard.views import (
    MOST_POSITIONS,
    HeadName,
    HeadStatistics,
    LayerRecord,
    PositionsRecord,
    RotaryRecord,
    value_contexts,
)

PageHead = int | tuple[int, int] | tuple[Kind, int, int]
"""(layer, head), of every kind of attention that has it, (kind, layer, head), or a layer, with all heads."""

# Keys are no quantity, and what keys receive on average is the same for all heads.
_NOT_OF_HEADS = ("largest_at", "received", "top_keys", "top_weights")


def page_heads(trace: Trace, heads: Iterable[PageHead], said: str = "values") -> list[HeadName]:
    """The heads that a page holds, or their values, each with its kind and counted from 0.

    Given are (layer, head), of every kind of attention that has it, (kind, layer, head), or a layer. `said`
    is the argument that messages name.
    """
    found: list[HeadName] = []
    for each in heads:
        if isinstance(each, int) and not isinstance(each, bool):
            found += _heads(trace, (), each, None, said)
        elif isinstance(each, tuple) and len(each) in (2, 3):
            *kinds, layer, head = each
            found += _heads(trace, kinds, layer, head, said)
        else:
            raise InputError(f"{said} must be (layer, head), (kind, layer, head) or a layer; got {each!r}.")
    return found


def _heads(trace: Trace, kinds: Sequence[Kind], layer: int, head: int | None, said: str) -> list[HeadName]:
    asked = kinds or trace.kinds
    found: list[HeadName] = []
    for kind in asked:
        try:
            number = trace.layer_index(layer, kind)
            count = trace.attention_of(number, kind).inputs.num_heads
            numbers = range(count) if head is None else [trace.head_index(head, kind, number)]
            found += [(trace.kind(kind), number, each) for each in numbers]
        except InputError as error:
            # Of several kinds, the one may have a layer that the other has not.
            if kind == asked[-1] and not found:
                raise InputError(f"{said}: {error}") from error
    return found


def values_of(each: AttentionTrace, layer: LayerRecord) -> npt.NDArray[np.float32] | None:
    """A layer's v, (kv_heads, keys, v_dim); None where it does not give the model's own contexts, or was not
    kept."""
    if isinstance(each, ScoreTrace):
        return None
    v = as_array(each.inputs.v[0])
    if layer.mask is not None and layer.mask.keys is not None:
        # What stands at padding reaches nothing, and may be anything.
        v = np.where(layer.mask.keys[:, None], v, np.float32(0))
    if not np.isfinite(v).all():
        return None
    rows = np.array(sorted({0, layer.queries // 2, layer.queries - 1}))
    wanted = each.context[:, torch.from_numpy(rows).to(each.context.device)].double().cpu().numpy()
    largest = float(each.context.abs().max())
    bound = bound_of(each.context.dtype) * (largest if 0 < largest < float("inf") else 1.0)
    for head in range(layer.heads):
        found = value_contexts(layer, v, head, rows)
        if found.shape != wanted[head].shape or not np.abs(found - wanted[head]).max() <= bound:
            return None
    return v


def head_statistics(trace: Trace, kind: Kind) -> HeadStatistics:
    """What a page says of every head: the means of all statistics that tell heads apart."""
    found = statistics(trace, kind)
    return {name: as_array(found.mean(name)) for name in found.names if name not in _NOT_OF_HEADS}


def positions_record(trace: Trace, kind: StackKind, *, every: bool = False) -> PositionsRecord:
    """How a stack knows positions: in words, and what it added to each token of the text.

    With `every`, also what it adds beyond the text, at as many places as a page holds.
    """
    table = trace.stack(kind).positions
    if every and table is not None:
        table = _all_positions(trace, kind, table)
    return PositionsRecord(
        said=None if trace.loaded is None else positions_of(trace.loaded.network),
        table=None if table is None else as_array(table),
    )


def _all_positions(trace: Trace, kind: StackKind, table: Tensor) -> Tensor:
    """What a stack adds at every place that it has, from the first on."""
    network = trace.require_model().network
    stack = None if network.written else network.stack(kind)
    if stack is None or stack.embeddings.positions is None:
        return table
    count = min(MOST_POSITIONS, network.limit(kind) or MOST_POSITIONS)
    # Of a token that is there: some models give padding no number.
    ids = torch.full((1, count), trace.stack(kind).encoding.token_ids[0], device=table.device)
    with torch.no_grad():
        rows: Tensor = stack.embeddings.positions(stack.numbering(ids))[0]
    return rows if count > len(table) and torch.equal(rows[: len(table)].to(table.dtype), table) else table


def rotary_record(trace: Trace, kind: Kind, layer: int) -> RotaryRecord | None:
    """How a layer turned q and k; None for not at all, or where the model's own code does it unseen."""
    network = None if trace.loaded is None else trace.loaded.network
    stack = None if network is None or network.written or kind == "cross" else network.stack(kind)
    rotary = None if stack is None else stack.patterns[layer].rotary
    if rotary is None:
        return None
    dim = rotary.head_dim if rotary.rotary_dim is None else rotary.rotary_dim
    length = torch.arange(len(trace.stack(kind).encoding.tokens))[None]
    return RotaryRecord(
        frequencies=as_array(rotary.scaling.frequencies(rotary.base, dim, length)),
        layout=rotary.layout,
        amplitude=rotary.scaling.amplitude,
    )


def as_array(tensor: Tensor) -> npt.NDArray[np.float32]:
    """A tensor as float32 in numpy."""
    array: npt.NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy()
    return array
