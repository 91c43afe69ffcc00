"""matplotlib figures without a display and without its global state, written whole or not at all."""

import unicodedata
import warnings
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import InputError
from regard.core.extras import missing
from regard.core.files import write_whole
from regard.views._svg import Curve, Sheet, Text, legal, svg_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_FORMATS = (".pdf", ".png", ".svg")
_POINTS = 72  # an inch


def new_figure(*, width: float, height: float) -> "Figure":
    """An empty figure.

    Args:
        width, height: in inches.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("plots need", error, "matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained")


def check_format(path: Path) -> None:
    """Refuse a file whose ending says no format.

    Raises:
        InputError: an ending other than .pdf, .png or .svg.
    """
    if path.suffix.lower() not in _FORMATS:
        raise InputError(f"the plot's file must end in .pdf, .png or .svg; got {str(path)!r}.")


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the file's ending says.

    Raises:
        InputError: an ending other than .pdf, .png or .svg.
        OutputError: the file cannot be written.
    """
    check_format(path)
    drawn = BytesIO()
    with warnings.catch_warnings():
        # A sign that matplotlib's font lacks is drawn as a box; a warning for each would be noise.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        warnings.filterwarnings(
            "ignore", message="Matplotlib currently does not support", category=UserWarning
        )
        figure.savefig(drawn, format=path.suffix.lower()[1:], dpi=150)
    write_whole(path, drawn.getvalue())


def save_sheet(sheet: Sheet, path: Path) -> None:
    """Write a sheet: an SVG by regard itself, a PNG or PDF through matplotlib."""
    check_format(path)
    if path.suffix.lower() == ".svg":
        write_whole(path, svg_of(sheet).encode())
    else:
        write_figure(figure_of(sheet), path)


def figure_of(sheet: Sheet) -> "Figure":
    """The sheet as a figure of its size, a point for a point.

    A text from right to left is an InputError: matplotlib would set its letters the wrong way round.
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
            axes.add_patch(
                PathPatch(
                    path,
                    fill=False,
                    edgecolor=shape.colour,
                    linewidth=shape.width,
                    alpha=shape.opacity,
                    zorder=order,
                )
            )
        else:
            box = Rectangle((shape.x, shape.y), shape.width, shape.height, color=shape.colour, linewidth=0)
            box.set_zorder(order)
            axes.add_patch(box)
    return figure


def _check_direction(texts: Iterable[str]) -> None:
    for text in texts:
        if any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in text):
            raise InputError(
                f"{text!r:.60} runs from right to left, which matplotlib cannot set; write an .svg file."
            )


def plot_positions(table: np.ndarray) -> "Figure":
    """Draw a table of positions: a row a position, a column a dimension, blue below zero and red above.

    Args:
        table: (positions, d_model), such as `sinusoidal_encoding(100, 400).numpy()`.

    Returns:
        A matplotlib figure; `figure.savefig("positions.png")` writes it.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: not a table.

    Example:
        >>> figure = plot_positions(np.eye(3))
        >>> figure.axes[0].get_ylabel()
        'position'
    """
    table = np.asarray(table)
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"table must have shape (positions, d_model); got {table.shape}.")
    figure = new_figure(width=8.0, height=3.2)
    axes = figure.subplots()
    limit = float(np.abs(table).max()) or 1.0
    image = axes.imshow(
        table, cmap="coolwarm", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    axes.set_title(f"Positional encoding, {table.shape[0]} positions x {table.shape[1]} dimensions")
    axes.set_ylabel("position")
    axes.set_xlabel("embedding dimension")
    figure.colorbar(image)
    return figure
