"""How far attentions are from the exact one on a model's own queries, keys and values."""

import statistics
from collections.abc import Callable, Sequence

import torch

from regard.core import AttentionInputs, Causal
from regard.core.errors import InputError
from regard.models import Loaded, load_checkpoint
from regard.scaling._cases import Case, case_named
from regard.tracing.run import TraceOfRun

TEXT = (
    "The river bends twice before it reaches the town, and on the inside of the second bend the bank is soft "
    "enough that a heron can stand there for an hour without moving. Most people who walk past never notice. "
    "They are on their way to the other bank, the one with the marble counter and the slow clerks, where a "
    "loan may be refused in under a minute. "
)
"""Read over and over, as often as there are tokens to fill."""


def closeness(
    names: Sequence[str],
    *,
    tokens: int = 256,
    causal: bool = False,
    model: Loaded | None = None,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The relative error of each attention's context, mean over all heads of all layers.

        |C - C*| / |C*|      C* = softmax(scale q k^T) v, in float64; Frobenius norms over a head's queries

    Args:
        names: of attentions.
        tokens: how long the text is.
        causal: whether a query sees only what is before it, in both.
        model: an encoder of softmax attention; None for the default model.
        advance: called after each.

    Raises:
        InputError: an unknown name, an attention without that form, or more tokens than the model takes.

    Example:
        >>> found = closeness(["softmax", "window"], tokens=64)
        >>> found["softmax"] < 1e-6, found["window"] < 0.5
        (True, True)
    """
    loaded = load_checkpoint() if model is None else model
    tokenizer = loaded.require_tokenizer()
    limit = loaded.network.limit("encoder")
    if tokens < 2 or (limit is not None and tokens > limit):
        raise InputError(f"tokens must be from 2 to {limit}, the model's limit; got {tokens}.")
    cases = {name: case_named(name) for name in names}
    for case in cases.values():
        case.check(causal=causal)
    ids = tokenizer.encode(TEXT * (1 + tokens // 64)).token_ids
    trace = TraceOfRun.of_ids(loaded, [*ids[: tokens - 1], ids[-1]])
    means: dict[str, float] = {}
    kind = trace.kinds[0]
    layers = trace.layers_of(kind)
    with torch.no_grad():
        for name, case in cases.items():
            found = [_apart(case, trace.attention_of(each, kind).inputs, causal) for each in layers]
            means[name] = statistics.fmean(found)
            advance()
    return means


def _apart(case: Case, inputs: AttentionInputs, causal: bool) -> float:
    """The mean over the heads of one layer."""
    inputs = inputs.changed(mask=Causal() if causal else None)
    q, k, v = (x.double() for x in (inputs.q, inputs.k, inputs.v))
    scores = inputs.factor * q @ k.mT
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    exact = torch.softmax(scores, dim=3) @ v
    norms = [x.flatten(2).norm(dim=2) for x in (case.context(inputs).double() - exact, exact)]
    return float((norms[0] / norms[1]).mean())
