"""What an embedder gives: vectors, where they belong, and what became of each text."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from regard.core.extras import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]


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
        computed: what the vectors were computed in, and what that cost.
    """

    tokens: NDArray[np.int64]
    windows: NDArray[np.int64]
    cut: NDArray[np.int64]
    without_vector: NDArray[np.int64]
    computed: Computed

    @classmethod
    def joined(cls, reports: "list[Report]") -> Self:
        """Reports of texts that follow each other, at least one."""
        none = np.zeros(0, dtype=np.int64)
        names = ("tokens", "windows", "cut", "without_vector")
        arrays = {name: np.concatenate([none, *(getattr(each, name) for each in reports)]) for name in names}
        return cls(**arrays, computed=reports[0].computed)

    def __repr__(self) -> str:
        return (
            f"Report({len(self.tokens)} texts, {int(self.tokens.sum())} tokens, "
            f"{int((self.windows > 1).sum())} in windows, {int((self.cut > 0).sum())} cut, "
            f"{int(self.without_vector.sum())} words without a vector; computed in {self.computed})"
        )


class SentenceVectors(np.ndarray[Any, np.dtype[Any]]):
    """A numpy array (texts, [layers,] d) that knows what became of the texts.

    Attributes:
        report: see `Report`; None on whatever is made of the array, such as a part of it.
    """

    report: Report | None

    @classmethod
    def of(cls, vectors: NDArray[Any], report: Report) -> Self:
        """The array, seen with its report."""
        seen = vectors.view(cls)
        seen.report = report
        return seen

    def __array_finalize__(self, parent: object) -> None:
        # Rows of a part are not those of the whole: no report rather than a wrong one.
        self.report = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Embeddings:
    """Vectors of words or tokens, in the order of the texts.

    Attributes:
        vectors: (n, [layers,] d).
        rows: int64 (n,), which text each is of.
        spans: int64 (n, 2), its start and end in code points of that text.
        texts: the word, or the piece, as it stands in the text.
        report: what became of each text.
        layers: the embedding layers of the second axis; None where there is no such axis.
        scales: of storage "int8": float32 (n[, layers]), see `Packed`; else None.
    """

    vectors: NDArray[Any]
    rows: NDArray[np.int64]
    spans: NDArray[np.int64]
    texts: list[str]
    report: Report
    layers: tuple[int, ...] | None = None
    scales: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.vectors.shape)
        return f"Embeddings({shape} {self.vectors.dtype}, of {len(self.report.tokens)} texts)"

    @classmethod
    def joined(cls, parts: "list[Embeddings]") -> Self:
        """Embeddings of texts that follow each other, at least one."""
        before = np.cumsum([0, *(len(part.report.tokens) for part in parts)])
        scales = [part.scales for part in parts if part.scales is not None]
        return cls(
            vectors=np.concatenate([part.vectors for part in parts]),
            rows=np.concatenate([part.rows + first for part, first in zip(parts, before, strict=False)]),
            spans=np.concatenate([part.spans for part in parts]),
            texts=[text for part in parts for text in part.texts],
            report=Report.joined([part.report for part in parts]),
            layers=parts[0].layers,
            scales=np.concatenate(scales) if scales else None,
        )

    def of(self, row: int) -> "Embeddings":
        """Those of one text.

        Raises:
            IndexError: there is no such text.
        """
        count = len(self.report.tokens)
        if not -count <= row < count:
            raise IndexError(f"row must be from {-count} to {count - 1}; got {row}.")
        row %= count
        start, stop = np.searchsorted(self.rows, [row, row + 1])
        here = slice(start, stop)
        report = self.report
        return Embeddings(
            vectors=self.vectors[here],
            rows=self.rows[here],
            spans=self.spans[here],
            texts=self.texts[here],
            layers=self.layers,
            scales=None if self.scales is None else self.scales[here],
            report=Report(
                tokens=report.tokens[row : row + 1],
                windows=report.windows[row : row + 1],
                cut=report.cut[row : row + 1],
                without_vector=report.without_vector[row : row + 1],
                computed=report.computed,
            ),
        )

    def to_arrow(self) -> "pa.Table":
        """A table with a row for each: row, text, start, end, and vector (a list of fixed size).

        Several layers come as one column each, by the layer's number: vector_0, vector_4; scales likewise,
        scale or scale_4.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        pa, _ = pyarrow()
        columns: dict[str, Any] = {
            "row": pa.array(self.rows),
            "text": pa.array(self.texts, pa.string()),
            "start": pa.array(self.spans[:, 0]),
            "end": pa.array(self.spans[:, 1]),
        }
        for place, layer in enumerate([None] if self.layers is None else self.layers):
            suffix = "" if layer is None else f"_{layer}"
            values = self.vectors if layer is None else self.vectors[:, place]
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            columns[f"vector{suffix}"] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
            if self.scales is not None:
                scales = self.scales if layer is None else self.scales[:, place]
                columns[f"scale{suffix}"] = pa.array(np.ascontiguousarray(scales))
        return pa.table(columns)
