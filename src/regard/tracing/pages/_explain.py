"""One token's attention in one head, worked out: every number between the text and the output."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.blocks import DecoderLayer, PostNorm, PreNorm, SelfAttentionLayer
from regard.core import Taps, reference_attention
from regard.core.errors import InputError, RegardError
from regard.models import Kind, StackKind, bound_of, stack_of
from regard.tracing.pages._explanation import Explanation, Step
from regard.tracing.pages._page_measures import as_array
from regard.tracing.record import Trace, WordOrToken, token_of


def explain(
    trace: Trace, token: WordOrToken, layer: int = -1, head: int = 0, *, kind: Kind | None = None
) -> Explanation:
    """Work out one token's attention in one head, every number from its id to the layer's output.

    Args:
        trace: the traced text.
        token: an index, a word of the text, or a span of it, such as (16, 20); if a word has several pieces,
            the first is worked out, and the record names them all.
        layer: attention layer.
        head: query head.
        kind: "encoder", "decoder" or "cross"; needed only where there are several.

    Returns:
        Every step, as numpy arrays: see `Explanation`. `print` walks through it.

    Raises:
        InputError: a layer, head, token or word that is not there, a kind that is not said, or a layer whose
            weights, contexts or outputs an edit wrote: one step does not give the next there.
    """
    # What is asked for: kind, row, layer and head, as numbers.
    kind = trace.kind(kind)
    of_queries, of_keys = trace.sides(kind)
    pieces = token_of("token", of_queries.encoding, token)
    row, layer, head = pieces[0], trace.layer_index(layer, kind), trace.head_index(head, kind, layer)
    traced = trace.attention_of(layer, kind)
    # An edit's numbers follow from nothing that could be worked out.
    if head in traced.written_heads or traced.output_written:
        what = "output" if traced.output_written else f"contexts of head {head}"
        raise InputError(
            f"an edit wrote the {what} of {kind} attention layer {layer}, which weights and values do not "
            "explain; explain another head or layer, or a trace of the model without the edit."
        )
    inputs = traced.inputs.head(head)
    # In float64, as `trace.weights` computes them: the two must show the same digits.
    exact = replace(inputs, q=inputs.q.double(), k=inputs.k.double(), v=inputs.v.double())
    with torch.no_grad():  # a bias may be learned
        # One row of one head: (1, 1, 1, keys) and so on.
        worked = reference_attention(exact, queries=range(row, row + 1))
        left, right = exact.scorer.factors(exact.q[:, :, row : row + 1], exact.k)
    learned = of_queries.embeddings(0)
    # What leads to x, and what the layer does with the output.
    before, after = _steps_around(trace, kind, layer, row)
    # A sink is a column of the softmax, and no key: it has no token, no value and no share in the context.
    keys = exact.k_len
    sink = None if exact.sinks is None else float(worked.weights[0, 0, 0, keys])
    return Explanation(
        model=trace.model,
        # Ids alone have no text: their pieces stand for it.
        text=" | ".join(of_queries.encoding.texts) or " ".join(of_queries.shown),
        kind=kind,
        layer=layer,
        head=head,
        num_layers=of_queries.depth,
        num_heads=traced.inputs.num_heads,
        token=row,
        pieces=tuple(pieces),
        tokens=of_queries.shown,
        token_pieces=tuple(of_queries.tokens),
        token_ids=tuple(of_queries.encoding.token_ids),
        key_tokens=of_keys.shown,
        key_pieces=tuple(of_keys.tokens),
        scale=inputs.factor,
        formula=exact.scorer.formula,
        left=as_array(left[0, 0, 0, 0]),
        right=as_array(right[0, 0, 0]),
        learned=as_array(learned[row]),
        scaled=_row(of_queries.scaled, row),
        position=_row(of_queries.positions, row),
        token_type=_row(of_queries.token_types, row),
        embedded=as_array(of_queries.hidden[0][row]),
        embedding_norm=_embedding_norm(trace, kind),
        x=as_array(of_queries.hidden[layer][row]),
        made_from=_made_from(trace, kind),
        before=before,
        q=as_array(inputs.q[0, 0, row]),
        k=as_array(inputs.k[0, 0]),
        v=as_array(inputs.v[0, 0]),
        scores=as_array(worked.scores[0, 0, 0]),
        scaled_scores=as_array(worked.scaled_scores[0, 0, 0]),
        masked_scores=as_array(worked.masked_scores[0, 0, 0, :keys]),
        weights=as_array(worked.weights[0, 0, 0, :keys]),
        sink=sink,
        context=as_array(worked.context[0, 0, 0]),
        joined=as_array(traced.context[:, row].flatten()),
        output=_row(traced.output, row),
        after=after,
        contextual=as_array(of_queries.hidden[layer + 1][row]),
    )


def _steps_around(
    trace: Trace, kind: Kind, index: int, row: int
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The steps of one position (`row`) before and after its attention, worked out in float64.

    First from the layer's input to what the attention reads, then from what it gave to the layer's output.
    Both are empty where they cannot be seen: see `sublayers`.
    """
    # In float64, as all other numbers of the calculation.
    parts = sublayers(trace, stack_of(kind), index, [row], widen=True)
    walked = [step for part in parts for step in part.steps]
    if not walked:
        return (), ()
    # The attention itself is shown in full, and is no step here.
    middle = [step.name for step in walked].index("cross-attention" if kind == "cross" else "attention")
    steps = [Step(step.name, step.value[0].float().cpu().numpy()) for step in walked]
    return tuple(steps[:middle]), tuple(steps[middle + 1 :])


def _made_from(trace: Trace, kind: Kind) -> str:
    """What the query is made of, in words, for where the steps to it are not known."""
    if kind != "cross":
        return "x"
    return "x after the decoder's own attention" if "decoder" in trace.kinds else "the state before x is read"


def _embedding_norm(trace: Trace, kind: Kind) -> str | None:
    stack = None if trace.loaded is None else trace.loaded.network.stack(stack_of(kind))
    # A lens shows no modules.
    norm = None if stack is None else stack.embeddings.norm
    return None if norm is None else type(norm).__name__


def _row(values: Tensor | None, row: int) -> np.ndarray | None:
    return None if values is None else as_array(values[row])


class Walked(NamedTuple):
    """Vectors on the way through a layer, (rows, d); `total`: x plus the step before."""

    name: str
    value: Tensor
    total: bool = False


class Sublayer(NamedTuple):
    """A sublayer inside its residual connection: the last of its steps is the residual stream after it."""

    name: str
    steps: list[Walked]


def sublayers(
    trace: Trace, kind: StackKind, index: int, rows: Sequence[int], *, widen: bool
) -> list[Sublayer]:
    """The way of some positions through a layer: its attentions, and its feed-forward network.

    The last ends with the stack's last norm. With `widen` it works in float64, on a copy of the layer's
    weights. There are none where they cannot be seen: a trace without its model, or one through the lens or
    of edits, and layers in which positions see each other outside attention (DeBERTa's convolution).
    """
    # Only regard's own layers, without edits, can be walked through.
    network = None if trace.loaded is None else trace.loaded.network
    stack = None if network is None or network.written else network.stack(kind)
    if stack is None:
        return []
    layer = stack.layers[index]
    if type(layer) not in (SelfAttentionLayer, DecoderLayer):
        return []
    traced = trace.stack(kind)
    dtype = torch.float64 if widen else next(layer.parameters()).dtype
    # The residual stream that enters the layer: (rows, d).
    x = traced.hidden[index][rows].to(dtype)
    walked: list[Sublayer] = []
    # In the order of the forward pass.
    for name in ("attention", "cross_attention", "ffn"):
        if not hasattr(layer, name):
            continue
        said = _SAID[name]
        if name == "ffn":
            # Worked out again; attention outputs were recorded.
            part = partial(_feed_forward, _widened(layer.ffn, widen))
        else:
            of: Kind = "cross" if name == "cross_attention" else kind
            output = trace.attention_of(index, of).output if index in trace.layers_of(of) else None
            if output is None:
                return []
            part = partial(_given, said, output[rows].to(dtype))
        steps = _around(getattr(layer, f"{name}_residual"), x, part, said, widen)
        walked.append(Sublayer(said, steps))
        x = steps[-1].value
    # The last layer's output goes through the stack's norm.
    if stack.norm is not None and index == len(stack.layers) - 1:
        walked[-1].steps.append(_normed(stack.norm, x, widen, "final "))
    # If the steps do not lead there, nothing is shown.
    _check(walked[-1].steps[-1].value, traced.hidden[index + 1][rows])
    return walked


_SAID = {"attention": "attention", "cross_attention": "cross-attention", "ffn": "feed-forward"}

_Part = Callable[[Tensor], list[Walked]]


def _around(residual: nn.Module, x: Tensor, part: _Part, said: str, widen: bool) -> list[Walked]:
    """A sublayer inside its residual connection; the last is the residual stream after it."""
    # norm(x + part(x)); below, x + after(part(before(x))).
    if isinstance(residual, PostNorm):
        steps = part(x)
        total = Walked(f"x + {said}", x + steps[-1].value, total=True)
        return [*steps, total, _normed(residual.norm, total.value, widen)]
    before, after = (
        (residual.norm, None) if isinstance(residual, PreNorm) else (residual.before, residual.after)
    )
    first = _normed(before, x, widen)
    steps = [first, *part(first.value)]
    if after is not None:
        steps.append(_normed(after, steps[-1].value, widen))
    return [*steps, Walked(f"x + {said}", x + steps[-1].value, total=True)]


def _widened(module: Any, widen: bool) -> Any:
    return deepcopy(module).double() if widen else module


@torch.no_grad()
def _normed(norm: Any, x: Tensor, widen: bool, which: str = "") -> Walked:
    return Walked(which + type(norm).__name__, _widened(norm, widen)(x))


def _given(said: str, output: Tensor, x: Tensor) -> list[Walked]:
    del x  # what the attention made of it is known
    return [Walked(said, output)]


@torch.no_grad()
def _feed_forward(ffn: Any, x: Tensor) -> list[Walked]:
    hidden: list[Tensor] = []
    output = ffn(x[None], taps=Taps({"hidden": hidden.append}))
    return [Walked("hidden", hidden[0][0]), Walked("feed-forward", output[0])]


def _check(made: Tensor, recorded: Tensor) -> None:
    """The steps must lead to what the model handed on: what is shown is checked."""
    apart, largest = (made.double() - recorded.double()).abs().amax(-1), recorded.double().abs().amax(-1)
    error = float((apart / largest.clamp(min=1e-30)).max())
    bound = bound_of(recorded.dtype)
    if not error <= bound:
        raise RegardError(
            f"the residual does not add up: the layer's steps lead to a vector that differs by {error:.1e} "
            f"of the largest entry from the one that was recorded (rounding explains {bound:.0e})."
        )
