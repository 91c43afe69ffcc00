"""The page's JavaScript and CSS: which files there are, in which order, and how they become one text each.

**Adding a view** is adding a folder `static/NAME/` and a line in `VIEWS`. Its JavaScript files hold nothing
but calls of `part` and `view` (see static/base/parts.js): a part is a function that is handed `shared` and
returns what it adds to it, a view is a part that the tab bar offers. No file imports another, so the same
files work in one `<script>` of a page from disk under a strict policy, and as one module in a notebook.
"""

from importlib import resources
from importlib.resources.abc import Traversable

# In this order they run: each is handed what the parts before it have made.
_BASE = (
    "parts.js",
    "dom.js",
    "colours.js",
    "numbers.js",
    "layer.js",
    "given.js",
    "source.js",
    "units.js",
    "state.js",
    "thumbnails.js",
    "header.js",
    "tabs.js",
    "host.js",
    "app.js",
)

VIEWS: dict[str, tuple[str, ...]] = {
    # First, since a page that has it opens with it.
    "movement": ("drawing.js", "view.js"),
    "heads": (
        "lines.js",
        "minimap.js",
        "choice.js",
        "why.js",
        "weights.js",
        "grid.js",
        "tokens.js",
        "diagram.js",
        "panel.js",
        "controls.js",
        "save.js",
        "view.js",
    ),
    "model": ("statistics.js", "wall.js", "detail.js", "view.js"),
    "neuron": ("figures.js", "chosen.js", "rows.js", "worked.js", "table.js", "view.js"),
    "positions": ("heatmap.js", "parts.js", "added.js", "distances.js", "view.js"),
}
"""The views, in the order of their tabs, each with its scripts in the order in which they run."""


def scripts() -> tuple[str, ...]:
    """The files of JavaScript, in the order in which they run, the last of which starts a page."""
    return (
        *(f"base/{name}" for name in _BASE),
        *(f"{view}/{name}" for view, names in VIEWS.items() for name in names),
        "main.js",
    )


def styles() -> tuple[str, ...]:
    """The files of CSS; each view has one of its own name, where it has one."""
    found = [name for name in (f"{view}/{view}.css" for view in VIEWS) if _file(name).is_file()]
    return ("page.css", *found)


def script() -> str:
    """All JavaScript, in a scope of its own."""
    return '(() => {\n"use strict";\n' + "\n".join(read(name) for name in scripts()) + "\n})();\n"


def style() -> str:
    """All CSS."""
    return "\n".join(read(name) for name in styles())


def read(name: str) -> str:
    """One file of `static`."""
    return _file(name).read_text(encoding="utf-8")


def _file(name: str) -> Traversable:
    return _root().joinpath(*name.split("/"))


def _root() -> Traversable:
    return resources.files("regard.views").joinpath("static")
