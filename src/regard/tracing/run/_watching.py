"""A traced text runs again and is watched: what passes some taps, and the gradients of a number there."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.arguments import check_function
from regard.core.errors import InputError
from regard.models import Network, Output
from regard.tracing.record import Trace
from regard.tracing.run._passes import rerun

Metric = Callable[[Output], "Tensor | float"]
"""From what a network returns (of one text: batch 1, with logits) to one number."""


def seen_at(
    taps: Iterable[str], trace: Trace, network: Network, *, logits: bool = False
) -> tuple[Output, dict[str, Tensor]]:
    """What a network gives on a trace's text, and what passes some of its taps."""
    seen: dict[str, Tensor] = {}
    keepers = {tap: partial(seen.__setitem__, tap) for tap in taps}
    return rerun(trace, network, taps=Taps(keepers), logits=logits), seen


def watched_pass(
    trace: Trace,
    network: Network,
    of: Metric,
    names: Sequence[str],
    write: Callable[[str, Tensor], Tensor | None] | None = None,
    *,
    called: str = "of",
) -> tuple[dict[str, Tensor], Tensor]:
    """One pass with a graph: the tensors at the taps `names`, and the number `of` what came out.

    `write` may put another tensor in the place of one; where it returns None, the tensor stays. In messages
    `of` is `called` as the argument that it came by.
    """
    check_function(called, of, "from the model's output to one number")
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
            # Where the parameters are frozen, the graph begins here.
            if not own.requires_grad:
                own = own.detach().requires_grad_()
            values[name] = own
            return own

        return watch

    with torch.enable_grad():
        output = rerun(trace, network, logits=True, taps=Taps({name: listener(name) for name in names}))
        value: Any = of(output)
    number_of(called, value, differentiable=True)
    return values, value


def gradients_at(
    trace: Trace, network: Network, names: Sequence[str], of: Metric, *, called: str = "of"
) -> tuple[dict[str, Tensor], dict[str, Tensor], float]:
    """What passes some taps, the gradients of a number there, and the number: one pass forward, one back."""
    values, value = watched_pass(trace, network, of, names, called=called)
    found = torch.autograd.grad(value, list(values.values()), allow_unused=True, materialize_grads=True)
    passed = {name: each.detach() for name, each in values.items()}
    return passed, dict(zip(values, found, strict=True)), float(value.detach())


def number_of(called: str, value: Any, *, differentiable: bool = False) -> float:
    """What a function of an output gave, as a number; `called` is the argument that the function came by."""
    is_tensor = isinstance(value, Tensor)
    got = f"{value.dtype} of shape {tuple(value.shape)}" if is_tensor else type(value).__name__
    if is_tensor and value.numel() != 1:
        raise InputError(f"{called} must give one number; got {got}.")
    try:
        number = float(value.detach() if is_tensor else value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{called} must give one number; got {got}.") from error
    if not math.isfinite(number):
        raise InputError(f"{called} must give a finite number; got {number}.")
    if differentiable and not (is_tensor and value.requires_grad):
        raise InputError(
            f"{called} must give a number that the model computed, with its graph (no .item(), .detach() or "
            f"numpy), and that depends on what is asked about; got {got}."
        )
    return number
