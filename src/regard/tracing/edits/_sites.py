"""Where a model can be edited: the sites by name, the tap that each is, and what its axes are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Kind, Network, attention_name, stack_of

SiteName = Literal[
    "weights",
    "scores",
    "q",
    "k",
    "v",
    "context",
    "head",
    "attention",
    "ffn",
    "residual",
    "embeddings",
]
"""What can be edited; "head" is another name of "context"."""

Axis = Literal["head", "query", "key"]


@dataclass(frozen=True)
class Site:
    """A kind of tensor that every layer has, or (embeddings) a stack.

    Args:
        name: what it is called.
        axes: those that can be chosen from, in order, after the batch; "head" are the heads of k and v there.
        tap: the name of its tap, inside the layer; None where `points` says it.
        of_attention: whether it belongs to one of the layer's attentions, so that "cross" has it too.
        is_matrix: (queries, keys), and no vectors.
    """

    name: str
    axes: tuple[Axis, ...]
    tap: str | None
    of_attention: bool = True
    is_matrix: bool = False

    def kinds(self, network: Network) -> tuple[Kind, ...]:
        """The kinds of attention, or of stack, that have it."""
        kinds: list[Kind] = list(network.prefixes)
        if self.of_attention and any(".cross_attention." in name for name in network.tap_names()):
            kinds.append("cross")
        return tuple(kinds)

    def points(self, network: Network, kind: Kind) -> Mapping[int | None, str]:
        """The taps, by layer; () where the network has none.

        Of the residual stream, number l is what enters layer l, and the last is the stack's output, as
        embedding layers count. The embeddings have no layer.
        """
        stack = stack_of(kind)
        prefix, depth = network.prefixes[stack], network.depth(stack)
        names: dict[int | None, str]
        if self.name == "embeddings":
            names = {None: f"{prefix}embeddings.tokens"}
        elif self.name == "residual":
            names = {layer: f"{prefix}layers.{layer}.input" for layer in range(depth)}
            names[depth] = f"{prefix}output"
        else:
            inside = f"{attention_name(kind)}." if self.of_attention else ""
            names = {layer: f"{prefix}layers.{layer}.{inside}{self.tap}" for layer in range(depth)}
        known = frozenset(network.tap_names())
        return {layer: name for layer, name in names.items() if name in known}

    def check_finite(self, name: str, value: Tensor) -> None:
        """Refuse what can only end in a NaN; a score may be -inf, a pair that is not seen.

        Raises:
            InputError: NaN or infinity.
        """
        is_fit = value.isfinite()
        if self.name == "scores":
            is_fit = is_fit | (value == -torch.inf)
        if not bool(is_fit.all()):
            wanted = "finite, or -inf where a pair is not to be seen" if self.name == "scores" else "finite"
            raise InputError(f"{name} must be {wanted}; got {float(value[~is_fit][0])} for {self.name!r}.")


_CONTEXT = Site("context", ("head", "query"), "context")

SITES: Mapping[str, Site] = {
    "weights": Site("weights", ("head", "query", "key"), "weights", is_matrix=True),
    "scores": Site("scores", ("head", "query", "key"), "scores", is_matrix=True),
    "q": Site("q", ("head", "query"), "q"),
    "k": Site("k", ("head", "key"), "k"),
    "v": Site("v", ("head", "key"), "v"),
    "context": _CONTEXT,
    "head": _CONTEXT,
    "attention": Site("attention", ("query",), "output"),
    "ffn": Site("ffn", ("query",), "ffn.output", of_attention=False),
    "residual": Site("residual", ("query",), None, of_attention=False),
    "embeddings": Site("embeddings", ("query",), None, of_attention=False),
}
"""By name."""


def site_named(name: object) -> Site:
    """The site of that name.

    Raises:
        InputError: there is none.
    """
    if not isinstance(name, str) or name not in SITES:
        raise InputError(f"site must be one of {', '.join(SITES)}; got {name!r}.")
    return SITES[name]


def kind_of(site: Site, kind: Kind | None, network: Network) -> Kind:
    """The kind that is meant.

    Raises:
        InputError: the network has none of that kind, or several and none is said.
    """
    kinds = site.kinds(network)
    if kind is None and len(kinds) == 1:
        return kinds[0]
    if kind is None or kind not in kinds:
        listed = " or ".join(f'"{each}"' for each in kinds)
        raise InputError(f"kind must be {listed}, of which this model has {site.name}; got {kind!r}.")
    return kind


def points_of(site: Site, kind: Kind, network: Network) -> Mapping[int | None, str]:
    """The taps of a site, by layer, at least one.

    Raises:
        InputError: this network has none, such as "ffn" through the lens.
    """
    points = site.points(network, kind)
    if not points:
        raise InputError(
            f"site {site.name!r} cannot be seen in this model: it has no such tap (model.network.tap_names() "
            "lists them). What enters and leaves every layer is site 'residual'."
        )
    return points
