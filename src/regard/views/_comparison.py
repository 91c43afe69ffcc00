"""One word in several sentences, layer by layer: the record, its table in a terminal, and its plot."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.views._figure import check_format, new_figure, write_figure
from regard.views._printable import excerpt, printable

if TYPE_CHECKING:
    from rich.console import Console

# Columns of similarities that fit 80 characters beside the layer.
_PAIRS_A_TABLE = 7
# Columns of a text before it is cut, in a terminal and under a plot, and lines that a legend can name.
_MAX_TEXT = 200
_MAX_CAPTION = 120
_MAX_LEGEND = 15


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison:
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


def print_comparison(comparison: Comparison, console: "Console") -> None:
    """The similarities as a table, a row a layer and a column a pair of texts, in 80 columns."""
    from rich.table import Table
    from rich.text import Text

    last = len(comparison.similarity) - 1
    console.print(
        Text(f"{printable(comparison.model)}: cosine similarity of the word's vectors", style="dim")
    )
    for number, (word, text) in enumerate(zip(comparison.words, comparison.texts, strict=True), start=1):
        word, text = excerpt(word, 30), excerpt(text, _MAX_TEXT)
        console.print(Text.assemble((f"{number} ", "bold"), (word, "bold"), f"  {text}"))
    pairs = comparison.pairs
    for start in range(0, len(pairs), _PAIRS_A_TABLE):
        shown = pairs[start : start + _PAIRS_A_TABLE]
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("layer", width=14)
        for a, b in shown:
            table.add_column(f"{a + 1}-{b + 1}", justify="right", width=7)
        if len(pairs) == 1:
            table.add_column("", width=40)
        for layer, matrix in enumerate(comparison.similarity):
            name = {0: "0 learned", last: f"{last} contextual"}.get(layer, str(layer))
            values = [float(matrix[a, b]) for a, b in shown]
            bar = ["█" * round(40 * max(0.0, np.nan_to_num(values[0])))] if len(pairs) == 1 else []
            table.add_row(name, *("-" if np.isnan(value) else f"{value:.3f}" for value in values), *bar)
        console.print()
        console.print(table)


def plot_comparison(comparison: Comparison, path: Path) -> None:
    """Draw similarity against layer, a line a pair of texts.

    Args:
        comparison: the record.
        path: the file; its ending says the format: .png, .svg or .pdf.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: an ending that is none of these.
        OutputError: the file cannot be written.
    """
    check_format(path)
    figure = new_figure(width=7.0, height=4.5 + 0.12 * len(comparison.texts))
    axes = figure.subplots()
    layers = np.arange(len(comparison.similarity))
    for number, (a, b) in enumerate(comparison.pairs):
        # Marker and dash differ too: colour alone would be lost in print and to some eyes.
        axes.plot(
            layers,
            comparison.similarity[:, a, b],
            marker="osv^D*XP"[number % 8],
            linestyle=("-", "--", "-.", ":")[number % 4],
            label=f"{a + 1} and {b + 1}",
        )
    axes.set_xticks(layers)
    axes.set_xlabel("embedding layer (0 is the learned embedding)")
    axes.set_ylabel("cosine similarity")
    names = " / ".join(excerpt(word, 30) for word in dict.fromkeys(comparison.words))
    title = f"“{names}” between sentences, {printable(comparison.model)}"
    # A text may hold dollar signs, which are no formula.
    axes.set_title(excerpt(title, 75), fontsize=10, parse_math=False)
    axes.grid(alpha=0.3)
    if len(comparison.pairs) <= _MAX_LEGEND:
        axes.legend(title="texts", fontsize=8)
    captions = (
        f"{number}  {excerpt(text, _MAX_CAPTION)}" for number, text in enumerate(comparison.texts, start=1)
    )
    figure.supxlabel("\n".join(captions), fontsize=7, x=0.02, ha="left", parse_math=False)
    write_figure(figure, path)
