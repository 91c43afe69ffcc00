"""Attention rollout: weights multiplied through the layers, row by row, without a matrix of all tokens."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_weights
from regard.core.errors import InputError
from regard.models import Kind, StackKind
from regard.tracing.record import Selector, Trace, chosen_of

_ENTRIES = 2**22
"""Weights of one block, over all heads."""


def rollout(
    trace: Trace, token: Selector | None = None, *, kind: "Kind | None" = None, layer: int = -1
) -> Tensor:
    """How much of each token of the input is in a token after some layers, if attention were all that mixes.

        r_i = row i of  B_l B_(l-1) .. B_0,   B = 0.5 I + 0.5 mean_h A_h

    A row vector goes from the last layer down, r <- 0.5 r + 0.5 r A: O(N) memory for each token asked for.

    Args:
        token: which tokens after the layer: an index, a slice or a word; None gives all, (N, N).
        kind: "encoder" or "decoder"; needed only where there are both.
        layer: the last layer that counts.

    Returns:
        float32 on the CPU, (tokens, N); rows sum to 1, less what went to attention sinks.

    Raises:
        InputError: a layer, token or word that is not there; or kind "cross", which leads from one stack to
            another.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.rollout("flies").sum(dim=1).round(decimals=5)
        tensor([1.])

    Source: Abnar and Zuidema 2020, arXiv 2005.00928, section 3, equation 1, with their A = 0.5 W + 0.5 I.
    """
    stack = own_attention(trace, kind, "rollout")
    rows = list(chosen_of("token", trace.stack(stack).encoding, token))
    *_, flow = rollout_steps(trace, stack, trace.layer_index(layer, stack), rows)
    return flow.float().cpu()


def rollout_steps(trace: Trace, stack: "StackKind", last: int, rows: Sequence[int]) -> Iterator[Tensor]:
    """The same after each step, from layer `last` down to 0: float64 (rows, N), the last of which it is."""
    inputs = [trace.attention_of(each, stack).inputs for each in range(last + 1)]
    count = len(trace.stack(stack).encoding.tokens)
    flow = torch.zeros(len(rows), count, dtype=torch.float64, device=inputs[0].q.device)
    flow[range(len(rows)), list(rows)] = 1.0
    for each in reversed(inputs):
        with torch.no_grad():  # not around the yield: it would hold for whoever asks
            flow = 0.5 * flow + 0.5 * through(flow, each)
        yield flow


def own_attention(trace: Trace, kind: "Kind | None", what: str) -> "StackKind":
    """The stack whose own attention is meant."""
    if kind == "cross" or (kind is None and len(trace.kinds) > 1):
        listed = " or ".join(f'"{each}"' for each in trace.kinds if each != "cross")
        raise InputError(
            f"kind must be {listed} for {what}, which goes through one stack's own attention; got {kind!r}."
        )
    own = trace.kind(kind)
    assert own != "cross"
    return own


def through(rows: Tensor, inputs: AttentionInputs) -> Tensor:
    """rows @ mean_h A_h, (T, N) -> (T, N), a block of A's rows at a time; a sink's column is left out."""
    result = torch.zeros_like(rows)
    seen = (rows != 0).any(dim=0).nonzero()[:, 0]  # causal attention never looks at the later ones
    size = max(1, _ENTRIES // (inputs.num_heads * inputs.num_columns))
    for start in range(0, len(seen), size):
        block = seen[start : start + size]
        mean = attention_weights(inputs, block)[0, :, :, : inputs.k_len].double().mean(dim=0)
        result += rows[:, block] @ mean
    return result
