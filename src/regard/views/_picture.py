"""One head as a picture for a paper: lines between the tokens, or a heat map, with the exact weights."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.core.arguments import BelowOne, check_fields
from regard.core.errors import InputError
from regard.core.wording import excerpt, printable, visible
from regard.views._assets import drawing, palette
from regard.views._plots import Picture
from regard.views._sheet import BASELINE, Box, Curve, Shape, Sheet, Text

PictureForm = Literal["lines", "map"]
"""Lines between the tokens, or a heat map."""

# The page draws the same picture (static/heads/picture.js and matrix.js) by the same rules;
# tests/integration/test_page_save.py holds the two beside each other.
_RULES = drawing()
_MARGIN: float = _RULES["margin"]
_BESIDE: float = _RULES["beside"]
_CELL: float = _RULES["name"]["cell"]  # a wide letter takes more, an i less
_LINE, _AXIS = _RULES["line"], _RULES["axis"]

# Beyond it, names cannot be read on a page of paper.
_MOST_TOKENS = 128
_QUERY, _KEY, _SOFT = (palette()[name] for name in ("query", "key", "soft"))
_WHITE, _BLACK = (palette("print")[name] for name in ("paper", "ink"))
_NO_WEIGHT = palette()["card"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadPicture(Picture):
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
        >>> import numpy as np
        >>> from regard.views import HeadPicture
        >>> picture = HeadPicture(weights=np.eye(2), queries=("a", "<b>"), keys=("a", "<b>"), title="m")
        >>> picture.svg().count("<path"), "&lt;b&gt; → &lt;b&gt;: 1.0000" in picture.svg()
        (2, True)
        >>> picture
        HeadPicture(queries=('a', '<b>'), keys=('a', '<b>'), title='m', form='lines', least=0.0)
    """

    weights: npt.NDArray[np.float64] = field(repr=False)
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    title: str
    form: PictureForm = "lines"
    least: BelowOne = 0.0

    def __post_init__(self) -> None:
        # The shape, then the numbers, then the size of the picture.
        wanted = len(self.queries), len(self.keys)
        if self.weights.shape != wanted or 0 in wanted:
            raise InputError(
                f"weights must be of shape {wanted}, as there are tokens; got {self.weights.shape}"
            )
        if not ((self.weights >= 0) & (self.weights <= 1.01)).all():
            raise InputError("weights must be numbers from 0 to 1; got others; these may be scores")
        check_fields(self)
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

    def _sheet(self) -> Sheet:
        return _lines(self) if self.form == "lines" else _map(self)


def _lines(picture: HeadPicture) -> Sheet:
    # Sizes follow from the longest name on each side.
    left = _width(picture.queries)
    right = _width(picture.keys)
    rows = max(len(picture.queries), len(picture.keys))
    rules = _RULES["lines"]
    top, row, size = rules["top"], rules["row"], rules["size"]
    x = _MARGIN + left + _BESIDE
    to_x = max(x + rules["between"], _title_width(picture) - right - _BESIDE - _MARGIN)
    width = to_x + _BESIDE + right + _MARGIN
    # Weaker lines would be invisible.
    floor = max(picture.least, _LINE["least"])
    largest = float(picture.weights.max())
    said = f"A line for every weight from {floor:g} up; in full, {largest:.4f}."
    shapes = _heading(picture, said)
    named = {"y": top - _AXIS["above"], "size": _AXIS["size"]}
    shapes.append(Text(x=x - _BESIDE, text="query", anchor="end", colour=_QUERY, **named))
    shapes.append(Text(x=to_x + _BESIDE, text="key", colour=_KEY, **named))
    order = np.argsort(picture.weights, axis=None, kind="stable")  # the strongest on top
    for query, key in zip(*np.unravel_index(order, picture.weights.shape), strict=True):
        weight = float(picture.weights[query, key])
        if weight < floor:
            continue
        shapes.append(
            Curve(
                start=(x, top + row * (query + 0.5)),
                end=(to_x, top + row * (key + 0.5)),
                colour=_QUERY,
                # Both width and opacity say the weight, relative to the largest.
                width=_LINE["thinnest"] + _LINE["thicker"] * weight / largest,
                opacity=_LINE["palest"] + _LINE["stronger"] * (weight / largest) ** _LINE["power"],
                bent=True,
                said=_said(picture, query, key),
            )
        )
    for place, name in enumerate(picture.queries):
        y = top + row * (place + 0.5)
        shapes.append(Text(x=x - _BESIDE, y=y, text=_name(name), size=size, anchor="end"))
    for place, name in enumerate(picture.keys):
        shapes.append(Text(x=to_x + _BESIDE, y=top + row * (place + 0.5), text=_name(name), size=size))
    return _sheet(picture, width, top + row * rows + _MARGIN, shapes, said)


def _map(picture: HeadPicture) -> Sheet:
    largest = float(picture.weights.max())
    rules = _RULES["map"]
    # Few keys leave room for numbers in the cells.
    numbered = len(picture.keys) <= rules["numbered"]["most"]
    cell, size = ((rules["numbered"] if numbered else rules["plain"])[name] for name in ("cell", "size"))
    left, above = max(_width(picture.queries), rules["corner"]), _width(picture.keys)
    top = rules["top"] + above
    x = _MARGIN + left + _BESIDE
    said = f"A stronger colour is more, up to {largest:.4f}."
    shapes = _heading(picture, said)
    for query in range(len(picture.queries)):
        for key in range(len(picture.keys)):
            weight = float(picture.weights[query, key])
            # Below `least` a cell stays empty.
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
                    size=rules["numbered"]["number"],
                    anchor="middle",
                    colour=_ink_on(box.colour),
                )
                shapes.append(number)
    width, height = cell * len(picture.keys), cell * len(picture.queries)
    # A frame: its four sides.
    for start, end in (
        ((x, top), (x + width, top)),
        ((x, top + height), (x + width, top + height)),
        ((x, top), (x, top + height)),
        ((x + width, top), (x + width, top + height)),
    ):
        shapes.append(Curve(start=start, end=end, colour=_SOFT, width=rules["frame"]))
    for place, name in enumerate(picture.queries):
        y = top + cell * (place + 0.5)
        shapes.append(Text(x=x - _BESIDE, y=y, text=_name(name), size=size, anchor="end"))
    for place, name in enumerate(picture.keys):
        across = x + cell * (place + 0.5) + BASELINE * size
        shapes.append(Text(x=across, y=top - rules["above"], text=_name(name), size=size, turn=90))
    corner = {"x": x - _BESIDE, "y": top - rules["axis"], "size": _AXIS["size"]}
    shapes.append(Text(text="query ↓  key →", anchor="end", colour=_SOFT, **corner))
    full = max(x + width + rules["right"], _title_width(picture))
    return _sheet(picture, full, top + height + rules["bottom"], shapes, said)


def _heading(picture: HeadPicture, said: str) -> list[Shape]:
    title, below = (_RULES["heading"][name] for name in ("title", "said"))
    return [
        Text(x=_MARGIN, y=title["y"], text=printable(picture.title), size=title["size"], bold=True),
        Text(x=_MARGIN, y=below["y"], text=said, size=below["size"], colour=_SOFT),
    ]


def _sheet(picture: HeadPicture, width: float, height: float, shapes: list[Shape], said: str) -> Sheet:
    of = f"Attention weights of {len(picture.queries)} queries over {len(picture.keys)} keys. {said}"
    least = 2 * _MARGIN + _RULES["heading"]["said"]["letter"] * len(said)
    return Sheet(
        width=max(width, least), height=height, title=printable(picture.title), description=of, shapes=shapes
    )


def _said(picture: HeadPicture, query: int, key: int) -> str:
    names = visible(picture.queries[query]), visible(picture.keys[key])
    return f"{names[0]} → {names[1]}: {float(picture.weights[query, key]):.4f}"


def _name(text: str) -> str:
    return excerpt(visible(text), _RULES["name"]["cells"])


def _width(names: tuple[str, ...]) -> float:
    from rich.cells import cell_len

    return max(float(_RULES["name"]["least"]), *(_CELL * cell_len(_name(name)) for name in names))


def _title_width(picture: HeadPicture) -> float:
    letter: float = _RULES["heading"]["title"]["letter"]
    return 2 * _MARGIN + letter * len(printable(picture.title))


def _short(weight: float) -> str:
    """Two digits, as ".07": what a cell has room for."""
    return f"{weight:.2f}".removeprefix("0")


def _shade(part: float) -> str:
    # From no weight to the full colour, linearly in each channel.
    mixed = (
        (1 - part) * none + part * full for none, full in zip(_rgb(_NO_WEIGHT), _rgb(_QUERY), strict=True)
    )
    return "#" + "".join(f"{round(each):02x}" for each in mixed)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def _ink_on(colour: str) -> str:
    """White or black, whichever is easier to read on a colour: at least 4.5 to 1 (WCAG 2)."""
    parts = [part / 255 for part in _rgb(colour)]
    # Relative luminance, as WCAG 2 defines it.
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return _WHITE if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else _BLACK
