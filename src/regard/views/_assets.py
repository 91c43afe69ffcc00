"""The page's JavaScript and CSS, as `scripts/page.mjs` has bundled them from the sources in `static`."""

import json
import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable


def script() -> str:
    """All JavaScript of a page, minified, in a scope of its own."""
    return _built("page.js")


def style() -> str:
    """All CSS of a page, minified."""
    return _built("page.css")


def module() -> str:
    """The page as one ES module for a notebook, with its style: it exports `{ render }`.

    It is bundled from the page's own files. A widget is shown in a shadow root, by the width of its cell.
    """
    return f"const STYLE = {json.dumps(_in_a_cell())};\n{_built('widget.js')}"


def _in_a_cell() -> str:
    """All CSS, where the width and height of the cell take the place of the window's."""
    css = _built("widget.css")
    widths = r"@media screen and ?((?:\((?:min|max)-width: ?\d+px\)(?: ?and ?)?)+)"
    css = re.sub(widths, r"@container regard \1", css)
    css = re.sub(r"(@container regard [^{]*?)(?: ?and ?)?\(min-height: ?\d+px\) ?\{", r"\1{", css)
    css = re.sub(r"\b(\d+)vw\b", r"\1cqi", css)
    return re.sub(r"\b(\d+)vh\b", r"calc(\1 / 100 * var(--regard-height))", css)


@cache
def palette() -> dict[str, str]:
    """The colours by name, "#rrggbb", of a light page: the page's own are in the same file."""
    return {
        name: colour for name, colour in json.loads(read("palette.json"))["light"].items() if name != "series"
    }


def _built(name: str) -> str:
    try:
        return read(f"built/{name}")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"regard/views/static/built/{name} is missing: in a checkout, `make page` bundles it"
        ) from None


def read(name: str) -> str:
    """One file of `static`."""
    return _root().joinpath(*name.split("/")).read_text(encoding="utf-8")


def _root() -> Traversable:
    return resources.files("regard.views").joinpath("static")
