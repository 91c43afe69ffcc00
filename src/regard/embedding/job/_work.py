"""What a job asks of the model: a few rows' columns for a few texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any] | Sequence[str]
"""Values for n rows: numbers (n,), vectors (n, width), or n strings."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """What was computed of some texts.

    Args:
        rows: (n,), for each row of the result which of the texts it is of; ascending.
        columns: for each column of the work's sample, by name and in the same order, n values.
        rejected: by place, why a text has no row.
        counts: whole numbers that the manifest adds up, such as tokens.
    """

    rows: NDArray[np.int64]
    columns: Mapping[str, Column]
    rejected: Mapping[int, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


class Work(Protocol):
    """From texts to columns. The same texts give the same bytes, whatever was computed before."""

    @property
    def settled(self) -> Mapping[str, Any]:
        """All that the bytes depend on, as JSON: it goes into the manifest, and is asked for on going on."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """What else the manifest is to say, as JSON, such as the model's name; it may change."""
        ...

    @property
    def sample(self) -> Mapping[str, Column]:
        """The result's columns, by name: as of a `Piece`, of any text."""
        ...

    @property
    def threads(self) -> int:
        """How many cores it takes. The bytes do not depend on it."""
        ...

    @property
    def characters(self) -> int:
        """How many bytes of text are embedded at a time, about: the memory that is taken follows from it."""
        ...

    def embed(self, texts: Sequence[str]) -> Piece:
        """The columns of some texts, which are Unicode and not blank."""
        ...
