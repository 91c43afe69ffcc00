"""What an embedder gives: vectors, where they belong, and what became of the texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from regard.core.displayable import Displayable, plain_table
from regard.core.extras import pyarrow
from regard.core.wording import excerpt

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    from rich.console import RenderableType


class Loss(NamedTuple):
    """What it costs to compute in fewer bits: cosines to float32, of tokens of a probe.

    Attributes:
        smallest_cosine: of all tokens and layers.
        mean_cosine: over them.
    """

    smallest_cosine: float
    mean_cosine: float

    def __str__(self) -> str:
        # Four digits would round a very small loss to none.
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
        >>> from regard.embedding import Computed, Loss
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
        zero: how many of its vectors are all zeros as they are stored: these have no direction, and so no
            cosine. (Vectors that are not finite are an error.)
        pooling: how tokens became a sentence's vector, or pieces a word's; () at the level "token".
        computed: what the vectors were computed in, and what that cost.
    """

    tokens: NDArray[np.int64]
    windows: NDArray[np.int64]
    cut: NDArray[np.int64]
    without_vector: NDArray[np.int64]
    unknown: NDArray[np.int64]
    zero: NDArray[np.int64]
    pooling: tuple[str, ...]
    computed: Computed

    @classmethod
    def joined(cls, reports: "list[Self]") -> Self:
        """Reports of texts that follow each other, at least one."""
        # All fields that are arrays over texts.
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(each, name) for each in reports]) for name in cls._of_texts()
        }
        return replace(reports[0], **arrays)

    @classmethod
    def _of_texts(cls) -> list[str]:
        return [each.name for each in fields(cls) if each.name not in ("pooling", "computed")]

    def __repr__(self) -> str:
        return (
            f"Report({len(self.tokens)} texts, {int(self.tokens.sum())} tokens, "
            f"{int((self.windows > 1).sum())} in windows, {int((self.cut > 0).sum())} cut, "
            f"{int(self.without_vector.sum())} words without a vector, {int(self.unknown.sum())} unknown, "
            f"{int(self.zero.sum())} vectors zero; {_pooled(self)}computed in {self.computed})"
        )

    def of(self, row: int) -> Self:
        """The report of one text."""
        return replace(self, **{name: getattr(self, name)[row : row + 1] for name in self._of_texts()})


def _pooled(report: Report) -> str:
    return f"pooled by {' and '.join(report.pooling)}, " if report.pooling else ""


# What is shown of them: so many vectors, and so many numbers of each.
_FIRST: Final = 10
_NUMBERS: Final = 4


class SentenceVectors(Displayable, np.ndarray[Any, np.dtype[Any]]):
    """A numpy array (texts, [layers,] d) that knows what became of the texts.

    It is an array in every way: `vectors @ vectors.T`, `np.asarray(vectors)`. What is made of it, such as a
    part, has None for all that follows, and shows itself as arrays do.

    Attributes:
        report: see `Report`.
        layers: the embedding layers of the second axis; None where there is no such axis.
        scales: of storage "int8": float32 (texts[, layers]), what the entries of each vector are multiplied
            by to get the float32 ones back; else None.

    Example:
        >>> import regard
        >>> vectors = regard.load().embed(["a river bank", "a bank account"])
        >>> print(vectors)  # doctest: +ELLIPSIS
        2 vectors of 384 numbers (float32), of 2 texts
        pooled by mean, computed in float32, exact
        ...
    """

    report: Report | None
    layers: tuple[int, ...] | None
    scales: NDArray[np.float32] | None

    @classmethod
    def of(
        cls,
        vectors: NDArray[Any],
        report: Report,
        *,
        layers: tuple[int, ...] | None = None,
        scales: NDArray[np.float32] | None = None,
    ) -> Self:
        """The array, seen with its report."""
        # The same memory, with attributes.
        seen = vectors.view(cls)
        seen.report, seen.layers, seen.scales = report, layers, scales
        return seen

    def __array_finalize__(self, parent: object) -> None:
        # Rows of a part are not those of the whole: no report rather than a wrong one.
        self.report = self.layers = self.scales = None

    def __repr__(self) -> str:
        if self.report is None:
            return super().__repr__()
        shape = " x ".join(str(size) for size in self.shape)
        return f"SentenceVectors({shape} {self.dtype}, of {len(self.report.tokens)} texts)"

    def __str__(self) -> str:
        return np.ndarray.__str__(self) if self.report is None else super().__str__()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>" if self.report is None else super()._repr_html_()

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each text: tokens, windows, cut, unknown, vector."""
        columns = self._columns()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_arrow(self) -> "pa.Table":
        """A table with a row for each text: tokens, windows, cut, unknown, and vector (a list of fixed
        size); see `Embeddings.to_arrow`.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        pa, _ = pyarrow()
        return pa.table({name: arrow(values) for name, values in self._columns().items()})

    def _columns(self) -> dict[str, NDArray[Any]]:
        names = () if self.report is None else ("tokens", "windows", "cut", "unknown")
        of_texts = {name: getattr(self.report, name) for name in names}
        return of_texts | dict(by_layer(np.asarray(self), self.scales, self.layers))

    def _parts(self) -> "Iterator[RenderableType]":
        assert self.report is not None, "else it is shown as an array"
        vectors = np.asarray(self)
        yield from _told(vectors, self.report)
        # The first layer stands for all.
        ((name, values), *_) = by_layer(vectors[:_FIRST], None, self.layers)
        rows = [
            (f"{row}", f"{self.report.tokens[row]}", _beginning(vector)) for row, vector in enumerate(values)
        ]
        yield from _table(("text", "tokens", name), rows, len(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class Embeddings(Displayable):
    """Vectors of words or tokens, in the order of the texts.

    Attributes:
        vectors: (n, [layers,] d).
        rows: int64 (n,), which text each is of.
        spans: int64 (n, 2), its start and end in code points of that text.
        texts: the word, or the piece, as it stands in the text. Words that a token joins are one.
        unknown: bool (n,), whether the vocabulary has no pieces for it: the model has read [UNK], as for all
            such words.
        report: what became of each text.
        layers: the embedding layers of the second axis; None where there is no such axis.
        scales: of storage "int8": float32 (n[, layers]), see `Packed`; else None.
    """

    vectors: NDArray[Any]
    rows: NDArray[np.int64]
    spans: NDArray[np.int64]
    texts: list[str]
    unknown: NDArray[np.bool_]
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
        # Rows count on from the parts before.
        before = np.cumsum([0, *(len(part.report.tokens) for part in parts)])
        scales = [part.scales for part in parts if part.scales is not None]
        return cls(
            vectors=np.concatenate([part.vectors for part in parts]),
            rows=np.concatenate([part.rows + first for part, first in zip(parts, before, strict=False)]),
            spans=np.concatenate([part.spans for part in parts]),
            texts=[text for part in parts for text in part.texts],
            unknown=np.concatenate([part.unknown for part in parts]),
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
        # `rows` never falls, so that a text's vectors lie together.
        start, stop = np.searchsorted(self.rows, [row, row + 1])
        here = slice(start, stop)
        return replace(
            self,
            vectors=self.vectors[here],
            rows=self.rows[here],
            spans=self.spans[here],
            texts=self.texts[here],
            unknown=self.unknown[here],
            scales=None if self.scales is None else self.scales[here],
            report=self.report.of(row),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each vector: row, text, start, end, unknown, vector."""
        vectors = list(by_layer(self.vectors, self.scales, self.layers))
        return [
            {"row": row, "text": text, "start": start, "end": end, "unknown": unknown}
            | {name: values[place] for name, values in vectors}
            for place, (row, text, (start, end), unknown) in enumerate(
                zip(self.rows.tolist(), self.texts, self.spans.tolist(), self.unknown.tolist(), strict=True)
            )
        ]

    def to_arrow(self) -> "pa.Table":
        """A table with a row for each: row, text, start, end, unknown, and vector (a list of fixed size).

        Several layers come as one column each, by the layer's number: vector_0, vector_4; scales likewise,
        scale or scale_4.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        pa, _ = pyarrow()
        columns = {
            "row": pa.array(self.rows),
            "text": pa.array(self.texts, pa.string()),
            "start": pa.array(self.spans[:, 0]),
            "end": pa.array(self.spans[:, 1]),
            "unknown": pa.array(self.unknown),
        }
        vectors = by_layer(self.vectors, self.scales, self.layers)
        return pa.table(columns | {name: arrow(values) for name, values in vectors})

    def _parts(self) -> "Iterator[RenderableType]":
        yield from _told(self.vectors, self.report)
        count, layers = _FIRST, self.layers
        ((name, values), *_) = by_layer(self.vectors[:count], None, layers)
        spans = zip(self.rows[:count], self.texts[:count], values, strict=True)
        rows = [(f"{row}", excerpt(text, 24), _beginning(vector)) for row, text, vector in spans]
        yield from _table(("row", "text", name), rows, len(self))


def by_layer(
    vectors: NDArray[Any], scales: NDArray[np.float32] | None, layers: tuple[int, ...] | None
) -> "Iterator[tuple[str, NDArray[Any]]]":
    """Vectors, and scales where there are any, of each layer, with the names of their columns."""
    for place, layer in enumerate([None] if layers is None else layers):
        suffix = "" if layer is None else f"_{layer}"
        # One column for each layer: tables have no third axis.
        yield f"vector{suffix}", vectors if layer is None else vectors[:, place]
        if scales is not None:
            yield f"scale{suffix}", scales if layer is None else scales[:, place]


def arrow(values: NDArray[Any]) -> Any:
    """Numbers (n,) as an Arrow array; vectors (n, width) as one of lists of fixed size."""
    pa, _ = pyarrow()
    # Without a copy where the numbers lie in order.
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1]) if values.ndim > 1 else flat


def _told(vectors: NDArray[Any], report: Report) -> "Iterator[RenderableType]":
    from rich.text import Text

    count, *layers, size = vectors.shape
    each = " x ".join(str(number) for number in (*layers, size))
    texts = len(report.tokens)
    yield Text(
        f"{count:,} vector{'s' * (count != 1)} of {each} numbers ({vectors.dtype}), "
        f"of {texts:,} text{'s' * (texts != 1)}"
    )
    yield Text(f"{_pooled(report)}computed in {report.computed}")
    if zero := int(report.zero.sum()):
        yield Text(f"{zero:,} vector{'s' * (zero != 1)} of zeros alone, with no direction")
    if unknown := int(report.unknown.sum()):
        yield Text(f"{unknown:,} word{'s' * (unknown != 1)} unknown to the model, which reads [UNK] for each")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], count: int) -> "Iterator[RenderableType]":
    from rich.text import Text

    if rows:
        yield Text()
        yield plain_table(columns, rows, left=len(columns))
    if count > len(rows):
        yield Text(f"and {count - len(rows):,} more")


def _beginning(vector: NDArray[Any]) -> str:
    """The first numbers of a vector."""
    is_float = np.issubdtype(vector.dtype, np.floating)
    told = [f"{number:8.4f}" if is_float else f"{number:4d}" for number in vector[:_NUMBERS]]
    return " ".join(told) + (" …" if len(vector) > _NUMBERS else "")
