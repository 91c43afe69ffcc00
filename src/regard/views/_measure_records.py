"""A measure as the page is given it: plain arrays, to be drawn in the place of the weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._layer_record import LayerRecord

_Floats = npt.NDArray[np.float32]

MeasureName = Literal["norm", "value_zeroing", "rollout", "gradient"]
"""A measure that a page can draw: what they are stands in `regard.tracing`, under these names."""

MEASURES: tuple[MeasureName, ...] = ("norm", "value_zeroing", "rollout", "gradient")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeasureRecord:
    """One measure of one kind of attention.

    Attributes:
        name: Which.
        layers: float32, for each layer in order. Of "norm" (heads, keys), the size of each transformed value,
            which a page multiplies its weights by; of "gradient" (heads, queries, keys); of the others, which
            are of whole layers, (1, queries, keys).
        of: What a gradient is of, in words; "" where it is of nothing.

    Raises:
        InputError: A name, a shape, a type or a number that cannot be drawn.

    Example:
        >>> MeasureRecord(name="rollout", layers=(np.eye(3, dtype=np.float32)[None],)).by
        'layer'
    """

    name: MeasureName
    layers: tuple[_Floats, ...]
    of: str = ""

    def __post_init__(self) -> None:
        if self.name not in MEASURES:
            raise InputError(f"name: wanted one of {', '.join(MEASURES)}, got {self.name!r}")
        axes = 2 if self.name == "norm" else 3
        for array in self.layers:
            if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != axes:
                got = f"{getattr(array, 'dtype', type(array).__name__)} of shape {np.shape(array)}"
                raise InputError(f"layers: wanted float32 arrays of {axes} axes for {self.name}, got {got}")
            if not np.isfinite(array).all():
                raise InputError(f"layers: wanted finite numbers of {self.name}, got others")

    @property
    def by(self) -> str:
        """Whether a head or only a layer has a matrix of its own."""
        return "head" if self.name in ("norm", "gradient") else "layer"

    def check(self, layers: Sequence[LayerRecord]) -> None:
        """Whether it fits the layers that it is of.

        Raises:
            InputError: It does not.
        """
        if len(self.layers) != len(layers):
            raise InputError(f"layers: wanted {self.name} of {len(layers)} layers, got {len(self.layers)}")
        for array, layer in zip(self.layers, layers, strict=True):
            heads = layer.heads if self.by == "head" else 1
            sizes = (layer.keys,) if self.name == "norm" else (layer.queries, layer.keys)
            if array.shape != (heads, *sizes):
                raise InputError(
                    f"layers: wanted {self.name} of layer {layer.layer} in shape {(heads, *sizes)}, "
                    f"got {array.shape}"
                )


def check_measures(names: Sequence[str]) -> list[MeasureName]:
    """The measures that are asked for, each once, in a fixed order.

    Raises:
        InputError: One that there is not.

    Example:
        >>> check_measures(["rollout", "norm", "rollout"])
        ['norm', 'rollout']
    """
    if isinstance(names, str) or not all(name in MEASURES for name in names):
        raise InputError(f"measures must be a list of {', '.join(MEASURES)}; got {names!r}.")
    return [name for name in MEASURES if name in names]
