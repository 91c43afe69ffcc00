"""`regard train plot`: how runs went, in the terminal or in a file."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli._options import argument, option
from regard.cli._output import check_outputs, console, print_path

if TYPE_CHECKING:
    from regard.views import Panel, Series

_HEIGHT, _MARGIN = 12, 11
_STYLES = ("blue", "green", "magenta", "yellow", "cyan", "red")


def plot(
    runs: list[Path] = argument("RUN...", "Folders of runs, finished or not."),
    output: Path | None = option(
        "--output -o FILE", "An .svg, .png or .pdf; by default the terminal shows the curves."
    ),
) -> None:
    """Draw the loss, the scores and the learning rate of runs."""
    check_outputs({"--output": output})
    from regard.training import curves

    picture = curves(runs)
    if output is not None:
        picture.save(output)
        print_path(output)
        return
    names = list(dict.fromkeys(each.name for panel in picture.panels for each in panel.series))
    drawn = console()
    steps = [x for panel in picture.panels for each in panel.series for x, _ in each.points]
    for panel in picture.panels:
        drawn.print(panel.title, style="bold", markup=False)
        _draw(panel, names, drawn.width, min(steps), max(steps))
    if len(names) > 1:
        for number, name in enumerate(names):
            drawn.print(f"  o {name}", style=_STYLES[number % len(_STYLES)], markup=False)


def _draw(panel: "Panel", names: Sequence[str], width: int, left: float, right: float) -> None:
    """A panel in letters: dots for lines, o for what is seldom measured."""
    from rich.text import Text

    columns = width - _MARGIN
    values = [y for each in panel.series for _, y in each.points]
    low, high = min(values), max(values)
    grid = [[(" ", "")] * columns for _ in range(_HEIGHT)]
    for each in panel.series:
        style = _STYLES[names.index(each.name) % len(_STYLES)]
        for x, y in _filled(each, columns):
            column = round((x - left) / max(right - left, 1e-12) * (columns - 1))
            row = round((high - y) / max(high - low, 1e-12) * (_HEIGHT - 1))
            grid[row][column] = ("o" if each.is_marked else ".", style)
    for row, cells in enumerate(grid):
        label = {0: f"{high:.4g}", _HEIGHT - 1: f"{low:.4g}"}.get(row, "")
        line = Text(f"{label:>{_MARGIN - 2}} |")
        for sign, style in cells:
            line.append(sign, style=style)
        console().print(line)
    ends = f"{left:,.0f}", f"{right:,.0f} steps"
    console().print(" " * _MARGIN + ends[0] + ends[1].rjust(columns - len(ends[0])), highlight=False)


def _filled(series: "Series", columns: int) -> list[tuple[float, float]]:
    """The points of a line, with others between where columns would stay empty."""
    points = list(series.points)
    if series.is_marked or len(points) >= columns:
        return points
    between = -(-columns // max(1, len(points) - 1))
    return [
        (x + part / between * (to_x - x), y + part / between * (to_y - y))
        for (x, y), (to_x, to_y) in itertools.pairwise(points)
        for part in range(between)
    ] + points[-1:]
