"""The losses as sums over targets, worked out for a piece of the logits at a time.

The logits of a batch are its largest matrix by far: 8,000 targets of 10,000 entries are 320 MB, and torch
keeps three such for the backward pass. Here they are worked out for some hundred targets, turned into their
gradient while they are in the cache, and forgotten.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regard.core.errors import InputError
from regard.models import Transformer

NOT_A_TARGET = -100
"""The label of a place without a target, as in torch's `cross_entropy`."""


def cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """The sum over targets of H(q, p) = - sum_v q(v) log p(v), in nats.

        p = softmax(logits)
        q(v) = (1 - smoothing) [v = target] + smoothing / V

    Args:
        logits: (..., V).
        targets: int64 (...); `NOT_A_TARGET` counts nothing.
        smoothing: the share of q that is spread evenly over the V classes.

    Returns:
        One number, float32 or wider.

    Raises:
        InputError: smoothing outside [0, 1).

    Example:
        >>> from regard.training import NOT_A_TARGET, cross_entropy
        >>> import torch
        >>> round(float(cross_entropy(torch.zeros(3, 4), torch.tensor([0, 1, NOT_A_TARGET]))), 4)
        2.7726

    Source: Szegedy et al. 2016, arXiv 1512.00567, section 7.
    """
    if not 0.0 <= smoothing < 1.0:
        raise InputError(f"smoothing must be at least 0 and below 1; got {smoothing}.")
    return functional.cross_entropy(
        # (targets, vocabulary), in float32 at least: a softmax in half precision loses digits.
        _wide(logits.reshape(-1, logits.shape[-1])),
        targets.reshape(-1),
        reduction="sum",
        label_smoothing=smoothing,
        ignore_index=NOT_A_TARGET,
    )


def kl_divergence(logits: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """The sum over targets of KL(q || p) = H(q, p) - H(q), with p and q as in `cross_entropy`.

    H(q) depends on V and the smoothing alone, so the gradient is that of the cross-entropy; but this one is 0
    where the model gives exactly q.

    Args:
        logits, targets, smoothing: as in `cross_entropy`.

    Example:
        >>> from regard.training import cross_entropy, kl_divergence
        >>> import torch
        >>> float(kl_divergence(torch.zeros(1, 4), torch.tensor([0]))) == float(cross_entropy(
        ...     torch.zeros(1, 4), torch.tensor([0])))
        True

    Source: the loss of Vaswani et al. 2017, arXiv 1706.03762, section 5.4, as it is often written.
    """
    loss = cross_entropy(logits, targets, smoothing=smoothing)
    # H(q) is the same for every target.
    count = (targets != NOT_A_TARGET).sum().to(loss.dtype)
    return loss - smoothed_entropy(logits.shape[-1], smoothing) * count


def smoothed_entropy(classes: int, smoothing: float) -> float:
    """H(q) in nats, of a target of `classes` that is smoothed.

    Example:
        >>> from regard.training import smoothed_entropy
        >>> smoothed_entropy(4, 0.0), round(smoothed_entropy(2, 0.5), 4)
        (0.0, 0.5623)
    """
    rest = smoothing / classes
    # The right class, and each of the others.
    parts = [(1, 1.0 - smoothing + rest), (classes - 1, rest)]
    return sum(-count * share * math.log(share) for count, share in parts if share > 0.0)


def distillation(logits: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The sum over rows of T^2 KL(softmax(teacher / T) || softmax(logits / T)), in nats.

    Both are (..., V). The factor T^2 keeps the size of the gradient, which the temperature divides by T^2;
    above 1 it lets the teacher's less likely classes count more.

    Source: Hinton, Vinyals and Dean 2015, arXiv 1503.02531, section 2.
    """
    if not temperature > 0.0:
        raise InputError(f"temperature must be positive; got {temperature}.")
    if logits.shape != teacher.shape:
        raise InputError(
            f"logits and teacher must have one shape; got {tuple(logits.shape)} and {tuple(teacher.shape)}."
        )
    # log p at the temperature, of student and teacher.
    ours = functional.log_softmax(_wide(logits) / temperature, dim=-1)
    theirs = functional.log_softmax(_wide(teacher) / temperature, dim=-1)
    # T^2 keeps the size of gradients whatever T: Hinton et al. 2015, section 2.
    return temperature**2 * functional.kl_div(ours, theirs, reduction="sum", log_target=True)


def binary_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The sum of - log p of what each bool target is, with p = sigmoid(logit) that it is true, in nats."""
    wide = _wide(logits)
    return functional.binary_cross_entropy_with_logits(wide, targets.to(wide.dtype), reduction="sum")


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.element_size() < 4 else logits


Sum = Callable[[Tensor, Tensor], Tensor]
"""From logits (M, V) and targets (M,) to a sum over the targets."""

_ENTRIES = 2**21  # of the logits of a piece; 8 MB in float32
_ON_DEVICE = 2**28


def language_sums(
    network: Transformer, state: Tensor, labels: Tensor, loss: Sum = cross_entropy
) -> dict[str, Tensor]:
    """In training the loss; when scoring, plain cross-entropy and how many were right.

    The head of the network reads the last hidden state, (rows, N, d_model), where labels, int64 (rows, N),
    hold a target.
    """
    # In training one number; its gradients may be worked out piece by piece.
    if network.training:
        return {"loss": _loss_of(network, state, labels, loss)}
    # What is scored is the likelihood of the text itself, without smoothing.
    return _sums_of(network, state, labels, {"loss": cross_entropy, "right": _right})


def predicted(network: Transformer, state: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The targets, (M,), and the head's logits there, (M, V), of all at once."""
    states, targets = _targets(state, labels)
    return targets, _logits(network, states)


def _loss_of(network: Transformer, state: Tensor, labels: Tensor, loss: Sum) -> Tensor:
    """loss(logits of the targets, targets) and its gradient: one number, to be differentiated once."""
    states, targets = _targets(state, labels)
    # Logits of all targets at once can be larger than the network.
    pieces = _pieces(network, states)
    # Few targets: the plain way.
    if len(pieces) == 1:
        return loss(_logits(network, states), targets)
    assert network.head is not None
    # autograd asks for a gradient of every argument that has one: so the head's parameters are arguments.
    learned = [each for each in network.head.parameters() if each.requires_grad]
    value: Tensor = _InPieces.apply(states, targets, network, loss, pieces, *learned)  # type: ignore[no-untyped-call]
    return value


def _sums_of(
    network: Transformer, state: Tensor, labels: Tensor, sums: Mapping[str, Sum]
) -> dict[str, Tensor]:
    """Several sums over the targets by name, without gradients."""
    states, targets = _targets(state, labels)
    totals: dict[str, Tensor] = {}
    for rows in _pieces(network, states):
        logits = _logits(network, states[rows])
        for name, total in sums.items():
            value = total(logits, targets[rows])
            totals[name] = totals[name] + value if name in totals else value
    return totals


def _right(logits: Tensor, targets: Tensor) -> Tensor:
    """How many targets have the largest logit."""
    return (logits.argmax(dim=-1) == targets).sum()


def _targets(state: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(M, d_model) and (M,). One place at least, so that every parameter takes part in every step."""
    # Most places have none when tokens are masked: their logits are not made.
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
    # Logits of a piece: by the cache on the CPU, by the cost of calls elsewhere.
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
        # Sums of gradients, filled piece by piece.
        of_states = torch.empty_like(states)
        of_parameters = [torch.zeros_like(each) for each in parameters]
        values = []
        for rows in pieces:
            piece = states[rows].detach().requires_grad_()
            with torch.enable_grad():
                value = loss(_logits(network, piece), targets[rows])
            # The logits of a piece are gone before the next is made.
            of_states[rows], *gradients = torch.autograd.grad(value, (piece, *parameters))
            for sum_of, gradient in zip(of_parameters, gradients, strict=True):
                sum_of += gradient
            values.append(value.detach())
        ctx.save_for_backward(of_states, *of_parameters)
        return torch.stack(values).sum()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        # Gradients of a sum: scaled by what comes from above.
        of_states, *of_parameters = (each * upstream[0] for each in ctx.saved_tensors)
        return of_states, None, None, None, None, *of_parameters
