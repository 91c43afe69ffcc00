"""What a model computes on a traced text, at any of its taps: the source of what edits put elsewhere."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Kind, Network, StackKind, keys_of, stack_of
from regard.text import Encoding
from regard.tracing.record import Trace
from regard.tracing.run import run_again


@dataclass(frozen=True, kw_only=True, eq=False)
class Captured:
    """Tensors of one run.

    Args:
        encodings: what each stack read.
        tensors: by tap, without the batch.
    """

    encodings: Mapping[StackKind, Encoding]
    tensors: Mapping[str, Tensor]

    def side(self, kind: Kind, axis: str) -> Encoding:
        """The tokens that are the queries or the keys of a kind of attention, or a stack's."""
        return side(self.encodings, kind, axis)


def stack_along(kind: Kind, axis: str) -> StackKind:
    """The stack whose tokens stand along an axis of a kind of attention."""
    return keys_of(kind) if axis == "key" else stack_of(kind)


def side(encodings: Mapping[StackKind, Encoding], kind: Kind, axis: str) -> Encoding:
    """The tokens that are the queries or the keys of a kind of attention, or a stack's."""
    stack = stack_along(kind, axis)
    if stack not in encodings:
        raise InputError(
            f"the trace must be of a model with kind {kind!r}, as the edited one is; it has "
            f"{' and '.join(encodings)}."
        )
    return encodings[stack]


def encodings_of(trace: Trace) -> dict[StackKind, Encoding]:
    """What each stack of a traced model read."""
    stacks: dict[StackKind, Any] = {"encoder": trace.encoder, "decoder": trace.decoder}
    return {kind: passage.encoding for kind, passage in stacks.items() if passage is not None}


def check_mode(network: Network) -> None:
    """Raise InputError if a network is in training mode."""
    if network.training:
        raise InputError(
            "the network must be in evaluation mode: in training, dropout makes every pass another; "
            "call model.network.eval()."
        )


def captured(trace: Trace, points: Iterable[str]) -> Captured:
    """Run a trace's model on its text again, and keep what passes these taps.

    Raises:
        InputError: the trace came without its model, or the model has no such tap.
    """
    encodings = encodings_of(trace)
    kept: dict[str, Tensor] = {}
    taps = Taps({point: keep_in(kept, point) for point in points})
    with torch.no_grad():
        run_again(trace, trace.require_model().network, taps=taps)
    return Captured(encodings=encodings, tensors={point: value[0] for point, value in kept.items()})


def keep_in(kept: dict[str, Tensor], point: str) -> Any:
    """A listener that keeps what passes; of the listeners of many points, each its own."""

    def keep(value: Tensor) -> None:
        kept[point] = value

    return keep
