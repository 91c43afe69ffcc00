"""From what an edit names (layers, heads) to numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.core.errors import InputError
from regard.tracing.edits._sites import Layer, Site
from regard.tracing.record import Selector, counted, within

Numbers = int | slice | list[int] | tuple[int, ...] | range | None
"""Some heads or neurons: one, a slice, several; negative ones count from the end; None is all."""

Layers = Numbers | str | list[int | str]
"""Some layers, as `Numbers`; of the residual stream also "input", alone or in a list."""

Positions = Selector | None
"""Some tokens, as in `Trace.weights`; None is all."""


def numbers_of(name: str, value: object, count: int, *, others: Sequence[str] = ()) -> tuple[Any, ...]:
    """The numbers from 0 to count - 1 that are meant; each once, in the order given.

    Args:
        name: of the argument, for messages.
        value: see `Numbers`.
        count: how many there are.
        others: names that may stand for one.

    Raises:
        InputError: one that is not there, or none at all.
    """
    if value is None:
        return tuple(range(count))
    if isinstance(value, slice):
        return unique(name, value, within(name, value, count), count)
    given: Sequence[object] = value if isinstance(value, list | tuple | range) else [value]
    chosen: list[int | str] = []
    for each in given:
        index = each if isinstance(each, str) and each in others else counted(each, count)
        if index is None:
            named = "".join(f', or "{other}"' for other in others)
            raise InputError(
                f"{name} must be from 0 to {count - 1}{named}, or negative to count from the end, or a slice "
                f"or a list of these; got {each!r}."
            )
        chosen.append(index)
    return unique(name, value, tuple(chosen), count)


def layers_of(site: Site, layer: Layers, taps: Mapping[Layer, str]) -> tuple[Layer, ...]:
    """The layers that are meant; of cross-attention, some of a decoder's layers may have none.

    Raises:
        InputError: a layer that is not there, or does not have the site.
    """
    is_stream = site.name == "residual"
    if layer is None:
        # All of the residual stream is what the layers read and hand on; 0 is the row of the table before.
        return tuple(each for each in taps if each != 0 or not is_stream)
    numbers = [number for number in taps if isinstance(number, int)]
    chosen = numbers_of("layer", layer, max(numbers) + 1, others=["input"] if is_stream else [])
    for each in chosen:
        if each not in taps:
            raise InputError(
                f"layer must be one that has {site.name!r}, of {', '.join(map(str, taps))}; got {each}."
            )
    return chosen


def unique(name: str, value: object, chosen: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """What was chosen, if it is at least one, each once; raises InputError."""
    if not chosen:
        raise InputError(f"{name} must pick at least one of {count}; {value!r} picks none.")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{name} must pick each one once; {value!r} picks one twice.")
    return chosen
