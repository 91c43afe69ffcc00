"""The page's JavaScript and CSS: which files there are, in which order, and how they become one text each.

**Adding a view** is adding a folder `static/NAME/` and a line in `VIEWS`. Its JavaScript files hold nothing
but calls of `part` and `view` (see static/base/parts.js): a part is a function that is handed `shared` and
returns what it adds to it, a view is a part that the tab bar offers. No file imports another, so the same
files work in one `<script>` of a page from disk under a strict policy, and as one module in a notebook.
"""

import json
import re
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
    "measures.js",
    "difference.js",
    "source.js",
    "held.js",
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
    "difference": ("map.js", "tokens.js", "view.js"),
    "heads": (
        "lines.js",
        "minimap.js",
        "choice.js",
        "drawn.js",
        "why.js",
        "weights.js",
        "grid.js",
        "tokens.js",
        "diagram.js",
        "panel.js",
        "controls.js",
        "steps.js",
        "save.js",
        "view.js",
    ),
    "model": ("statistics.js", "wall.js", "detail.js", "view.js"),
    "neuron": ("figures.js", "chosen.js", "rows.js", "worked.js", "table.js", "view.js"),
    "positions": ("heatmap.js", "parts.js", "added.js", "distances.js", "view.js"),
}
"""The views, in the order of their tabs, each with its scripts in the order in which they run."""


# What a notebook has besides, the last of which starts a widget: the kernel answers it.
_NOTEBOOK = ("work.js", "source.js", "strip.js", "theme.js", "check.js", "main.js")


def scripts() -> tuple[str, ...]:
    """The files of JavaScript, in the order in which they run, the last of which starts a page."""
    return (*_parts(), "main.js")


def _parts() -> tuple[str, ...]:
    return (
        *(f"base/{name}" for name in _BASE),
        *(f"{view}/{name}" for view, names in VIEWS.items() for name in names),
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


def module() -> str:
    """The page as one ES module for a notebook, with its style: `export default { render }`.

    The files are the page's own. A widget is shown in a shadow root, by the width of its cell.
    """
    names = (*_parts(), *(f"notebook/{name}" for name in _NOTEBOOK))
    return "\n".join((f"const STYLE = {json.dumps(_in_a_cell())};", *map(read, names)))


def _in_a_cell() -> str:
    """All CSS, where the width and height of the cell take the place of the window's."""
    css = style() + "\n" + read("notebook/notebook.css")
    widths = r"@media screen and ((?:\((?:min|max)-width: \d+px\)(?: and )?)+)"
    css = re.sub(widths, r"@container regard \1", css)
    css = re.sub(r"(@container regard [^{]*?)(?: and )?\(min-height: \d+px\) \{", r"\1 {", css)
    css = re.sub(r"\b(\d+)vw\b", r"\1cqi", css)
    return re.sub(r"\b(\d+)vh\b", r"calc(\1 / 100 * var(--regard-height))", css)


def read(name: str) -> str:
    """One file of `static`."""
    return _file(name).read_text(encoding="utf-8")


def _file(name: str) -> Traversable:
    return _root().joinpath(*name.split("/"))


def _root() -> Traversable:
    return resources.files("regard.views").joinpath("static")
