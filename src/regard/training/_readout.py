"""Losses over a vocabulary, a piece of the logits at a time.

The logits of a batch are its largest matrix by far: 8,000 targets of 10,000 entries are 320 MB, and torch
keeps three such for the backward pass. Here they are worked out for some hundred targets, turned into their
gradient while they are in the cache, and forgotten.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.models import Transformer
from regard.training._losses import NOT_A_TARGET

Sum = Callable[[Tensor, Tensor], Tensor]
"""From logits (M, V) and targets (M,) to a sum over the targets."""

_ENTRIES = 2**21  # of the logits of a piece; 8 MB in float32
_ON_DEVICE = 2**28


def loss_of(network: Transformer, state: Tensor, labels: Tensor, loss: Sum) -> Tensor:
    """loss(logits of the targets, targets), with its gradient.

    Args:
        network: whose head is read.
        state: (rows, N, d_model), the last hidden state.
        labels: int64 (rows, N); where they are `NOT_A_TARGET`, nothing is read.
        loss: a sum over targets.

    Returns:
        One number. It can be differentiated once.
    """
    states, targets = _targets(state, labels)
    pieces = _pieces(network, states)
    if len(pieces) == 1:
        return loss(_logits(network, states), targets)
    assert network.head is not None
    learned = [each for each in network.head.parameters() if each.requires_grad]
    found: Tensor = _InPieces.apply(states, targets, network, loss, pieces, *learned)  # type: ignore[no-untyped-call]
    return found


def sums_of(
    network: Transformer, state: Tensor, labels: Tensor, sums: Mapping[str, Sum]
) -> dict[str, Tensor]:
    """Several sums over the targets by name, without gradients; arguments as of `loss_of`."""
    states, targets = _targets(state, labels)
    found: dict[str, Tensor] = {}
    for rows in _pieces(network, states):
        logits = _logits(network, states[rows])
        for name, total in sums.items():
            value = total(logits, targets[rows])
            found[name] = found[name] + value if name in found else value
    return found


def predicted(network: Transformer, state: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The targets, (M,), and the head's logits there, (M, V), of all at once."""
    states, targets = _targets(state, labels)
    return targets, _logits(network, states)


def right(logits: Tensor, targets: Tensor) -> Tensor:
    """How many targets have the largest logit."""
    return (logits.argmax(dim=-1) == targets).sum()


def _targets(state: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(M, d_model) and (M,). One place at least, so that every parameter takes part in every step."""
    wanted = labels != NOT_A_TARGET
    if bool(wanted.all()):
        return state.flatten(0, 1), labels.flatten()
    if not bool(wanted.any()):
        wanted = torch.zeros_like(wanted)
        wanted[:, 0] = True
    return state[wanted], labels[wanted]


def _logits(network: Transformer, states: Tensor) -> Tensor:
    logits = network.readout(states[None], normed=True)
    assert logits is not None
    return logits.squeeze(0)  # an index would have a matrix of zeros for its gradient


def _pieces(network: Transformer, states: Tensor) -> Sequence[slice]:
    entries = _ENTRIES if states.device.type == "cpu" else _ON_DEVICE
    vocabulary = network.stack(list(network.prefixes)[-1]).embeddings.tokens.num_embeddings
    rows = max(1, entries // vocabulary)
    return [slice(start, start + rows) for start in range(0, len(states), rows)]


class _InPieces(torch.autograd.Function):
    """Gradients are worked out beside the loss, so that no logits wait for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        targets: Tensor,
        network: Transformer,
        loss: Sum,
        pieces: Sequence[slice],
        *parameters: Tensor,
    ) -> Tensor:
        of_states = torch.empty_like(states)
        of_parameters = [torch.zeros_like(each) for each in parameters]
        values = []
        for rows in pieces:
            piece = states[rows].detach().requires_grad_()
            with torch.enable_grad():
                value = loss(_logits(network, piece), targets[rows])
            of_states[rows], *found = torch.autograd.grad(value, (piece, *parameters))
            for sum_of, gradient in zip(of_parameters, found, strict=True):
                sum_of += gradient
            values.append(value.detach())
        ctx.save_for_backward(of_states, *of_parameters)
        return torch.stack(values).sum()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        of_states, *of_parameters = (each * upstream[0] for each in ctx.saved_tensors)
        return of_states, None, None, None, None, *of_parameters
