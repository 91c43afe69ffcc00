"""One HTML file that holds a whole model's attention over a text, and needs nothing else."""

import base64
import hashlib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.core.files import write_whole
from regard.views import _assets
from regard.views._blocks import as_json, block, facts_of
from regard.views._position_facts import add_positions
from regard.views._quantize import Encoding, pack
from regard.views._records import AttentionRecord
from regard.views._values import MOST_BYTES, Held, ValueHead, add_values


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A rendered page.

    Attributes:
        html: The whole file, to be encoded as UTF-8. Text from outside is in it as ASCII escapes.
        encoding: How q and k are stored in it.
        largest_difference: What the page states: the largest difference between a weight it shows and
            float32 arithmetic in Python, rounded up to two significant digits.
        every: Over the weights of every query, 1; or of one query in so many, where the text is too long to
            compare them all.
        values: Whether it holds the values (v) of all heads, of some, or none: see `render_page`.
    """

    html: str = field(repr=False)
    encoding: Encoding
    largest_difference: float
    every: int = 1
    values: Held = "none"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, whole or not at all.

        Args:
            path: The file. An existing file is replaced; a link is followed.

        Raises:
            OutputError: The file could not be written; what was there before is still there.
        """
        write_whole(path, self.html.encode("utf-8"))


def render_page(record: AttentionRecord, *, values: Sequence[ValueHead] = ()) -> Page:
    """Renders a record as one self-contained HTML page.

    The page carries q and k, computes the weights itself, and makes no request. Its scripts and styles are
    named by hash in a Content-Security-Policy, so nothing that a token contains can run.

    Args:
        record: What to show.
        values: Heads, (kind, layer, head), whose values the page holds in any case. It holds those of all
            heads while it stays under 8 MB with them.

    Returns:
        The page.

    Raises:
        InputError: A head that is not there, or has no values.

    Example:
        >>> from regard.views import PageToken, encoder_record
        >>> q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 3, 5), dtype=np.float32)
        >>> tokens = tuple(PageToken(text=text, sequence=0) for text in ("a", "river", "bank"))
        >>> page = render_page(encoder_record(
        ...     text="a river bank", model="tiny", tokens=tokens, q=q, k=k, scale=5**-0.5
        ... ))
        >>> page.encoding, page.largest_difference < 1e-3, "://" in page.html
        ('int16', True, False)
    """
    packed = pack(record)
    difference = _round_up(packed.largest_difference)
    facts, blocks = facts_of(record, packed, difference)
    add_positions(record, facts, blocks)
    style, script = _assets.style(), _assets.script()
    size = sum(map(len, (style.encode(), script.encode(), as_json(facts), blocks.html())))
    held = add_values(record, packed, facts, blocks, wanted=values, room=MOST_BYTES - size)
    facts["values"]["difference"] = _round_up(facts["values"]["difference"])
    parts = {
        "policy": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "data": block("facts", "application/json", as_json(facts)) + "\n" + blocks.html(),
        "script": script,
    }
    # One pass, so that nothing inside a part is taken for a placeholder.
    html = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _assets.read("page.html"))
    return Page(
        html=html,
        encoding=packed.encoding,
        largest_difference=difference,
        every=packed.every,
        values=held,
    )


def write_page(
    record: AttentionRecord, path: str | os.PathLike[str], *, values: Sequence[ValueHead] = ()
) -> Page:
    """Renders a record and writes the page, whole or not at all.

    Args:
        record: What to show.
        path: The file. An existing file is replaced; a link is followed.
        values: As in `render_page`.

    Returns:
        The page that was written.

    Raises:
        OutputError: The file could not be written; what was there before is still there.
    """
    page = render_page(record, values=values)
    page.write(path)
    return page


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
