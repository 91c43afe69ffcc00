"""One word in several sentences, layer by layer: the result, which shows itself, and its plot."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.printable import excerpt, printable
from regard.core.shown import Shown, plain_table
from regard.views import check_format, new_figure, write_figure

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of similarities that fit 80 characters beside the layer.
_PAIRS_A_TABLE = 7
# Columns of a text before it is cut, in a terminal and under a plot, and lines that a legend can name.
_MAX_TEXT = 200
_MAX_CAPTION = 120
_MAX_LEGEND = 15


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Shown):
    """How alike one word's vectors are between texts, at every embedding layer.

    Args:
        model: whose vectors.
        words: the word, for each text.
        texts: the texts.
        similarity: (L + 1, texts, texts), cosine from -1 to 1; layer 0 is the learned embedding, L the
            contextual one. NaN where a vector is zero.
    """

    model: str
    words: tuple[str, ...]
    texts: tuple[str, ...]
    similarity: np.ndarray

    def __repr__(self) -> str:
        words = " / ".join(dict.fromkeys(self.words))
        return f"Comparison({words!r} in {len(self.texts)} texts, {len(self.similarity)} embedding layers)"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every pair of texts, counted from 0."""
        return list(combinations(range(len(self.texts)), 2))

    def to_json(self) -> dict[str, Any]:
        """Every field under its name; `similarity` as nested lists, NaN as None."""
        numbers = self.similarity.astype(object)
        numbers[np.isnan(self.similarity)] = None
        return {
            "model": self.model,
            "words": list(self.words),
            "texts": list(self.texts),
            "similarity": numbers.tolist(),
        }

    @property
    def layers(self) -> tuple[str, ...]:
        """What each embedding layer is called: "0 learned", "1", ..., "6 contextual"."""
        last = len(self.similarity) - 1
        return ("0 learned", *map(str, range(1, last)), f"{last} contextual")

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a layer and pair of texts (counted from 1), with their cosine."""
        return [
            {"layer": layer, "text": a + 1, "other": b + 1, "cosine": float(matrix[a, b])}
            for layer, matrix in enumerate(self.similarity)
            for a, b in self.pairs
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(f"{printable(self.model)}: cosine similarity of the word's vectors", style="dim")
        for number, (word, text) in enumerate(zip(self.words, self.texts, strict=True), start=1):
            word, text = excerpt(word, 30), excerpt(text, _MAX_TEXT)
            yield Text.assemble((f"{number} ", "bold"), (word, "bold"), f"  {text}")
        pairs = self.pairs
        for start in range(0, len(pairs), _PAIRS_A_TABLE):
            shown = pairs[start : start + _PAIRS_A_TABLE]
            single = len(pairs) == 1
            cells = [
                [
                    name,
                    *(_cosine(float(matrix[a, b])) for a, b in shown),
                    *([_bar(matrix[shown[0]])] if single else []),
                ]
                for name, matrix in zip(self.layers, self.similarity, strict=True)
            ]
            names = [f"{a + 1}-{b + 1}" for a, b in shown]
            yield ""
            yield plain_table(["layer", *names, *([""] if single else [])], cells, bar=single)

    def plot(self, path: str | Path) -> None:
        """Draw similarity against layer, a line a pair of texts.

        Args:
            path: the file; its ending says the format: .png, .svg or .pdf.

        Raises:
            MissingExtraError: matplotlib is not installed.
            InputError: an ending that is none of these.
            OutputError: the file cannot be written.
        """
        check_format(Path(path))
        figure = new_figure(width=7.0, height=4.5 + 0.12 * len(self.texts))
        axes = figure.subplots()
        layers = np.arange(len(self.similarity))
        for number, (a, b) in enumerate(self.pairs):
            # Marker and dash differ too: colour alone would be lost in print and to some eyes.
            axes.plot(
                layers,
                self.similarity[:, a, b],
                marker="osv^D*XP"[number % 8],
                linestyle=("-", "--", "-.", ":")[number % 4],
                label=f"{a + 1} and {b + 1}",
            )
        axes.set_xticks(layers)
        axes.set_xlabel("embedding layer (0 is the learned embedding)")
        axes.set_ylabel("cosine similarity")
        names = " / ".join(excerpt(word, 30) for word in dict.fromkeys(self.words))
        title = f"“{names}” between sentences, {printable(self.model)}"
        # A text may hold dollar signs, which are no formula.
        axes.set_title(excerpt(title, 75), fontsize=10, parse_math=False)
        axes.grid(alpha=0.3)
        if len(self.pairs) <= _MAX_LEGEND:
            axes.legend(title="texts", fontsize=8)
        captions = (
            f"{number}  {excerpt(text, _MAX_CAPTION)}" for number, text in enumerate(self.texts, start=1)
        )
        figure.supxlabel("\n".join(captions), fontsize=7, x=0.02, ha="left", parse_math=False)
        write_figure(figure, Path(path))


def _cosine(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"


def _bar(value: float) -> str:
    return "█" * round(40 * max(0.0, float(np.nan_to_num(value))))
