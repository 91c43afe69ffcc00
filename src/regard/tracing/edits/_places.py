"""From what an edit names (layers, heads, words) to numbers, each checked before the model runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import Mask
from regard.core.errors import InputError
from regard.models import Kind
from regard.text import Encoding
from regard.tracing.edits._sites import Axis, Site
from regard.tracing.record import Selector, counted, token_of, within

Numbers = int | slice | list[int] | tuple[int, ...] | range | None
"""Some layers or heads: one, a slice, several; negative ones count from the end; None is all."""

Positions = Selector | list[int] | tuple[int, ...] | range | None
"""Some tokens: an index, a slice, a word of the text ("bank", "bank#2"), or several indexes; None is all."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A tensor that an edit writes, and which part of it.

    Args:
        site, kind, layer: which one.
        point: its tap.
        chosen: for each of the site's axes the numbers chosen, or None for all.
        shape: of the part, the batch first.
        dtype, device: of the tensor.
        mask: what the caller says of the tokens along the last axis that has some: which are padding.
    """

    site: Site
    kind: Kind
    layer: int | None
    point: str
    chosen: Mapping[Axis, tuple[int, ...] | None]
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    mask: Mask | None = None

    def part(self, value: Tensor) -> Tensor:
        """The part of a tensor, the batch first, that is chosen; a view of all where all is."""
        for dim, axis in enumerate(self.site.axes, start=1):
            numbers = self.chosen[axis]
            if numbers is not None:
                value = value.index_select(dim, torch.tensor(numbers, device=value.device))
        return value

    def put(self, value: Tensor, part: Tensor) -> Tensor:
        """The tensor with another part in its place; the tensor itself is left as it is."""
        some = [dim for dim, axis in enumerate(self.site.axes, 1) if self.chosen[axis] is not None]
        last = max(some, default=0)
        if last == 0:
            return part
        index = []
        for dim in range(last + 1):
            numbers = None if dim == 0 else self.chosen[self.site.axes[dim - 1]]
            size = value.shape[dim]
            along = torch.tensor(range(size) if numbers is None else numbers, device=value.device)
            index.append(along.reshape(-1, *[1] * (last - dim)))
        return value.index_put(tuple(index), part)

    def __str__(self) -> str:
        layer = "" if self.layer is None else f" of layer {self.layer}"
        return f"{self.kind} {self.site.name}{layer}"


def numbers_of(name: str, value: Numbers, count: int) -> tuple[int, ...]:
    """The layers or heads from 0 to count - 1 that are meant; each once, in the order given.

    Raises:
        InputError: one that is not there, or none at all.
    """
    if value is None:
        return tuple(range(count))
    if isinstance(value, slice):
        chosen = within(name, value, count)
    else:
        given: Sequence[object] = [value] if not isinstance(value, list | tuple | range) else value
        found = [counted(each, count) for each in given]
        for each, index in zip(given, found, strict=True):
            if index is None:
                raise InputError(
                    f"{name} must be from 0 to {count - 1}, or negative to count from the end, or a slice or "
                    f"a list of these; got {each!r}."
                )
        chosen = tuple(index for index in found if index is not None)
    return _some(name, value, chosen, count)


def layers_of(site: Site, layer: Numbers, points: Mapping[int | None, str]) -> tuple[int | None, ...]:
    """The layers that are meant; of cross-attention, some of a decoder's layers may have none.

    Raises:
        InputError: a layer that is not there, or does not have the site.
    """
    if layer is None:
        return tuple(points)
    numbers = [number for number in points if number is not None]
    chosen = numbers_of("layer", layer, max(numbers) + 1)
    for each in chosen:
        if each not in points:
            raise InputError(
                f"layer must be one that has {site.name!r}, of {', '.join(map(str, numbers))}; got {each}."
            )
    return chosen


def positions_of(name: str, value: Positions, encoding: Encoding) -> tuple[int, ...] | None:
    """The tokens that are meant; None for all.

    Raises:
        InputError: a position or word that is not there, or none at all.
    """
    if value is None:
        return None
    count = len(encoding.tokens)
    if isinstance(value, slice):
        chosen = within(name, value, count)
    elif isinstance(value, list | tuple | range):
        chosen = tuple(place for each in value for place in token_of(name, encoding, each))
    else:
        chosen = token_of(name, encoding, value)
    return _some(name, value, chosen, count)


def _some(name: str, value: object, chosen: tuple[int, ...], count: int) -> tuple[int, ...]:
    if not chosen:
        raise InputError(f"{name} must pick at least one of {count}; {value!r} picks none.")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{name} must pick each one once; {value!r} picks one twice.")
    return chosen
