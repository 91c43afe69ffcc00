"""A small vector picture: texts, curves, boxes and dots on a sheet, and the sheet as SVG.

What a picture draws is a list of shapes; whether they become SVG here or a PNG or PDF through matplotlib
(`_figure.py`) is nothing to it, so that the three show the same.
"""

from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from regard.views._assets import drawing, palette

# Names, and no files: whoever opens the picture has one of them, and the texts stay texts.
FONTS: str = drawing()["fonts"]
BASELINE: float = drawing()["baseline"]
"""Of a text's size, from its middle line to the one that letters stand on."""

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
    """A line from start to end that leaves and arrives level (`bent`) or straight; `said` is its tooltip."""

    start: tuple[float, float]
    end: tuple[float, float]
    colour: str
    width: float = 1
    opacity: float = 1
    bent: bool = False
    said: str | None = None


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
    middle = _number((x + to_x) / 2)
    between = f"C{middle} {_number(y)} {middle} {_number(to_y)} " if shape.bent else "L"
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
    if code < 0x20:
        return code in (0x9, 0xA, 0xD)
    return code < 0xD800 or 0xE000 <= code < 0xFFFE or code >= 0x10000
