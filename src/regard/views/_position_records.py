"""How a model knows positions, as a page is given it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RotaryRecord:
    """How q and k of a layer are turned by their positions.

    Attributes:
        frequencies: float32 (pairs,), radians a position: at distance n, pair i is turned by n * frequency i.
        layout: Which entries are a pair: "half" is (i, i + pairs), "interleaved" is (2 i, 2 i + 1).
        amplitude: The factor of the turned q and k beside; 1 for none.
    """

    frequencies: npt.NDArray[np.float32]
    layout: str
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        if self.frequencies.ndim != 1 or not self.frequencies.size:
            raise InputError(f"frequencies: wanted shape (pairs,), got {self.frequencies.shape}")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PositionsRecord:
    """How one stack knows positions.

    Attributes:
        said: In words, "learned (512)"; None where nothing is known of it.
        table: float32 (positions, d): what is added to the embedding at each position; None for nothing.
    """

    said: str | None = None
    table: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.table is not None and (self.table.ndim != 2 or 0 in self.table.shape):
            raise InputError(f"table: wanted shape (positions, d), got {self.table.shape}")
