"""One head as a picture for a paper: lines between the tokens, or a heat map, with the exact weights."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.core.files import write_whole
from regard.core.printable import excerpt, printable
from regard.views._assets import palette
from regard.views._figure import check_format, figure_of, write_figure
from regard.views._svg import Box, Curve, Shape, Sheet, Text, svg_of

PictureForm = Literal["lines", "map"]
"""Lines between the tokens, or a heat map."""

# The page draws the same picture (static/heads/picture.js and matrix.js); tests/integration/test_page_save.py
# holds the two beside each other.

# Beyond it, names cannot be read on a page of paper.
_MOST_TOKENS = 128
_MOST_CELLS = 26  # columns of a terminal, of a token's name
_CELL = 7.4  # what one takes, at 13 points; a wide letter takes more, an i less
_ROW = 21
_LINES = 190
_CORNER = 74  # what the names of the axes take
# A thinner line would not be seen.
_FAINTEST = 0.002
_QUERY, _KEY, _SOFT = (palette()[name] for name in ("query", "key", "soft"))
_NO_WEIGHT = palette()["card"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadPicture:
    """The weights of one head, as a picture.

    In a notebook it shows itself; `write` puts it in a file.

    Args:
        weights: (queries, keys), from 0 to 1.
        queries, keys: what each is called.
        title: the line above.
        form: "lines", tokens left and right with a line for each weight, or "map", a heat map.
        least: draw the weights from here up; nothing is rescaled.

    Raises:
        InputError: weights that do not fit the names, are no weights, or are too many to be read.

    Example:
        >>> picture = HeadPicture(weights=np.eye(2), queries=("a", "<b>"), keys=("a", "<b>"), title="m")
        >>> picture.svg().count("<path"), "&lt;b&gt; → &lt;b&gt;: 1.0000" in picture.svg()
        (2, True)
    """

    weights: npt.NDArray[np.float64]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    title: str
    form: PictureForm = "lines"
    least: float = 0.0

    def __post_init__(self) -> None:
        wanted = len(self.queries), len(self.keys)
        if self.weights.shape != wanted or 0 in wanted:
            raise InputError(f"weights: wanted shape {wanted}, as there are tokens, got {self.weights.shape}")
        if not ((self.weights >= 0) & (self.weights <= 1.01)).all():
            raise InputError("weights: wanted numbers from 0 to 1, got others; these may be scores")
        if self.form not in ("lines", "map"):
            raise InputError(f'form: wanted "lines" or "map", got {self.form!r}')
        if not 0 <= self.least < 1:
            raise InputError(f"least: wanted a weight from 0 to below 1, got {self.least!r}")
        self.check_size(*wanted)

    @staticmethod
    def check_size(queries: int, keys: int) -> None:
        """Refuse more tokens than can be read.

        Raises:
            InputError: there are more.
        """
        if max(queries, keys) > _MOST_TOKENS:
            raise InputError(
                f"a picture holds {_MOST_TOKENS} queries and keys, got {queries} and {keys}; choose some, "
                "such as query=slice(0, 40) and key=slice(0, 40), or look at the page"
            )

    def svg(self) -> str:
        """The picture as an SVG document, whose lines and cells tell their weights."""
        return svg_of(self._sheet())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture, whole or not at all: .svg, or through matplotlib .png and .pdf.

        Raises:
            InputError: another ending; or a text from right to left, which matplotlib cannot set.
            MissingExtraError: matplotlib is not installed, and the file is no .svg.
            OutputError: the file cannot be written.
        """
        file = Path(path)
        check_format(file)
        if file.suffix.lower() == ".svg":
            write_whole(file, self.svg().encode("utf-8"))
        else:
            write_figure(figure_of(self._sheet()), file)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _sheet(self) -> Sheet:
        return _lines(self) if self.form == "lines" else _map(self)


def _lines(picture: HeadPicture) -> Sheet:
    left = _width(picture.queries)
    right = _width(picture.keys)
    rows = max(len(picture.queries), len(picture.keys))
    top = 62
    x = 12 + left + 6
    to_x = max(x + _LINES, _title_width(picture) - right - 18)
    width = to_x + 6 + right + 12
    floor = max(picture.least, _FAINTEST)
    largest = float(picture.weights.max())
    said = f"A line for every weight from {floor:g} up; in full, {largest:.4f}."
    shapes = _heading(picture, said)
    shapes.append(Text(x=x - 6, y=top - 12, text="query", size=10, anchor="end", colour=_QUERY))
    shapes.append(Text(x=to_x + 6, y=top - 12, text="key", size=10, colour=_KEY))
    order = np.argsort(picture.weights, axis=None, kind="stable")  # the strongest on top
    for query, key in zip(*np.unravel_index(order, picture.weights.shape), strict=True):
        weight = float(picture.weights[query, key])
        if weight < floor:
            continue
        shapes.append(
            Curve(
                start=(x, top + _ROW * (query + 0.5)),
                end=(to_x, top + _ROW * (key + 0.5)),
                colour=_QUERY,
                width=0.6 + 3.4 * weight / largest,
                opacity=0.06 + 0.94 * (weight / largest) ** 0.65,
                bent=True,
                said=_said(picture, query, key),
            )
        )
    for place, name in enumerate(picture.queries):
        shapes.append(Text(x=x - 6, y=top + _ROW * (place + 0.5), text=_name(name), size=13, anchor="end"))
    for place, name in enumerate(picture.keys):
        shapes.append(Text(x=to_x + 6, y=top + _ROW * (place + 0.5), text=_name(name), size=13))
    return _sheet(picture, width, top + _ROW * rows + 12, shapes, said)


def _map(picture: HeadPicture) -> Sheet:
    largest = float(picture.weights.max())
    numbered = len(picture.keys) <= 16
    cell = 30 if numbered else 14
    size = 12 if numbered else 10
    left, above = max(_width(picture.queries), _CORNER), _width(picture.keys)
    top = 56 + above
    x = 12 + left + 6
    said = f"A stronger colour is more, up to {largest:.4f}."
    shapes = _heading(picture, said)
    for query in range(len(picture.queries)):
        for key in range(len(picture.keys)):
            weight = float(picture.weights[query, key])
            part = weight / largest if largest > 0 and weight >= picture.least else 0.0
            box = Box(
                x=x + cell * key,
                y=top + cell * query,
                width=cell,
                height=cell,
                colour=_shade(part),
                said=_said(picture, query, key),
            )
            shapes.append(box)
            if numbered:
                number = Text(
                    x=box.x + cell / 2,
                    y=box.y + cell / 2,
                    text=_short(weight),
                    size=9,
                    anchor="middle",
                    colour=_ink_on(box.colour),
                )
                shapes.append(number)
    width, height = cell * len(picture.keys), cell * len(picture.queries)
    for start, end in (
        ((x, top), (x + width, top)),
        ((x, top + height), (x + width, top + height)),
        ((x, top), (x, top + height)),
        ((x + width, top), (x + width, top + height)),
    ):
        shapes.append(Curve(start=start, end=end, colour=_SOFT, width=0.8))
    for place, name in enumerate(picture.queries):
        shapes.append(Text(x=x - 6, y=top + cell * (place + 0.5), text=_name(name), size=size, anchor="end"))
    for place, name in enumerate(picture.keys):
        across = x + cell * (place + 0.5) + 0.35 * size
        shapes.append(Text(x=across, y=top - 5, text=_name(name), size=size, turn=90))
    shapes.append(Text(x=x - 6, y=top - 8, text="query ↓  key →", size=10, anchor="end", colour=_SOFT))
    full = max(x + width + 16, _title_width(picture))
    return _sheet(picture, full, top + height + 14, shapes, said)


def _heading(picture: HeadPicture, said: str) -> list[Shape]:
    return [
        Text(x=12, y=18, text=printable(picture.title), size=14, bold=True),
        Text(x=12, y=35, text=said, size=10, colour=_SOFT),
    ]


def _sheet(picture: HeadPicture, width: float, height: float, shapes: list[Shape], said: str) -> Sheet:
    of = f"Attention weights of {len(picture.queries)} queries over {len(picture.keys)} keys. {said}"
    least = 24 + 5.2 * len(said)
    return Sheet(
        width=max(width, least), height=height, title=printable(picture.title), description=of, shapes=shapes
    )


def _said(picture: HeadPicture, query: int, key: int) -> str:
    names = printable(picture.queries[query]), printable(picture.keys[key])
    return f"{names[0]} → {names[1]}: {float(picture.weights[query, key]):.4f}"


def _name(text: str) -> str:
    return excerpt(text, _MOST_CELLS) or "(empty)"


def _width(names: tuple[str, ...]) -> float:
    from rich.cells import cell_len

    return max(24.0, *(_CELL * cell_len(_name(name)) for name in names))


def _title_width(picture: HeadPicture) -> float:
    return 24 + 9.2 * len(printable(picture.title))


def _short(weight: float) -> str:
    """Two digits, as ".07": what a cell has room for."""
    return f"{weight:.2f}".removeprefix("0")


def _shade(part: float) -> str:
    mixed = (
        (1 - part) * none + part * full for none, full in zip(_rgb(_NO_WEIGHT), _rgb(_QUERY), strict=True)
    )
    return "#" + "".join(f"{round(each):02x}" for each in mixed)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def _ink_on(colour: str) -> str:
    """White or black, whichever is easier to read on a colour: at least 4.5 to 1 (WCAG 2)."""
    parts = [part / 255 for part in _rgb(colour)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "#000000"
