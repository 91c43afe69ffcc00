"""What an embedder tells beside the vectors: what became of each text, and what they were computed in."""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Loss(NamedTuple):
    """What it costs to compute in fewer bits: cosines to float32, of tokens of a probe.

    Attributes:
        smallest_cosine: of all tokens and layers.
        mean_cosine: over them.
    """

    smallest_cosine: float
    mean_cosine: float

    def __str__(self) -> str:
        digits = 4 if self.smallest_cosine < 0.9999 else 7
        return f"smallest cosine to float32 {self.smallest_cosine:.{digits}f}"


@dataclass(frozen=True, slots=True)
class Computed:
    """What vectors were computed in, and what that cost.

    Attributes:
        precision: "float32", "bfloat16", "int16" or "int8".
        loss: None of float32, which is exact to 1e-5, and where it was not measured, as `note` then says.
        note: anything else that a reader must know, such as why "fast" is float32.

    Example:
        >>> print(Computed("int8", Loss(0.99913, 0.99974)))
        int8, smallest cosine to float32 0.9991
        >>> print(Computed("float32"))
        float32, exact
    """

    precision: str
    loss: Loss | None = None
    note: str = ""

    def __str__(self) -> str:
        told = [self.precision]
        if self.loss is not None or self.precision == "float32":
            told.append(str(self.loss or "exact"))
        return ", ".join(told) + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """What became of each text, in the order of the texts; int64 (texts,) each.

    Attributes:
        tokens: how many it has, those of the template counted, before anything is cut off.
        windows: how many times a part of it was read: 1 where it fitted.
        cut: how many of its pieces `Truncate` left out.
        without_vector: level "word": how many of its words have none, since the tokenizer made nothing of
            them or they were cut off.
        unknown: how many of its words the model cannot tell from each other, since the vocabulary has no
            pieces for them: they are read as [UNK]. At the levels "sentence" and "token", how many pieces.
        computed: what the vectors were computed in, and what that cost.
    """

    tokens: NDArray[np.int64]
    windows: NDArray[np.int64]
    cut: NDArray[np.int64]
    without_vector: NDArray[np.int64]
    unknown: NDArray[np.int64]
    computed: Computed

    @classmethod
    def joined(cls, reports: "list[Report]") -> Self:
        """Reports of texts that follow each other, at least one."""
        none = np.zeros(0, dtype=np.int64)
        names = [each.name for each in fields(cls) if each.name != "computed"]
        arrays = {name: np.concatenate([none, *(getattr(each, name) for each in reports)]) for name in names}
        return cls(**arrays, computed=reports[0].computed)

    def __repr__(self) -> str:
        return (
            f"Report({len(self.tokens)} texts, {int(self.tokens.sum())} tokens, "
            f"{int((self.windows > 1).sum())} in windows, {int((self.cut > 0).sum())} cut, "
            f"{int(self.without_vector.sum())} words without a vector, {int(self.unknown.sum())} unknown; "
            f"computed in {self.computed})"
        )

    def of(self, row: int) -> Self:
        """The report of one text."""
        names = [each.name for each in fields(self) if each.name != "computed"]
        return replace(self, **{name: getattr(self, name)[row : row + 1] for name in names})
