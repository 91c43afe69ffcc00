"""matplotlib figures for scripts, of plain arrays; and a sheet of shapes as one."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.core.printable import excerpt
from regard.views._figure import new_figure
from regard.views._svg import Curve, Sheet, Text, legal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 72  # an inch
_MOST_LABELS = 64


def figure_of(sheet: Sheet) -> "Figure":
    """The sheet as a figure of its size, a point for a point.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: a text from right to left: matplotlib would set its letters the wrong way round.
    """
    figure = new_figure(width=sheet.width / _POINTS, height=sheet.height / _POINTS)
    _check_direction(shape.text for shape in sheet.shapes if isinstance(shape, Text))
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, sheet.width)
    axes.set_ylim(sheet.height, 0)
    for order, shape in enumerate(sheet.shapes):
        if isinstance(shape, Text):
            axes.text(
                shape.x,
                shape.y,
                legal(shape.text),
                fontsize=shape.size,
                color=shape.colour,
                ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
                va="baseline" if shape.turn else "center_baseline",
                fontweight="bold" if shape.bold else "normal",
                rotation=shape.turn,
                rotation_mode="anchor",
                parse_math=False,
                zorder=order,
            )
        elif isinstance(shape, Curve):
            (x, y), (to_x, to_y) = shape.start, shape.end
            middle = (x + to_x) / 2
            bent = [(x, y), (middle, y), (middle, to_y), (to_x, to_y)]
            path = (
                Path(bent, [Path.MOVETO, *3 * [Path.CURVE4]]) if shape.bent else Path([(x, y), (to_x, to_y)])
            )
            dashes = (0, [each / shape.width for each in shape.dashes]) if shape.dashes else "-"
            axes.add_patch(
                PathPatch(
                    path,
                    fill=False,
                    edgecolor=shape.colour,
                    linewidth=shape.width,
                    linestyle=dashes,
                    alpha=shape.opacity,
                    zorder=order,
                )
            )
        else:
            box = Rectangle((shape.x, shape.y), shape.width, shape.height, color=shape.colour, linewidth=0)
            box.set_zorder(order)
            axes.add_patch(box)
    return figure


def plot_weights(
    weights: npt.NDArray[np.floating],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str = "",
) -> "Figure":
    """Draw one head's weights as a heat map, white for 0.

    Args:
        weights: (queries, keys).
        queries, keys: their tokens; by default the keys are the queries.
        title: the line above.

    Returns:
        A matplotlib figure; `figure.savefig("head.png")` writes it.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: weights that do not fit the tokens, or tokens from right to left.

    Example:
        >>> figure = plot_weights(np.eye(2), ["river", "bank"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['river', 'bank']
    """
    keys = queries if keys is None else keys
    weights = _table("weights", weights, ("queries", "keys"))
    if weights.shape != (len(queries), len(keys)):
        raise InputError(
            f"weights: wanted shape {(len(queries), len(keys))}, as there are tokens, got {weights.shape}"
        )
    _check_direction((*queries, *keys, title))
    rows, columns = weights.shape
    figure = new_figure(width=min(20.0, 2.2 + 0.24 * columns), height=min(20.0, 1.8 + 0.24 * rows))
    axes = figure.subplots()
    image = axes.imshow(weights, cmap="Blues", vmin=0, interpolation="nearest")
    for names, axis, turn in ((queries, axes.yaxis, 0), (keys, axes.xaxis, 90)):
        # Of a long text every so many tokens are named: all of them could not be read.
        places = range(0, len(names), -(-len(names) // _MOST_LABELS))
        labels = [legal(excerpt(names[place], 20)) for place in places]
        axis.set_ticks(list(places), labels, rotation=turn, fontsize=8, parse_math=False)
    axes.set_ylabel("query")
    axes.set_xlabel("key")
    if title:
        axes.set_title(excerpt(title, 80), fontsize=10, parse_math=False)
    figure.colorbar(image, label="weight")
    return figure


def plot_entropy(entropy: npt.NDArray[np.floating], *, title: str = "") -> "Figure":
    """Draw how spread each head's attention is: a row a layer, a column a head, dark for focused.

    Args:
        entropy: (layers, heads), in bits, such as the mean over the queries of -sum(w * log2(w)): 0 is one
            token, log2(n) is n tokens alike.
        title: the line above.

    Returns:
        A matplotlib figure; `figure.savefig("entropy.png")` writes it.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: no table of numbers.

    Example:
        >>> weights = np.full((2, 3, 4, 4), 0.25)  # layers, heads, queries, keys
        >>> entropy = -(weights * np.log2(np.maximum(weights, 1e-12))).sum(axis=-1).mean(axis=-1)
        >>> plot_entropy(entropy).axes[0].get_ylabel()
        'layer'
    """
    entropy = _table("entropy", entropy, ("layers", "heads"))
    layers, heads = entropy.shape
    figure = new_figure(width=min(20.0, 2.6 + 0.42 * heads), height=min(20.0, 1.8 + 0.38 * layers))
    axes = figure.subplots()
    top = float(entropy.max()) or 1.0
    image = axes.imshow(entropy, cmap="cividis", vmin=0, vmax=top, interpolation="nearest")
    axes.set_xticks(range(heads))
    axes.set_yticks(range(layers))
    axes.set_ylabel("layer")
    axes.set_xlabel("head")
    if layers * heads <= 24 * 16:
        for layer in range(layers):
            for head in range(heads):
                value = float(entropy[layer, head])
                ink = "black" if value > 0.55 * top else "white"
                axes.text(head, layer, f"{value:.1f}", ha="center", va="center", fontsize=7, color=ink)
    if title:
        axes.set_title(excerpt(title, 80), fontsize=10, parse_math=False)
    figure.colorbar(image, label="entropy (bits)")
    return figure


def _table(name: str, values: npt.NDArray[np.floating], axes: tuple[str, str]) -> npt.NDArray[np.float64]:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"{name}: wanted shape ({', '.join(axes)}), got {table.shape}")
    if not np.isfinite(table).all():
        raise InputError(f"{name}: wanted finite numbers, got others")
    return table


def _check_direction(texts: Iterable[str]) -> None:
    for text in texts:
        if any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in text):
            raise InputError(
                f"{text!r:.60} runs from right to left, which matplotlib cannot set; write an .svg file."
            )
