"""A small vector picture: texts, curves, boxes and dots on a sheet; as SVG, or through matplotlib.

What a picture draws is a list of shapes; whether they become SVG here or a PNG or PDF through matplotlib is
nothing to it, so that the three show the same. Figures have no display and no global state, and are written
whole or not at all.
"""

import unicodedata
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from regard.core.errors import InputError
from regard.core.extras import missing
from regard.core.files import write_whole
from regard.views._assets import drawing, palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Font names, not embedded fonts, so that text stays selectable.
FONTS: str = drawing()["fonts"]
BASELINE: float = drawing()["baseline"]
"""The share of a text's size from its middle line to the line that letters stand on."""

_CARD = palette()["card"]

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """Text whose middle line runs through y, turned by `turn` degrees against the clock about (x, y)."""

    x: float
    y: float
    text: str
    size: float = 12
    anchor: Anchor = "start"
    colour: str = palette()["ink"]
    bold: bool = False
    turn: float = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A line from start to end: straight, level at its ends (`bent`), or an arc that rises by so much.

    `said` is its tooltip.
    """

    start: tuple[float, float]
    end: tuple[float, float]
    colour: str
    width: float = 1
    opacity: float = 1
    bent: bool = False
    rise: float = 0
    said: str | None = None

    def between(self) -> list[tuple[float, float]]:
        """The two points that it is drawn towards; none where it is straight."""
        (x, y), (to_x, to_y) = self.start, self.end
        # A cubic curve reaches 3/4 of the height of its two points.
        if self.rise:
            return [(x, y - self.rise / 0.75), (to_x, to_y - self.rise / 0.75)]
        return [((x + to_x) / 2, y), ((x + to_x) / 2, to_y)] if self.bent else []


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """A filled rectangle; `said` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    said: str | None = None


Shape = Text | Curve | Box


@dataclass(kw_only=True, slots=True)
class Sheet:
    """A picture: its size in points, its name, its description for screen readers, its shapes."""

    width: float
    height: float
    title: str
    description: str
    shapes: list[Shape] = field(default_factory=list)


def svg_of(sheet: Sheet) -> str:
    """The sheet as an SVG document: one file without scripts, styles or links."""
    width, height = _number(sheet.width), _number(sheet.height)
    # Title and description come first: screen readers read them.
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family={quoteattr(FONTS)}>',
        f"<title>{_text(sheet.title)}</title>",
        f"<desc>{_text(sheet.description)}</desc>",
        f'<rect width="{width}" height="{height}" fill="{_CARD}"/>',
    ]
    for shape in sheet.shapes:
        if isinstance(shape, Text):
            parts.append(_svg_text(shape))
        elif isinstance(shape, Curve):
            parts.append(_svg_curve(shape))
        else:
            place = f'x="{_number(shape.x)}" y="{_number(shape.y)}"'
            size = f'width="{_number(shape.width)}" height="{_number(shape.height)}"'
            parts.append(_said(f'rect {place} {size} fill="{shape.colour}"', "rect", shape.said))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _svg_text(shape: Text) -> str:
    # Not every reader knows another way to put letters on their middle line.
    x, y = _number(shape.x), _number(shape.y + (0 if shape.turn else BASELINE * shape.size))
    turn = f' transform="rotate({_number(-shape.turn)} {x} {y})"' if shape.turn else ""
    bold = ' font-weight="600"' if shape.bold else ""
    anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
    return (
        f'<text x="{x}" y="{y}" font-size="{_number(shape.size)}" fill="{shape.colour}"{anchor}{bold}{turn} '
        f'xml:space="preserve">{_text(shape.text)}</text>'
    )


def _svg_curve(shape: Curve) -> str:
    (x, y), (to_x, to_y) = shape.start, shape.end
    drawn = [f"{_number(at)} {_number(down)} " for at, down in shape.between()]
    between = f"C{''.join(drawn)}" if drawn else "L"
    return _said(
        f'path d="M{_number(x)} {_number(y)}{between}{_number(to_x)} {_number(to_y)}" fill="none" '
        f'stroke="{shape.colour}" stroke-width="{_number(shape.width)}" '
        f'stroke-opacity="{_number(shape.opacity)}"',
        "path",
        shape.said,
    )


def _said(start: str, name: str, said: str | None) -> str:
    return f"<{start}/>" if said is None else f"<{start}><title>{_text(said)}</title></{name}>"


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def _text(text: str) -> str:
    return escape(legal(text))


def legal(text: str) -> str:
    """The text without what XML cannot hold, such as a lone surrogate: a replacement sign stands for it."""
    return "".join(sign if _is_legal(ord(sign)) else "\ufffd" for sign in text)


def _is_legal(code: int) -> bool:
    # XML takes three of the control characters.
    if code < 0x20:
        return code in (0x9, 0xA, 0xD)
    return code < 0xD800 or 0xE000 <= code < 0xFFFE or code >= 0x10000


FORMATS = (".pdf", ".png", ".svg")
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
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"the plot's file must end in .pdf, .png or .svg; got {str(path)!r}.")


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the file's ending says.

    Raises:
        InputError: an ending other than .pdf, .png or .svg.
        OutputError: the file cannot be written.
    """
    check_format(path)
    # In memory first, so that the file is written whole or not at all.
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
    # matplotlib would set the letters in the wrong order.
    _check_direction(shape.text for shape in sheet.shapes if isinstance(shape, Text))
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, sheet.width)
    # Downwards, as in SVG.
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
            drawn = [shape.start, *shape.between(), shape.end]
            path = Path(drawn, [Path.MOVETO, *3 * [Path.CURVE4]] if len(drawn) > 2 else None)
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
        >>> import numpy as np
        >>> from regard.views import plot_positions
        >>> figure = plot_positions(np.eye(3))
        >>> figure.axes[0].get_ylabel()
        'position'
    """
    table = np.asarray(table)
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"table must have shape (positions, d_model); got {table.shape}.")
    figure = new_figure(width=8.0, height=3.2)
    axes = figure.subplots()
    # The same distance on both sides of zero.
    limit = float(np.abs(table).max()) or 1.0
    image = axes.imshow(
        table, cmap="coolwarm", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    axes.set_title(f"Positional encoding, {table.shape[0]} positions x {table.shape[1]} dimensions")
    axes.set_ylabel("position")
    axes.set_xlabel("embedding dimension")
    figure.colorbar(image)
    return figure
