"""What a model computes on a traced text, at any of its taps: the source of what edits put elsewhere."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import StackKind
from regard.text import Encoding
from regard.tracing.edits._sites import Layer, Site
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


def encodings_of(trace: Trace) -> dict[StackKind, Encoding]:
    """What each stack of a traced model read."""
    stacks: dict[StackKind, Any] = {"encoder": trace.encoder, "decoder": trace.decoder}
    return {kind: passage.encoding for kind, passage in stacks.items() if passage is not None}


def captured(trace: Trace, taps: Iterable[tuple[Site, Any, Layer, str]]) -> Captured:
    """What a traced text has at some taps: as the trace holds it, the rest from one more run of its model.

    Raises:
        InputError: the trace came without its model, or the model has no such tap.
    """
    kept: dict[str, Tensor] = {}
    left: dict[str, Any] = {}
    for site, kind, layer, tap in taps:
        held = _held(trace, site, kind, layer)
        if held is None:
            left[tap] = keep_in(kept, tap)
        else:
            kept[tap] = held[None]
    if left:
        with torch.no_grad():
            run_again(trace, trace.require_model().network, taps=Taps(left))
    return Captured(encodings=encodings_of(trace), tensors={tap: value[0] for tap, value in kept.items()})


def _held(trace: Trace, site: Site, kind: Any, layer: Layer) -> Tensor | None:
    """What a trace itself has of a site, without the batch; None where it was not kept as it was."""
    try:
        if site.name == "context" and isinstance(layer, int):
            kept = trace.sides(kind)[0].keeping
            return trace.attention_of(layer, kind).context if kept.dtype is None else None
        if site.name == "residual":
            passage = trace.passage(kind)
            return passage.embeddings(layer) if passage.keeping.dtype is None else None  # type: ignore[arg-type]
    except InputError:  # of a part that was not kept, or of another model
        return None
    return None


def keep_in(kept: dict[str, Tensor], tap: str) -> Any:
    """A listener that keeps what passes; of the listeners at many taps, each its own."""

    def keep(value: Tensor) -> None:
        kept[tap] = value

    return keep
