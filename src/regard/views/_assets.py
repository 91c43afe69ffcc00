"""The page's JavaScript and CSS, as `scripts/page.mjs` has bundled them from the sources in `static`."""

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

_NO_HTML = str.maketrans("<>&", ",.:")


def loader() -> str:
    """What a page runs first: it unpacks the style, the script and the facts."""
    return _built("loader.js")


def packed(text: str) -> str:
    """A text as the loader unpacks it: compressed, in base85, which is a sixteenth shorter than base64.

    The letters are those of RFC 1924, but ",", "." and ":" stand for "<", ">" and "&", which are HTML's own.
    """
    # mtime=0: the same text gives the same bytes.
    return base64.b85encode(gzip.compress(text.encode(), mtime=0)).decode("ascii").translate(_NO_HTML)


def unpacked(text: str) -> str:
    """What `packed` packed."""
    return gzip.decompress(base64.b85decode(text.translate(str.maketrans(",.:", "<>&")))).decode()


@cache
def packed_asset(text: str) -> str:
    """The same of a script or a style, of which there are few."""
    return packed(text)


def script(*, live: bool = False, usual: bool = False) -> str:
    """The JavaScript of a page, minified, in its own scope: all, the usual views alone, or a live one's."""
    return _built("live.js" if live else "usual.js" if usual else "page.js")


def served() -> str:
    """The JavaScript of a page whose server runs the model: the only one that makes requests."""
    return _built("served.js")


def usages_script() -> str:
    """The JavaScript of the page that searches a server's concordance."""
    return _built("usages.js")


def usages_style() -> str:
    """Its CSS."""
    return _built("usages.css")


def style(*, live: bool = False) -> str:
    """All CSS of a page, minified; of a live page."""
    return _built("live.css" if live else "page.css")


def worker() -> str:
    """The JavaScript that runs the model of a live page, for a worker."""
    return _built("live-worker.js")


def module() -> str:
    """The page as one ES module for a notebook, with its style: it exports `{ render }`.

    It is bundled from the page's own files. A widget is shown in a shadow root, by the width of its cell.
    """
    style = json.dumps(_built("widget.css"))
    return f"const STYLE = {style};\n{_built('widget.js')}"


@cache
def drawing() -> dict[str, Any]:
    """The sizes by which a head is drawn, here and on the page: both read the same file.

    In points: `margin` around a sheet, `beside` between a name and what it names; `top`, what lies above; a
    heading's `letter` and a name's `cell`, what one of them takes. A line of strength s has the width
    thinnest + thicker s and the opacity palest + stronger s^power; for a weight below `least` none is drawn.
    """
    rules: dict[str, Any] = json.loads(read("drawing.json"))
    return rules


@cache
def palette(theme: str = "light") -> dict[str, str]:
    """The colours by name, "#rrggbb", of a light page or on paper ("print"): the page reads the same file."""
    return {
        name: colour for name, colour in json.loads(read("palette.json"))[theme].items() if name != "series"
    }


def digest(text: str) -> str:
    """What a Content-Security-Policy names a script or a style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


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
