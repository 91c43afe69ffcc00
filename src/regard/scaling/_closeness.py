"""How far attentions are from the exact one on a model's own queries, keys and values."""

from collections.abc import Callable, Sequence

import torch

from regard.core.errors import InputError
from regard.models import Loaded, load_checkpoint
from regard.scaling._cases import case_named
from regard.tracing.run import trace_ids

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
    model: Loaded | None = None,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The relative error of each attention's context, mean over all heads of all layers.

        |C - C*| / |C*|      C* = softmax(scale q k^T) v, in float64; Frobenius norms over a head's queries

    Args:
        names: of attentions.
        tokens: how long the text is.
        model: an encoder of softmax attention; None for the default model.
        advance: called after each.

    Raises:
        InputError: an unknown name, or more tokens than the model takes.

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
    ids = tokenizer.encode(TEXT * (1 + tokens // 64)).token_ids
    trace = trace_ids(loaded, [*ids[: tokens - 1], ids[-1]])
    sums = dict.fromkeys(names, 0.0)
    layers = trace.layers_of(trace.kinds[0])
    with torch.no_grad():
        for name, case in cases.items():
            for layer in layers:
                inputs = trace.attention_of(layer, trace.kinds[0]).inputs
                q, k, v = (x.double() for x in (inputs.q, inputs.k, inputs.v))
                exact = torch.softmax(inputs.factor * q @ k.mT, dim=3) @ v
                found = case.context(inputs).double()
                apart = (found - exact).flatten(2).norm(dim=2) / exact.flatten(2).norm(dim=2)
                sums[name] += float(apart.mean()) / len(layers)
            advance()
    return sums
