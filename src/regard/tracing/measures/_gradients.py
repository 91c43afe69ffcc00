"""Gradients of any number that a model gives, by any tensor on the way to it."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.arguments import check_function
from regard.core.errors import InputError
from regard.models import Network, Output
from regard.tracing.record import Trace
from regard.tracing.run import rerun

Scalar = Callable[[Output], Tensor]
"""From what a network returns, for a batch of one, to one number."""

_RECORDS = ".inputs"
"""The taps that show a record, which nothing can be differentiated by."""


def gradients(trace: Trace, *, of: Scalar, at: str | Sequence[str]) -> dict[str, Tensor]:
    """Gradients of a number with respect to the tensors at some taps, for the trace's text.

        g = d of(output) / d tap

    The model runs again, forward and backward; its parameters and their `.grad` are left alone. Where scores
    or weights are among the taps the layer computes them, which takes O(N^2) memory.

    Args:
        of: from the model's output to one number: `lambda out: out.logits[0, -1, 42]`.
        at: names of taps, or patterns: "layers.*.attention.weights", "embeddings.tokens".

    Returns:
        For each tap, in the order of the forward pass, a tensor of its shape (batch 1) and type, on the CPU;
        zero where the number does not depend on it.

    Raises:
        InputError: the model is not at hand, a tap that is none, or not of one tensor; an `of` that gives
            anything but one finite number that the model computed; or a call inside `torch.inference_mode`.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> tap = "layers.5.attention.weights"
        >>> trace.gradients(of=lambda out: out.last_hidden_state[0, 0, 0], at=tap)[tap].shape
        torch.Size([1, 12, 7, 7])
    """
    network = trace.require_model().network
    _, found = gradients_at(trace, of, tap_names(network, at))
    return {name: each.detach().cpu() for name, each in found.items()}


def gradients_at(
    trace: Trace, of: Scalar, names: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors at some taps, and the gradients of the number by them."""
    _, values, value = watched_pass(trace, trace.require_model().network, of, names)
    found = torch.autograd.grad(value, list(values.values()), allow_unused=True, materialize_grads=True)
    return values, dict(zip(values, found, strict=True))


def tap_names(network: Network, at: str | Sequence[str]) -> list[str]:
    """The taps that are meant, in the order of the forward pass."""
    patterns = [at] if isinstance(at, str) or not isinstance(at, Sequence) else list(at)
    if not patterns or not all(isinstance(each, str) for each in patterns):
        raise InputError(f"at must be the name of a tap or a pattern, or several; got {at!r}.")
    known = network.tap_names()
    Taps(dict.fromkeys(patterns, lambda value: None)).check(known)
    for each in patterns:
        if each in known and each.endswith(_RECORDS):
            raise InputError(
                f"at must be taps of a tensor; {each!r} shows a record. Take q, k, v, scores or weights."
            )
    return [
        name
        for name in known
        if not name.endswith(_RECORDS) and any(fnmatchcase(name, each) for each in patterns)
    ]


def watched_pass(
    trace: Trace,
    network: Network,
    of: Scalar,
    names: Sequence[str],
    write: Callable[[str, Tensor], Tensor | None] | None = None,
) -> tuple[Output, dict[str, Tensor], Tensor]:
    """One pass with a graph: the output, the tensors at the taps `names`, and the number `of` it.

    `write` may put another tensor in the place of one; where it returns None, the tensor stays.
    """
    check_function("of", of, "from the model's output to one number")
    if torch.is_inference_mode_enabled():
        raise InputError(
            "gradients cannot be taken inside torch.inference_mode(): call this outside it. torch.no_grad() "
            "may stay."
        )
    values: dict[str, Tensor] = {}

    def listener(name: str) -> Callable[[Tensor], Tensor]:
        def watch(value: Tensor) -> Tensor:
            written = None if write is None else write(name, value)
            # A tensor of its own is handed on even where nothing changes: through the lens, weights that
            # nobody writes are looked at beside a kernel that does not go through them.
            own = value.view_as(value) if written is None else written
            if not own.requires_grad:
                own = own.detach().requires_grad_()
            values[name] = own
            return own

        return watch

    with torch.enable_grad():
        output = rerun(trace, network, logits=True, taps=Taps({name: listener(name) for name in names}))
        value = of(output)
    _check_scalar(value)
    return output, values, value


def _check_scalar(value: object) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        got = (
            f"{value.dtype} of shape {tuple(value.shape)}"
            if isinstance(value, Tensor)
            else type(value).__name__
        )
        raise InputError(f"of must give one floating-point number, a tensor; got {got}.")
    if not value.requires_grad:
        raise InputError(
            "of must give a number that the model computed, with its graph: no .item(), .detach() or numpy; "
            "or choose taps that it depends on."
        )
    if not bool(value.isfinite()):
        raise InputError(f"of must give a finite number; got {float(value.detach())}.")
