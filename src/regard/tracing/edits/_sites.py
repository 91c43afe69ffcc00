"""Where a model can be edited: the sites by name, their taps and axes, and what a traced text has there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Kind, Network, StackKind, attention_name, keys_of, stack_of
from regard.text import Encoding
from regard.tracing.record import Numbers, Selector, Trace, numbers_of
from regard.tracing.run import seen_at

SiteName = Literal[
    "weights", "scores", "q", "k", "v", "context", "head", "attention", "middle", "neuron", "ffn", "residual"
]
"""What can be edited in every layer; "head" is another name of "context"."""

Axis = Literal["head", "query", "key", "neuron"]

Layer = int | Literal["input"] | None
"""A layer's number; of the residual stream as in `trace.embedding`; None of a tap that is in no layer."""

Layers = Numbers | str | list[int | str]
"""Some layers, as `Numbers`; of the residual stream also "input", alone or in a list."""

Positions = Selector | None
"""Some tokens, as in `Trace.weights`; None is all."""

Captured = tuple[Trace, Mapping[str, Tensor]]
"""A traced text, with what it has at some taps, without the batch."""


@dataclass(frozen=True)
class Site:
    """A kind of tensor that every layer has, or a single tap."""

    name: str
    axes: tuple[Axis, ...]  # that can be chosen from, in order, after the batch; "head" of k and v is theirs
    tap: str | None = None  # its name inside the layer; None where `taps` gives it
    of_attention: bool = True  # whether it belongs to an attention, so that "cross" has it too

    @property
    def is_matrix(self) -> bool:
        """Whether it has queries and keys, and no vectors."""
        return {"query", "key"} <= set(self.axes)

    def kinds(self, network: Network) -> tuple[Kind, ...]:
        """The kinds of attention, or of stack, that have it."""
        kinds: list[Kind] = list(network.prefixes)
        if self.of_attention and any(".cross_attention." in name for name in network.tap_names()):
            kinds.append("cross")
        return tuple(kinds)

    def taps(self, network: Network, kind: Kind) -> Mapping[Layer, str]:
        """The tap in each layer that has one; {} where the network has none."""
        prefix, depth = network.prefixes[stack_of(kind)], network.depth(stack_of(kind))
        names: dict[Layer, str]
        if self.name == "residual":
            names = {0: f"{prefix}embeddings.tokens", "input": f"{prefix}layers.0.input"}
            names |= {layer: f"{prefix}layers.{layer}.input" for layer in range(1, depth)}
            names[depth] = f"{prefix}output"
        else:
            inside = f"{attention_name(kind)}." if self.of_attention else ""
            names = {layer: f"{prefix}layers.{layer}.{inside}{self.tap}" for layer in range(depth)}
        known = frozenset(network.tap_names())
        return {layer: name for layer, name in names.items() if name in known}

    def kind(self, kind: Kind | None, network: Network) -> Kind:
        """The kind that is meant."""
        kinds = self.kinds(network)
        if kind is None and len(kinds) == 1:
            return kinds[0]
        if kind is None or kind not in kinds:
            listed = " or ".join(f'"{each}"' for each in kinds)
            raise InputError(f"kind must be {listed}, of which this model has {self.name}; got {kind!r}.")
        return kind


def stack_along(kind: Kind, axis: str) -> StackKind:
    """The stack whose tokens stand along an axis of a kind of attention."""
    return keys_of(kind) if axis == "key" else stack_of(kind)


_CONTEXT = Site("context", ("head", "query"), "context")

SITES: Mapping[str, Site] = {
    "weights": Site("weights", ("head", "query", "key"), "weights"),
    "scores": Site("scores", ("head", "query", "key"), "scores"),
    "q": Site("q", ("head", "query"), "q"),
    "k": Site("k", ("head", "key"), "k"),
    "v": Site("v", ("head", "key"), "v"),
    "context": _CONTEXT,
    "head": _CONTEXT,
    "attention": Site("attention", ("query",), "output"),
    "middle": Site("middle", ("query",), "middle", of_attention=False),
    "neuron": Site("neuron", ("query", "neuron"), "ffn.hidden", of_attention=False),
    "ffn": Site("ffn", ("query",), "ffn.output", of_attention=False),
    "residual": Site("residual", ("query",), of_attention=False),
}
"""By name."""


def taps_of(site: Site, kind: Kind, network: Network, layer: Layers = None) -> Mapping[Layer, str]:
    """The taps of a site in the layers that are meant, at least one."""
    taps, is_stream = site.taps(network, kind), site.name == "residual"
    if layer is None:
        # All of the residual stream is what the layers read and hand on; 0 is the row of the table before.
        chosen = tuple(each for each in taps if each != 0 or not is_stream)
    else:
        count = network.depth(stack_of(kind)) + is_stream
        chosen = numbers_of("layer", layer, count, others=["input"] if is_stream else [])
    if not taps or not chosen:
        raise InputError(
            f"site {site.name!r} cannot be seen in this model: it has no such tap (model.network.tap_names() "
            "lists them). What enters and leaves every layer is site 'residual'."
        )
    for each in chosen:
        if each not in taps:  # of cross-attention, some of a decoder's layers may have none
            raise InputError(
                f"layer must be one that has {site.name!r}, of {', '.join(map(str, taps))}; got {each}."
            )
    return {each: taps[each] for each in chosen}


def at_tap(name: str, network: Network) -> tuple[Site, Kind, Layer]:
    """The site, kind and layer of a tap; one that belongs to no site is a site by itself, without axes."""
    if name not in network.tap_names():
        raise InputError(
            f"site must be one of {', '.join(SITES)}, or a tap of model.network.tap_names(); got {name!r}."
        )
    if name.endswith(".inputs"):
        raise InputError(f"site must be the tap of a tensor; {name!r} shows a record. Take its q, k or v.")
    for site in SITES.values():
        for kind in site.kinds(network):
            for layer, tap in site.taps(network, kind).items():
                if tap == name:
                    return site, kind, layer
    stacks = [stack for stack, prefix in network.prefixes.items() if name.startswith(prefix)]
    return Site(name, ()), (stacks or list(network.prefixes))[0], None


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


def _held(trace: Trace, site: Site, kind: Any, layer: Layer) -> Tensor | None:
    """What a trace itself has of a site, without the batch; None where it was not kept, or was converted."""
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
