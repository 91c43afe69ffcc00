"""What a model computes on a traced text, at any of its taps: the source of what edits put elsewhere."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Network, Output, StackKind
from regard.text import Encoding
from regard.tracing.edits._sites import Layer, Site
from regard.tracing.record import Trace
from regard.tracing.run import rerun

Captured = tuple[Trace, Mapping[str, Tensor]]
"""A traced text, with what it has at some taps, without the batch."""


def captured(trace: Trace, taps: Iterable[tuple[Site, Any, Layer, str]]) -> Captured:
    """What a traced text has at some taps: as the trace holds it, the rest from one more run of its model."""
    held = {tap: _held(trace, site, kind, layer) for site, kind, layer, tap in taps}
    kept = {tap: value for tap, value in held.items() if value is not None}
    left = [tap for tap in held if tap not in kept]
    if left:
        with torch.no_grad():
            _, seen = seen_at(left, trace, trace.require_model().network)
        kept |= {tap: value[0] for tap, value in seen.items()}
    return trace, kept


def encodings_of(trace: Trace) -> dict[StackKind, Encoding]:
    """What each stack of a traced model read."""
    stacks: dict[StackKind, Any] = {"encoder": trace.encoder, "decoder": trace.decoder}
    return {kind: traced.encoding for kind, traced in stacks.items() if traced is not None}


def seen_at(
    taps: Iterable[str], trace: Trace, network: Network, *, logits: bool = False
) -> tuple[Output, dict[str, Tensor]]:
    """What a network gives on a trace's text, and what passes some of its taps."""
    seen: dict[str, Tensor] = {}

    def listener(tap: str) -> Any:
        def keep(value: Tensor) -> None:
            seen[tap] = value

        return keep

    output = rerun(trace, network, taps=Taps({tap: listener(tap) for tap in taps}), logits=logits)
    return output, seen


def _held(trace: Trace, site: Site, kind: Any, layer: Layer) -> Tensor | None:
    """What a trace itself has of a site, without the batch; None where it was not kept as it was."""
    try:
        if site.name == "context" and isinstance(layer, int):
            kept = trace.sides(kind)[0].keeping
            return trace.attention_of(layer, kind).context if kept.dtype is None else None
        if site.name == "residual":
            traced = trace.stack(kind)
            return traced.embeddings(layer) if traced.keeping.dtype is None else None  # type: ignore[arg-type]
    except InputError:  # of a part that was not kept, or of another model
        return None
    return None
