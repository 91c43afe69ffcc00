"""Points in the plane, picture beside picture: which of them are together, and which apart."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.views._assets import palette, read
from regard.views._sheet import Box, Shape, Sheet, Text, save_sheet, svg_of

_INK, _SOFT, _PAPER = (palette()[name] for name in ("ink", "soft", "paper"))
_SIDE, _GAP, _LEFT, _TOP, _BELOW, _INSIDE = 170, 16, 20, 62, 40, 12
_MARK = 6
_LETTER = 6.6  # a letter of size 12, about


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
class PointPicture:
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

    def svg(self) -> str:
        """One file without scripts, styles or links, with a ground of its own: dark pages may show it."""
        return svg_of(self._sheet())

    def save(self, path: Path) -> None:
        """Write it: an SVG by regard itself, a PNG or PDF through matplotlib.

        Raises:
            InputError: an ending other than .svg, .png or .pdf.
            MissingExtraError: matplotlib is needed and not installed.
            OutputError: the file cannot be written.
        """
        save_sheet(self._sheet(), path)

    def _sheet(self) -> Sheet:
        names = list(dict.fromkeys(name for cloud in self.clouds for name in cloud.groups))
        series: list[str] = json.loads(read("palette.json"))["light"]["series"]
        colours = {name: series[number % len(series)] for number, name in enumerate(names)}
        shapes: list[Shape] = [Text(x=_LEFT, y=18, text=self.title, size=14, bold=True, colour=_INK)]
        x = float(_LEFT)
        for name in names:
            shapes.append(Box(x=x, y=36, width=_MARK, height=_MARK, colour=colours[name]))
            shapes.append(Text(x=x + 12, y=39, text=name, colour=_INK))
            x += 28 + _LETTER * len(name)
        for number, cloud in enumerate(self.clouds):
            shapes += _drawn(cloud, _LEFT + number * (_SIDE + _GAP), colours)
        width = 2 * _LEFT + len(self.clouds) * (_SIDE + _GAP) - _GAP
        said = "; ".join(f"{cloud.title}: {cloud.below}" for cloud in self.clouds)
        return Sheet(
            width=width, height=_TOP + 20 + _SIDE + _BELOW, title=self.title, description=said, shapes=shapes
        )


def _drawn(cloud: Cloud, left: float, colours: Mapping[str, str]) -> list[Shape]:
    top = _TOP + 20
    shapes: list[Shape] = [
        Text(x=left, y=_TOP + 6, text=cloud.title, bold=True, colour=_INK),
        Box(x=left, y=top, width=_SIDE, height=_SIDE, colour=_PAPER),
        Text(x=left, y=top + _SIDE + 16, text=cloud.below, size=11, colour=_SOFT),
    ]
    points = [point for group in cloud.groups.values() for point in group]
    middle = [(max(each) + min(each)) / 2 for each in list(zip(*points, strict=True))[:2]]
    reach = max(max(abs(x - middle[0]), abs(y - middle[1])) for x, y, _ in points) or 1.0
    scale = (_SIDE / 2 - _INSIDE) / reach
    for name, group in cloud.groups.items():
        for x, y, said in group:
            across = left + _SIDE / 2 + scale * (x - middle[0]) - _MARK / 2
            down = top + _SIDE / 2 - scale * (y - middle[1]) - _MARK / 2
            mark = Box(
                x=across, y=down, width=_MARK, height=_MARK, colour=colours[name], said=f"{name}: {said}"
            )
            shapes.append(mark)
    return shapes
