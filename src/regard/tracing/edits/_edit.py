"""What every edit has: a site, a place, and what takes the place of what is there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.edits._capture import Captured
from regard.tracing.edits._places import Numbers, Place, Positions, positions_of
from regard.tracing.edits._sites import Site, SiteName, site_named
from regard.tracing.record import Trace

Write = Callable[[Tensor, Tensor], Tensor]
"""From the tensor at a tap and the chosen part of it to what takes the part's place; writes to neither."""


@dataclass(frozen=True, eq=False)
class Edit(ABC):
    """A change of what a model computes, at one kind of place: see `regard.Model.edit`.

    Args:
        site: what is changed:
            "weights" (heads, queries, keys), after the softmax. They are used as they are written: a row need
            not sum to one any more;
            "scores", of the same shape: the softmax's exact argument, -inf where the mask forbids. After an
            edit there, rows of weights still sum to one;
            "q", "k", "v" (heads, positions, dim), as they enter the scores, after rotation and norms. The
            heads of k and v are key and value heads, which are fewer where heads are grouped;
            "context", also called "head" (heads, queries, v_dim): what a head makes of the values, before the
            heads are joined;
            "attention" (queries, d_model): what the joined heads add to the residual stream (before a
            norm that follows);
            "ffn" (positions, d_model): the feed-forward layer's output; the lens does not see it;
            "residual" (positions, d_model): number l is what enters layer l, and number L the stack's output,
            after its last norm, as embedding layers count;
            "embeddings" (positions, d): the rows of the table of learned embeddings; it has no layer.
        layer, head: which ones: a number from 0, negative from the end, a slice, a list; None is all.
        query: which rows: tokens whose vectors these are, or that attend; a position, a slice, a list of
            positions, or a word of the text ("bank", "bank#2"), which all its pieces stand for; None is all.
        key: which columns of weights and scores, or positions of k and v. A sink is no key and stays.
        kind: "encoder", "decoder", or for attention "cross"; needed only where there are several.

    Raises:
        InputError: an unknown site, or a choice that the site does not have.
    """

    site: SiteName
    _: KW_ONLY
    layer: Numbers = None
    head: Numbers = None
    query: Positions = None
    key: Positions = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        axes = self.where.axes
        for name in ("head", "query", "key"):
            if getattr(self, name) is not None and name not in axes:
                others = [axis for axis in axes if axis != "head" and name != "head"]
                way_out = f"; its positions are chosen by {others[0]}=" if others else ""
                raise InputError(f"{name} must be None at site {self.site!r}, which has none{way_out}.")
        if self.layer is not None and self.site == "embeddings":
            raise InputError("layer must be None at site 'embeddings', which is before all layers.")

    @property
    def where(self) -> Site:
        """The site, with its axes."""
        return site_named(self.site)

    def traces(self) -> Sequence[Trace]:
        """The traces on whose texts the traced model is run for what this edit puts in."""
        return ()

    @abstractmethod
    def writer(self, place: Place, sources: Sequence[Captured]) -> Write:
        """What computes the part that takes the place; whatever does not fit is refused here.

        Args:
            place: where.
            sources: of each of `traces()`, what its model computed at the same tap.
        """


def fitting(name: str, value: Tensor, place: Place) -> Tensor:
    """A tensor that takes the place, or the last axes of it.

    Raises:
        InputError: another shape, dtype or device, or numbers that are not finite.
    """
    # Without the batch, or with it.
    wanted = place.shape if value.ndim == len(place.shape) else place.shape[1:]
    fits = value.ndim > 0 and tuple(value.shape) == wanted[len(wanted) - value.ndim :]
    if not fits:
        axes = (*place.site.axes, *(() if place.site.is_matrix else ("dim",)))
        raise InputError(
            f"{name} must have the shape of what it takes the place of in {place}, "
            f"({', '.join(axes)}) = {place.shape[1:]}, or of its last axes; got {tuple(value.shape)}."
        )
    if value.dtype != place.dtype or value.device != place.device:
        raise InputError(
            f"{name} must be {place.dtype} on {place.device}, as {place} is; got {value.dtype} on "
            f"{value.device}. Convert it with value.to({str(place.device)!r}, {place.dtype})."
        )
    place.site.check_finite(name, value)
    return value


def taken(source: Captured, place: Place, chosen: Mapping[str, Positions], name: str | None = None) -> Tensor:
    """Of what another run computed at the same tap, the same heads and the tokens chosen there: no batch.

    Args:
        source: the run.
        place: where it goes.
        chosen: for "query" and "key" the tokens.
        name: of the argument that chooses, where it is neither of these.

    Raises:
        InputError: a word or position that is not in that text.
    """
    value = source.tensors[place.point].to(place.device)
    for dim, axis in enumerate(place.site.axes):
        if axis == "head":
            numbers = place.chosen["head"]
            if numbers is not None and max(numbers) >= value.shape[dim]:
                raise InputError(f"head must be one of the {value.shape[dim]} that the trace's model has.")
        else:
            encoding = source.side(place.kind, axis)
            numbers = positions_of(name or axis, chosen[axis], encoding)
            if numbers is None and axis == "key" and place.site.is_matrix:
                numbers = tuple(range(len(encoding.tokens)))  # a sink is no key
        if numbers is not None:
            value = value.index_select(dim, torch.tensor(numbers, device=value.device))
    return value
