"""Plots: curves over a common axis, panel under panel; and points in the plane, cloud beside cloud."""

import itertools
import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from regard.core.arguments import path_of
from regard.core.displayable import TABLES, Tabular
from regard.views._assets import palette, read
from regard.views._sheet import Box, Curve, Shape, Sheet, Text, save_sheet, svg_of

_INK, _SOFT, _RULE, _PAPER = (palette()[name] for name in ("ink", "soft", "rule", "paper"))
# Points: the sheet, its margins, and the height of a panel.
_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT, _GAP, _BELOW = 720, 64, 20, 50, 170, 46, 50
_MARK, _ROW = 5, 18
_SIDE, _BESIDE, _CLOUDS_LEFT, _CLOUDS_TOP, _UNDER, _INSIDE, _POINT = 170, 16, 20, 62, 40, 12, 6
_LETTER = 6.6  # a letter of size 12, about


@dataclass(frozen=True, kw_only=True)
class Series:
    """A curve.

    Args:
        name: whose it is; series of one name have one colour, in every panel.
        points: x and y, x rising.
        is_marked: whether each point has a mark, as of something that is seldom measured; else a thin line.
    """

    name: str
    points: Sequence[tuple[float, float]]
    is_marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves with one axis upwards, and what it is called."""

    title: str
    series: Sequence[Series]


class Picture(ABC):
    """What is drawn on a sheet, and shows itself in a notebook."""

    def svg(self) -> str:
        """One file without scripts, styles or links, with a ground of its own: dark pages may show it."""
        return svg_of(self._sheet())

    def _repr_svg_(self) -> str:
        return self.svg()

    def write(self, path: str | PathLike[str]) -> None:
        """Write it, whole or not at all: an SVG by regard itself, a PNG or PDF through matplotlib.

        Raises:
            InputError: an ending other than .svg, .png or .pdf, or a text from right to left that matplotlib
                would have to set.
            MissingExtraError: matplotlib is needed and not installed.
            OutputError: the file cannot be written.
        """
        save_sheet(self._sheet(), path_of("path", path))

    def save(self, path: str | PathLike[str]) -> None:
        """As `write`, its former name."""
        warnings.warn("save is write now", DeprecationWarning, stacklevel=2)
        self.write(path)

    @abstractmethod
    def _sheet(self) -> Sheet:
        """The axis as shapes."""


@dataclass(frozen=True, kw_only=True)
class CurvePicture(Picture, Tabular):
    """Panels over one axis from left to right; in a notebook they show themselves.

    Args:
        title: over all.
        along: what the axis from left to right is called.
        panels: at least one, each with a point at least.
        is_logarithmic: whether both axes are; then all numbers must be above 0.

    Example:
        >>> from regard.views import CurvePicture, Panel, Series
        >>> series = Series(name="run", points=[(1, 3.0), (2, 2.0)])
        >>> picture = CurvePicture(title="t", along="steps", panels=[Panel(title="loss", series=[series])])
        >>> "<title>run: 1 to 2, last 2</title>" in picture.svg()
        True
    """

    title: str
    along: str
    panels: Sequence[Panel]
    is_logarithmic: bool = False

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a point: its panel, its series, and where it lies."""
        return [
            {"panel": panel.title, "series": each.name, self.along: x, "value": y}
            for panel in self.panels
            for each in panel.series
            for x, y in each.points
        ]

    def write(self, path: str | PathLike[str]) -> None:
        """Write it as a picture or, by another ending, its points as a table: see `Tabular.write`."""
        # The ending says whether it is drawn or listed.
        kind = Tabular if path_of("path", path).suffix.lower() in TABLES else Picture
        kind.write(self, path)

    def _sheet(self) -> Sheet:
        # A series has one colour in all panels.
        names = list(dict.fromkeys(each.name for panel in self.panels for each in panel.series))
        colours = dict(zip(names, _colours(len(names)), strict=True))
        xs = [x for panel in self.panels for each in panel.series for x, _ in each.points]
        axis = _LogAxis if self.is_logarithmic else _Axis
        # One axis from left to right for all panels.
        across = axis(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, whole=True)
        shapes: list[Shape] = [Text(x=_LEFT, y=20, text=self.title, size=14, bold=True, colour=_INK)]
        key, bottom = _key(names, colours)
        shapes += key if len(names) > 1 else []
        # From top to bottom.
        for panel in self.panels:
            top, bottom = bottom + 24, bottom + 24 + _HEIGHT
            shapes += _panel(panel, across, axis, top, bottom, colours)
            bottom += _GAP - 24
        bottom -= _GAP - 24
        for value, label in across.ticks():
            x = across.at(value)
            shapes.append(Text(x=x, y=bottom + 14, text=label, size=11, anchor="middle", colour=_SOFT))
        shapes.append(
            Text(
                x=(_LEFT + _WIDTH - _RIGHT) / 2, y=bottom + 32, text=self.along, anchor="middle", colour=_SOFT
            )
        )
        said = "; ".join(_said(panel, each) for panel in self.panels for each in panel.series)
        return Sheet(width=_WIDTH, height=bottom + _BELOW, title=self.title, description=said, shapes=shapes)


class _Axis:
    """From values to places, with round values to write beside it."""

    def __init__(self, low: float, high: float, start: float, end: float, *, whole: bool = False) -> None:
        self.low, self.high = (low, high) if high > low else self.around(low)
        self.start, self.end, self.whole = start, end, whole

    def around(self, value: float) -> tuple[float, float]:
        """Two ends, where there is one value only."""
        return value - 0.5, value + 0.5

    def widened(self, share: float) -> None:
        """Leave room beyond both ends."""
        margin = share * (self.high - self.low)
        self.low, self.high = self.low - margin, self.high + margin

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 6) -> list[tuple[float, str]]:
        # Steps of 1, 2 or 5 times a power of ten.
        rough = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
        if self.whole:
            step = max(1.0, step)
        digits = max(0, -math.floor(math.log10(step)))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [number * step for number in range(first, last + 1)]
        small = digits > 4
        return [
            (value, f"{value:.0e}" if small and value else f"{value:,.{0 if small else digits}f}")
            for value in values
        ]


class _LogAxis(_Axis):
    """An axis by logarithms. It names powers of ten, or of two over less than two powers of ten."""

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def around(self, value: float) -> tuple[float, float]:
        return value / 2, value * 2

    def widened(self, share: float) -> None:
        factor = (self.high / self.low) ** share
        self.low, self.high = self.low / factor, self.high * factor

    def ticks(self, about: int = 6) -> list[tuple[float, str]]:
        del about
        # Powers of ten are too far apart on a short axis.
        base = 2 if self.whole or self.high < 100 * self.low else 10
        first, last = (math.log(each, base) for each in (self.low, self.high))
        powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
        values = (float(base) ** power for power in powers)
        return [(value, f"{value:g}" if value < 1 else f"{value:,.0f}") for value in values]


def _panel(
    panel: Panel, across: _Axis, axis: type[_Axis], top: float, bottom: float, colours: dict[str, str]
) -> list[Shape]:
    ys = [y for curve in panel.series for _, y in curve.points]
    up = axis(min(ys), max(ys), bottom, top)
    up.widened(0.04)
    shapes: list[Shape] = [Text(x=_LEFT, y=top - 12, text=panel.title, bold=True, colour=_INK)]
    for value, label in up.ticks(5):
        y = up.at(value)
        shapes.append(Curve(start=(_LEFT, y), end=(_WIDTH - _RIGHT, y), colour=_RULE))
        shapes.append(Text(x=_LEFT - 8, y=y, text=label, size=11, anchor="end", colour=_SOFT))
    for curve in panel.series:
        colour, places = colours[curve.name], [(across.at(x), up.at(y)) for x, y in curve.points]
        width, opacity = (2, 1.0) if curve.is_marked else (1.5, 0.7)
        shapes += [
            Curve(start=start, end=end, colour=colour, width=width, opacity=opacity)
            for start, end in itertools.pairwise(places)
        ]
        # A mark at each point, or at the end of the line.
        marked = curve.points if curve.is_marked else curve.points[-1:]
        for (x, y), (at, height) in zip(marked, places[-len(marked) :], strict=True):
            said = f"{curve.name}: {x:,.0f}, {y:.4g}" if curve.is_marked else _said(panel, curve, short=True)
            half = _MARK / 2 if curve.is_marked else 1
            box = Box(x=at - half, y=height - half, width=2 * half, height=2 * half, colour=colour, said=said)
            shapes.append(box)
    return shapes


def _key(names: Sequence[str], colours: dict[str, str]) -> tuple[list[Shape], float]:
    """The names, in as many rows as they need, and where these end."""
    shapes: list[Shape] = []
    x, y = float(_LEFT), float(_TOP)
    for name in names:
        width = 36 + _LETTER * len(name)
        # The next row, but never an empty one.
        if x > _LEFT and x + width > _WIDTH - _RIGHT:
            x, y = float(_LEFT), y + _ROW
        shapes.append(Box(x=x, y=y - 10, width=14, height=4, colour=colours[name]))
        shapes.append(Text(x=x + 20, y=y - 8, text=name, colour=_INK))
        x += width
    return shapes, y


def _said(panel: Panel, series: Series, *, short: bool = False) -> str:
    (first, _), (last, value) = series.points[0], series.points[-1]
    told = f"{series.name}: {first:,.0f} to {last:,.0f}, last {value:.4g}"
    return told if short else f"{panel.title}, {told}"


def _colours(count: int) -> list[str]:
    series: list[str] = json.loads(read("palette.json"))["light"]["series"]
    return [series[number % len(series)] for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Points of several groups, in axes of their own.

    Args:
        title: over them.
        below: a line under them; "" for none.
        groups: by name, points with what each says when it is pointed at.
    """

    title: str
    groups: Mapping[str, Sequence[tuple[float, float, str]]]
    below: str = ""


@dataclass(frozen=True, kw_only=True)
class PointPicture(Picture):
    """Clouds beside each other, each scaled to its own size, both axes alike. A group has one colour in all.

    Args:
        title: over all.
        clouds: at least one, each with a point at least.

    Example:
        >>> cloud = Cloud(title="static", groups={"river": [(0, 1, "a")], "money": [(2, 1, "b")]})
        >>> picture = PointPicture(title="bank", clouds=[cloud])
        >>> picture.svg().count("<title>river: a</title>")
        1
    """

    title: str
    clouds: Sequence[Cloud]

    def _sheet(self) -> Sheet:
        names = list(dict.fromkeys(name for cloud in self.clouds for name in cloud.groups))
        colours = dict(zip(names, _colours(len(names)), strict=True))
        shapes: list[Shape] = [Text(x=_CLOUDS_LEFT, y=18, text=self.title, size=14, bold=True, colour=_INK)]
        x = float(_CLOUDS_LEFT)
        for name in names:
            shapes.append(Box(x=x, y=36, width=_POINT, height=_POINT, colour=colours[name]))
            shapes.append(Text(x=x + 12, y=39, text=name, colour=_INK))
            x += 28 + _LETTER * len(name)
        for number, cloud in enumerate(self.clouds):
            shapes += _cloud(cloud, _CLOUDS_LEFT + number * (_SIDE + _BESIDE), colours)
        width = 2 * _CLOUDS_LEFT + len(self.clouds) * (_SIDE + _BESIDE) - _BESIDE
        said = "; ".join(f"{cloud.title}: {cloud.below}" for cloud in self.clouds)
        return Sheet(
            width=width,
            height=_CLOUDS_TOP + 20 + _SIDE + _UNDER,
            title=self.title,
            description=said,
            shapes=shapes,
        )


def _cloud(cloud: Cloud, left: float, colours: Mapping[str, str]) -> list[Shape]:
    top = _CLOUDS_TOP + 20
    shapes: list[Shape] = [
        Text(x=left, y=_CLOUDS_TOP + 6, text=cloud.title, bold=True, colour=_INK),
        Box(x=left, y=top, width=_SIDE, height=_SIDE, colour=_PAPER),
        Text(x=left, y=top + _SIDE + 16, text=cloud.below, size=11, colour=_SOFT),
    ]
    points = [point for group in cloud.groups.values() for point in group]
    # Both axes have one scale: distances can be compared.
    middle = [(max(each) + min(each)) / 2 for each in list(zip(*points, strict=True))[:2]]
    reach = max(max(abs(x - middle[0]), abs(y - middle[1])) for x, y, _ in points) or 1.0
    scale = (_SIDE / 2 - _INSIDE) / reach
    for name, group in cloud.groups.items():
        for x, y, said in group:
            across = left + _SIDE / 2 + scale * (x - middle[0]) - _POINT / 2
            down = top + _SIDE / 2 - scale * (y - middle[1]) - _POINT / 2
            mark = Box(
                x=across, y=down, width=_POINT, height=_POINT, colour=colours[name], said=f"{name}: {said}"
            )
            shapes.append(mark)
    return shapes
