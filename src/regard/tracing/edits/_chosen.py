"""From what an edit names (layers, heads) to numbers."""

from collections.abc import Mapping

from regard.core.errors import InputError
from regard.tracing.edits._sites import Layer, Site
from regard.tracing.record import Numbers, Selector, numbers_of

Layers = Numbers | str | list[int | str]
"""Some layers, as `Numbers`; of the residual stream also "input", alone or in a list."""

Positions = Selector | None
"""Some tokens, as in `Trace.weights`; None is all."""


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
