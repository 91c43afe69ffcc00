"""What every edit has: a site by name, a choice within it, and what it makes of the tensor there."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from regard.core import Mask
from regard.core.arguments import check_fields
from regard.core.errors import InputError
from regard.models import Kind, Network, StackKind, attention_name, keys_of, stack_of
from regard.text import Encoding
from regard.tracing.record import Numbers, Selector, Trace, chosen_of, numbers_of, unique
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
        # Every stack has the site; cross-attention where the network has it.
        kinds: list[Kind] = list(network.prefixes)
        if self.of_attention and any(".cross_attention." in name for name in network.tap_names()):
            kinds.append("cross")
        return tuple(kinds)

    def taps(self, network: Network, kind: Kind) -> Mapping[Layer, str]:
        """The tap in each layer that has one; {} where the network has none."""
        prefix, depth = network.prefixes[stack_of(kind)], network.depth(stack_of(kind))
        names: dict[Layer, str]
        if self.name == "residual":
            # The row of the table is 0, what the first layer reads "input".
            names = {0: f"{prefix}embeddings.tokens", "input": f"{prefix}layers.0.input"}
            names |= {layer: f"{prefix}layers.{layer}.input" for layer in range(1, depth)}
            names[depth] = f"{prefix}output"
        else:
            inside = f"{attention_name(kind)}." if self.of_attention else ""
            names = {layer: f"{prefix}layers.{layer}.{inside}{self.tap}" for layer in range(depth)}
        known = frozenset(network.tap_names())
        # Models of the lens may lack some.
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
    # "head" is what people call it, and the same tensor.
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
    for number in chosen:
        # Some layers of a decoder may have no cross-attention.
        if number not in taps:
            raise InputError(
                f"layer must be one that has {site.name!r}, of {', '.join(map(str, taps))}; got {number}."
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
    # A tap by name may be one of a site, which then can be chosen from.
    for site in SITES.values():
        for kind in site.kinds(network):
            for layer, tap in site.taps(network, kind).items():
                if tap == name:
                    return site, kind, layer
    stacks = [stack for stack, prefix in network.prefixes.items() if name.startswith(prefix)]
    # Another tap is changed as a whole.
    return Site(name, ()), (stacks or list(network.prefixes))[0], None


def captured(trace: Trace, taps: Iterable[tuple[Site, Any, Layer, str]]) -> Captured:
    """What a traced text has at some taps: as the trace holds it, the rest from one more run of its model."""
    # What the trace holds need not be computed again.
    held = {tap: _held(trace, site, kind, layer) for site, kind, layer, tap in taps}
    kept = {tap: value for tap, value in held.items() if value is not None}
    left = [tap for tap in held if tap not in kept]
    if left:
        with torch.no_grad():
            _, seen = seen_at(left, trace, trace.require_model().network)
        # Without the batch, of one text.
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
            # A trace in another type than the model's would not be exact.
            return trace.attention_of(layer, kind).context if kept.dtype is None else None
        if site.name == "residual":
            traced = trace.stack(kind)
            return traced.embeddings(layer) if traced.keeping.dtype is None else None  # type: ignore[arg-type]
    except InputError:  # of a part that was not kept, or of another model
        return None
    return None


Chosen = Mapping[Axis, tuple[int, ...] | None]
"""For each axis of a site the numbers chosen, or None for all."""


@dataclass(frozen=True, eq=False, repr=False)
class Edit(ABC):
    """A change of what a model computes: see `regard.Model.edited`.

    Args:
        site: what is changed, each (batch, ...):
            "weights" (heads, queries, keys), after the softmax. They are used as written, so a row need not
            sum to one;
            "scores", of the same shape: the argument of the softmax, -inf where the mask forbids. After an
            edit there, rows of weights still sum to one;
            "q", "k", "v" (heads, positions, dim), as they enter the scores, after rotation and norms. The
            heads of k and v are key and value heads, which are fewer if heads are grouped;
            "context", also called "head" (heads, queries, v_dim): a head's weighted sum of values, before
            the heads are joined;
            "attention" (queries, d_model): the output of the joined heads, which is added to the residual
            stream (before a norm that follows);
            "middle" (queries, d_model): the residual stream between attention and feed-forward network;
            "neuron" (positions, d_ff): inside the feed-forward network, after its activation;
            "ffn" (positions, d_model): the feed-forward network's output;
            "residual" (positions, d_model): layers as in `trace.embedding`, see below;
            or the name of a tap, such as "layers.3.ffn.hidden" or "logits"; then `layer` and `kind` stay
            None.
        layer: a number from 0, negative from the end, a slice, a list; None is all. In the residual stream 0
            is the row of the table of learned embeddings, "input" the input of layer 0, i >= 1 the output of
            layer i - 1, and L, or -1, the output after the last norm; None is "input" and 1 to L.
        head, neuron: a number, a slice, a list; None is all.
        query: the rows, which are tokens: a position, a slice, a list of positions, or a word of the text
            ("bank", "bank#2"), which means all its pieces; None is all.
        key: columns of weights and scores, or positions of k and v. A sink is not a key and stays.
        kind: "encoder", "decoder", or for attention "cross"; needed only where there are several.

    Raises:
        InputError: a choice that the site does not have.
    """

    site: SiteName | str
    _: KW_ONLY
    layer: Layers = None
    head: Numbers = None
    query: Positions = None
    key: Positions = None
    neuron: Numbers = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.site, str):
            raise InputError(f"site must be a name, one of {', '.join(SITES)}; got {self.site!r}.")
        # Names of taps are checked when the network is known.
        if self.site in SITES:
            self.check_choice(SITES[self.site])

    def __repr__(self) -> str:
        names = [field.name for field in fields(Edit) if field.name != "site"]
        given = [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) is not None]
        return f"{type(self).__name__}({', '.join([repr(self.site), *given])})"

    def check_choice(self, site: Site) -> None:
        """Raise InputError if something is chosen along an axis that the site does not have."""
        for name in ("head", "query", "key", "neuron"):
            if getattr(self, name) is not None and name not in site.axes:
                chosen = " and ".join(site.axes) or "nothing"
                raise InputError(f"{name} must be None at {self.site!r}, where {chosen} can be chosen.")

    def traces(self) -> Sequence[Trace]:
        """The traces of whose texts this edit puts something in."""
        return ()

    def lies_at_positions(self, site: Site) -> bool:
        """Whether what is put in differs from position to position."""
        del site
        return bool(self.traces())

    @abstractmethod
    def change(self, part: "Part") -> Tensor:
        """What takes the place of `part.x`, of its dtype, on its device, and of a shape that broadcasts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """What a pass reads."""

    encodings: Mapping[StackKind, Encoding]  # of each stack's text; none of a batch of ids
    lengths: Mapping[StackKind, int]  # tokens of each stack, where known
    masks: Mapping[StackKind, Mask | None]  # what the caller says of each stack's tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """One tap that an edit writes."""

    edit: Edit
    site: Site
    kind: Kind
    layer: Layer
    tap: str
    sources: tuple[Captured, ...] = ()  # of each of `edit.traces()`, its tensor at the same tap
    row: int | None = None  # of the batch; None for all

    @property
    def is_bound(self) -> bool:
        """Whether it means certain positions, so that it fits texts of some lengths or words alone."""
        # Chosen tokens, or another text's positions.
        chosen = self.edit.query is not None or self.edit.key is not None
        return chosen or self.edit.lies_at_positions(self.site)

    def __str__(self) -> str:
        return self.tap if not self.site.axes else f"{self.kind} {self.site.name} of layer {self.layer}"


class Part:
    """What an edit is given at one tap, in one pass.

    Args:
        target: which tap.
        whole: the tensor there.
        texts: what the pass reads.

    Attributes:
        x: the part of it that is chosen; all of it, itself, where all is.
        chosen: along each axis.
    """

    def __init__(self, target: Target, whole: Tensor, texts: Texts) -> None:
        self.target, self.whole, self.texts = target, whole, texts
        # After the batch axis, one axis after the other.
        self.chosen: Chosen = {
            axis: self._along(axis, whole.shape[dim]) for dim, axis in enumerate(target.site.axes, start=1)
        }
        x = whole
        for dim, numbers in enumerate(self.chosen.values(), start=1):
            x = picked(x, dim, numbers)
        self.x = x

    def _along(self, axis: Axis, size: int) -> tuple[int, ...] | None:
        asked, site = getattr(self.target.edit, axis), self.target.site
        if axis in ("head", "neuron"):
            # Heads and neurons by number; None takes all.
            return None if asked is None else numbers_of(axis, asked, size)
        stack = stack_along(self.target.kind, axis)
        count = size
        # A sink is a column more, and no key.
        if axis == "key" and site.is_matrix:
            count = self.whole.shape[-2] if self.target.kind != "cross" else self.texts.lengths[stack]
            # All keys, and not the sink.
            if asked is None and count < size:
                return tuple(range(count))
        if asked is None:
            return None
        return unique(axis, asked, chosen_of(axis, self.texts.encodings.get(stack, count), asked), count)

    def with_changed(self, part: Tensor) -> Tensor:
        """The whole tensor with another part in its place; the tensor itself is left as it is."""
        # Behind the last axis with a choice all is taken, which needs no index.
        last = max((dim for dim, some in enumerate(self.chosen.values(), 1) if some is not None), default=0)
        if last == 0:
            # Nothing was chosen: the part is the whole.
            return part
        index = []
        for dim, numbers in enumerate([None, *self.chosen.values()][: last + 1]):
            along = range(self.whole.shape[dim]) if numbers is None else numbers
            # Indices that broadcast against each other: one axis each.
            index.append(torch.tensor(along, device=self.whole.device).reshape(-1, *[1] * (last - dim)))
        return self.whole.index_put(tuple(index), part)

    def fitting(self, name: str, value: object, *, exactly: bool = False) -> Tensor:
        """The value, checked: a tensor that can take the part's place; `name` is what messages call it.

        `exactly`: of the part's shape without the batch, and not of one that broadcasts to it.
        """
        target, x = self.target, self.x
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a tensor for {target}; got {type(value).__name__}.")
        # Without the batch.
        if not (value.shape == x.shape[1:] if exactly else _broadcasts(value.shape, x.shape)):
            axes = [*target.site.axes, *["dim"] * (x.ndim - 1 - len(target.site.axes))]
            raise InputError(
                f"{name} must have the shape of what it takes the place of in {target}, "
                f"({', '.join(axes)}) = {tuple(x.shape[1:])}{'' if exactly else ', or broadcast to it'}; got "
                f"{tuple(value.shape)}."
            )
        if value.dtype != x.dtype or value.device != x.device:
            raise InputError(
                f"{name} must be {x.dtype} on {x.device}, as {target} is; got {value.dtype} on "
                f"{value.device}. Convert it with value.to({str(x.device)!r}, {x.dtype})."
            )
        return value

    def taken(self, source: Captured, query: Positions, key: Positions, name: str | None = None) -> Tensor:
        """What another run has at the same tap: the same heads and neurons, the tokens chosen, no batch.

        Messages call the argument that chose the tokens `name`, where that is not "query" or "key".
        """
        site, kind = self.target.site, self.target.kind
        trace, tensors = source
        encodings, value = encodings_of(trace), tensors[self.target.tap].to(self.x.device)
        for dim, axis in enumerate(site.axes):
            numbers = self.chosen[axis]
            # The same heads and neurons as here.
            if axis in ("head", "neuron"):
                if numbers is not None and max(numbers) >= value.shape[dim]:
                    raise InputError(f"{axis} must be one of the {value.shape[dim]} of the trace's model.")
            else:
                encoding = encodings.get(stack_along(kind, axis))
                if encoding is None:
                    raise InputError(
                        f"the trace must be of a model with kind {kind!r}, as the edited one is; it has "
                        f"{' and '.join(encodings)}."
                    )
                asked, said = key if axis == "key" else query, name or axis
                # None chooses all tokens, without a sink.
                chosen = chosen_of(said, encoding, asked)
                numbers = unique(said, asked, chosen, len(encoding.tokens))
            value = picked(value, dim, numbers)
        return value


def picked(value: Tensor, dim: int, numbers: tuple[int, ...] | None) -> Tensor:
    """The tensor at some numbers along an axis; itself where that is None."""
    return value if numbers is None else value.index_select(dim, torch.tensor(numbers, device=value.device))


def _broadcasts(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    # From the last axis to the first, as broadcasting compares them.
    back = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(one in (1, other) for one, other in back)
