"""What a page shows beside the weights of a trace, and can draw in their place."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Kind, Loaded, Output, StackKind, bound_of, positions_of
from regard.tracing.measures import (
    Scalar,
    attention_gradients,
    check_head,
    outermost,
    projection_of,
    rollout_steps,
    statistics,
    value_zeroing_blocks,
)
from regard.tracing.record import AttentionTrace, ScoreTrace, Trace
from regard.tracing.run import rerun
from regard.views import (
    MEASURES,
    MOST_MEASURES,
    MOST_POSITIONS,
    HeadStatistics,
    LayerRecord,
    LiveMeasures,
    MeasureName,
    MeasureRecord,
    PositionsRecord,
    RotaryRecord,
    Work,
    check_measures,
    matrix_bytes,
    value_contexts,
)

# Keys are no quantity, and what keys receive on average is the same for all heads.
_NOT_OF_HEADS = ("largest_at", "received", "top_keys", "top_weights")


def values_of(each: AttentionTrace, layer: LayerRecord) -> npt.NDArray[np.float32] | None:
    """A layer's v, (kv_heads, keys, v_dim); None where it does not give the model's own contexts, or was not
    kept."""
    # Nothing but scores was kept.
    if isinstance(each, ScoreTrace):
        return None
    v = as_array(each.inputs.v[0])
    if layer.mask is not None and layer.mask.keys is not None:
        # What stands at padding reaches nothing, and may be anything.
        v = np.where(layer.mask.keys[:, None], v, np.float32(0))
    if not np.isfinite(v).all():
        return None
    # As for weights: three rows of every head.
    rows = np.array(sorted({0, layer.queries // 2, layer.queries - 1}))
    wanted = each.context[:, torch.from_numpy(rows).to(each.context.device)].double().cpu().numpy()
    largest = float(each.context.abs().max())
    # What rounding explains, by the largest entry.
    bound = bound_of(each.context.dtype) * (largest if 0 < largest < float("inf") else 1.0)
    for head in range(layer.heads):
        contexts = value_contexts(layer, v, head, rows)
        if contexts.shape != wanted[head].shape or not np.abs(contexts - wanted[head]).max() <= bound:
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
    # The page can show the whole matrix, not only the text's part.
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
    # All ids are those of a token of the text: some models give padding no number.
    ids = torch.full((1, count), trace.stack(kind).encoding.token_ids[0], device=table.device)
    with torch.no_grad():
        rows: Tensor = stack.embeddings.positions(stack.numbering(ids))[0]
    # Only if they are the same where both are known.
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


Measures = dict[Kind, tuple[MeasureRecord, ...]]


def measures_of(
    trace: Trace, asked: Sequence[str] = (), of: Scalar | None = None
) -> tuple[Measures, dict[str, str]]:
    """The measures of each kind of attention for a page, and the reason for each that is left out.

    The norms are there where they can be had, and what is asked for: "norm", "value_zeroing", "rollout",
    "gradient". The gradient is that of `of`, as in `Trace.attention_gradients`; by default of the largest
    logit after a decoder's last token.
    """
    names = check_measures(asked)
    if of is not None and "gradient" not in names:
        raise InputError('of goes with measures=["gradient"]: it says what the gradient is of.')
    measures: dict[Kind, list[MeasureRecord]] = {kind: [] for kind in trace.kinds}
    left: dict[str, str] = {}
    # What matrices may take in the page, in all.
    room = MOST_MEASURES
    live = live_measures(trace, of, 'page(measures=["gradient"], of=lambda output: ...)')
    # Norms always, since they are short; each other only if asked for.
    for name in dict.fromkeys(("norm", *names)):
        try:
            # Known before anything is worked out.
            needed = _bytes(trace, name)
            if needed > room:
                raise InputError(
                    f"the matrices of this text would take {needed / 1e6:.0f} MB of the page, and "
                    f"{room / 1e6:.0f} are left for measures; give a shorter text or fewer measures."
                )
            by_kind = {kind: _of_kind(trace, kind, name, live) for kind in _kinds(trace, name)}
        except InputError as error:
            # A measure that fails leaves the others on the page.
            left[name] = str(error)
            continue
        room -= needed
        for kind, record in by_kind.items():
            measures[kind].append(record)
    return {kind: tuple(records) for kind, records in measures.items()}, left


def _of_kind(trace: Trace, kind: Kind, name: MeasureName, live: LiveMeasures) -> MeasureRecord:
    """A measure of all layers of a kind of attention."""
    made = [_finished(live.work(kind, name, layer)) for layer in trace.layers_of(kind)]
    layers = tuple(layer for each in made for layer in each.layers)
    return MeasureRecord(name=name, layers=layers, of=made[0].of if made else "")


def _finished(work: Work) -> MeasureRecord:
    while True:
        try:
            next(work)
        except StopIteration as end:
            made: MeasureRecord = end.value
            return made


def live_measures(
    trace: Trace, of: Scalar | None = None, way: str = "widget(of=lambda output: ...)"
) -> LiveMeasures:
    """The measures that a notebook can ask for, none worked out yet, and why it cannot have the others."""
    left: dict[str, str] = {}
    # What each needs is looked for now, so that the widget offers no dead button.
    for name in MEASURES:
        try:
            if name != "rollout":
                trace.require_model()
            if name == "gradient" and of is None:
                _check_next_token(trace, way)
        except InputError as error:
            left[name] = str(error)
    there = [name for name in MEASURES if name not in left]
    names = {kind: tuple(name for name in there if kind in _kinds(trace, name)) for kind in trace.kinds}
    scalars: list[tuple[Scalar, str]] = []  # the likeliest token is looked for once

    def work(kind: Kind, name: MeasureName, layer: int) -> Work:
        yield 0.0
        said = ""
        # Each branch yields how far it is, and ends with the values of the layer.
        if name == "norm":
            values = _norms(trace, kind, layer)
        elif name == "value_zeroing":
            blocks: list[Tensor] = []
            count, done = len(trace.sides(kind)[1].encoding.tokens), 0
            for block in value_zeroing_blocks(trace, kind, layer):
                blocks.append(block)
                done += block.shape[1]
                yield done / count
            values = torch.cat(blocks, dim=1)[None]
        elif name == "rollout":
            assert kind != "cross"
            tokens = range(len(trace.stack(kind).encoding.tokens))
            for step, flow in enumerate(rollout_steps(trace, kind, layer, tokens), start=1):
                values = flow[None]
                yield step / (layer + 1)
        else:
            if not scalars:
                scalars.append(_scalar(trace, of, way))
                yield 0.0
            scalar, said = scalars[0]
            keys = len(trace.sides(kind)[1].encoding.tokens)
            values = attention_gradients(trace, layer, of=scalar, kind=kind)[..., :keys]
        return MeasureRecord(name=name, layers=(_finite(name, values),), of=said)

    return LiveMeasures(names=names, left_out=left, work=work)


def _kinds(trace: Trace, name: MeasureName) -> Sequence[Kind]:
    # Rollout goes through one stack's own attention.
    return [kind for kind in trace.kinds if name != "rollout" or kind != "cross"]


def _norms(trace: Trace, kind: Kind, layer: int) -> Tensor:
    """|f_h(x_j)|, (heads, keys): what `Trace.norm_weighted` multiplies the weights by."""
    v, projection = trace.attention_of(layer, kind).inputs.v[0], projection_of(trace, kind, layer)
    heads = trace.attention_of(layer, kind).inputs.num_heads
    # W_O^h is an orthogonal matrix times R: the lengths are those of v R, which is much smaller than v W_O^h.
    triangle = torch.linalg.qr(projection.weight.mT, mode="r").R
    wide = v.double().repeat_interleave(heads // len(v), dim=0)
    norms: Tensor = (wide @ triangle.mT).norm(dim=2)
    return norms


def _scalar(trace: Trace, of: Scalar | None, way: str) -> tuple[Scalar, str]:
    """What gradients are of, and what that is in words; by default the largest logit after the last token."""
    if of is not None:
        return of, "of the number that was given"
    _check_next_token(trace, way)
    loaded = trace.require_model()
    with torch.no_grad():
        # The trace keeps no logits: the pass is run again.
        logits = rerun(trace, loaded.network, logits=True).logits
    assert logits is not None
    best = int(logits[0, -1].argmax())

    def largest(output: Output) -> Tensor:
        assert output.logits is not None
        return output.logits[0, -1, best]

    assert outermost(loaded.network.plain) == "decoder"
    return largest, f"of the logit of {_token(loaded, best)!r}, the likeliest next token"


def _check_next_token(trace: Trace, way: str) -> None:
    trace.require_model()
    if "decoder" not in trace.kinds:
        raise InputError(
            f"a gradient needs a number, and {trace.model} predicts no next token; say which number: "
            f"in Python, trace.{way}."
        )
    check_head(trace)


def _token(loaded: Loaded, id: int) -> str:
    return str(id) if loaded.tokenizer is None else loaded.tokenizer.decode([id])


def _finite(name: MeasureName, values: Tensor) -> npt.NDArray[np.float32]:
    array = as_array(values)
    if not np.isfinite(array).all():
        raise InputError(f"{name} gives numbers that are not finite; run the model in float32.")
    return array


def _bytes(trace: Trace, name: MeasureName) -> int:
    """What it takes in the page; the norms are short."""
    if name == "norm":
        return 0
    total = 0
    for kind in _kinds(trace, name):
        queries, keys = (len(side.encoding.tokens) for side in trace.sides(kind))
        for layer in trace.layers_of(kind):
            # Gradients by head, the others by layer.
            heads = trace.attention_of(layer, kind).inputs.num_heads if name == "gradient" else 1
            total += matrix_bytes(heads, queries, keys)
    return total
