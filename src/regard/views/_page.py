"""One HTML file that holds a whole model's attention over a text, and needs nothing else."""

import base64
import hashlib
import json
import math
import os
import re
from dataclasses import dataclass, field
from importlib import resources

import numpy as np
import numpy.typing as npt

from regard.core.files import write_whole
from regard.views._quantize import Encoding, Packed, pack
from regard.views._records import AttentionRecord

# In this order they make one script: each uses only names of the files before it.
_SCRIPTS = (
    "data.js",
    "dom.js",
    "state.js",
    "grid.js",
    "lines.js",
    "minimap.js",
    "headview.js",
    "panel.js",
    "controls.js",
    "app.js",
    "main.js",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A rendered page.

    Attributes:
        html: The whole file, to be encoded as UTF-8. Text from outside is in it as ASCII escapes.
        encoding: How q and k are stored in it.
        largest_difference: What the page states: the largest difference between a weight it shows and
            float32 arithmetic in Python, over every weight, rounded up to two significant digits.
    """

    html: str = field(repr=False)
    encoding: Encoding
    largest_difference: float

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, whole or not at all.

        Args:
            path: The file. An existing file is replaced; a link is followed.

        Raises:
            OutputError: The file could not be written; what was there before is still there.
        """
        write_whole(path, self.html.encode("utf-8"))


def render_page(record: AttentionRecord) -> Page:
    """Renders a record as one self-contained HTML page.

    The page carries q and k, computes the weights itself, and makes no request. Its scripts and styles are
    named by hash in a Content-Security-Policy, so nothing that a token contains can run.

    Args:
        record: What to show.

    Returns:
        The page.

    Example:
        >>> from regard.views import PageToken
        >>> q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 3, 5), dtype=np.float32)
        >>> tokens = tuple(PageToken(text=text, sequence=0) for text in ("a", "river", "bank"))
        >>> page = render_page(AttentionRecord(
        ...     text="a river bank", pair=None, model="tiny", tokens=tokens, q=q, k=k, scale=5**-0.5
        ... ))
        >>> page.encoding, page.largest_difference < 1e-3, "://" in page.html
        ('int16', True, False)
    """
    packed = pack(record)
    difference = _round_up(packed.largest_difference)
    style = _read("page.css")
    script = "(() => {\n" + "\n".join(_read(name) for name in _SCRIPTS) + "\n})();\n"
    parts = {
        "policy": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "data": _data_blocks(record, packed, difference),
        "script": script,
    }
    # One pass, so that nothing inside a part is taken for a placeholder.
    html = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))
    return Page(html=html, encoding=packed.encoding, largest_difference=difference)


def write_page(record: AttentionRecord, path: str | os.PathLike[str]) -> Page:
    """Renders a record and writes the page, whole or not at all.

    Args:
        record: What to show.
        path: The file. An existing file is replaced; a link is followed.

    Returns:
        The page that was written.

    Raises:
        InputError: As `render_page`.
        OutputError: The file could not be written; what was there before is still there.
    """
    page = render_page(record)
    page.write(path)
    return page


def _data_blocks(record: AttentionRecord, packed: Packed, difference: float) -> str:
    layers, heads, tokens, head_dim = packed.q.shape
    facts = {
        "text": record.text,
        "pair": record.pair,
        "model": record.model,
        "layers": layers,
        "heads": heads,
        "kvHeads": packed.k.shape[1],
        "headDim": head_dim,
        "size": tokens,
        "scale": record.scale,
        "encoding": packed.encoding,
        "difference": difference,
        "tokens": [
            {"text": token.text, "special": token.special, "sequence": token.sequence, "word": token.word}
            for token in record.tokens
        ],
    }
    blocks = [_block("facts", "application/json", _json(facts))]
    for name, values, steps in (("q", packed.q, packed.q_steps), ("k", packed.k, packed.k_steps)):
        for layer in range(layers):
            # One block per layer: the page decodes a layer when someone first looks at it.
            blocks.append(_block(f"{name}-{layer}", "text/plain", _base64(values[layer])))
            blocks.append(_block(f"{name}-steps-{layer}", "text/plain", _base64(steps[layer])))
    return "\n".join(blocks)


def _block(name: str, kind: str, content: str) -> str:
    return f'<script type="{kind}" id="regard-{name}">{content}</script>'


def _json(value: object) -> str:
    # ASCII, and without the characters that HTML knows: no token can end the block or start a comment.
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _base64(values: npt.NDArray[np.int16] | npt.NDArray[np.float32]) -> str:
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return base64.b64encode(little.data).decode("ascii")


def _round_up(value: float) -> float:
    """Rounds up to two significant digits, so that what is stated holds.

    A float32 weight is itself only known to float32's spacing below 1, and two libraries that are both right
    differ by it: that much is added.

    Example:
        >>> _round_up(3.11e-5)
        3.2e-05
        >>> _round_up(0.0)
        1.2e-07
    """
    value += float(np.finfo(np.float32).eps)
    digits = 1 - math.floor(math.log10(value))
    return float(f"{math.ceil(round(value * 10**digits, 6))}e{-digits}")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _read(name: str) -> str:
    return resources.files("regard.views").joinpath("static", name).read_text(encoding="utf-8")
