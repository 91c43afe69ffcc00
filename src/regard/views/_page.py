"""One HTML file that holds a whole model's attention over a text, and needs nothing else."""

import base64
import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.core.files import write_whole
from regard.views import _assets
from regard.views._blocks import Blocks, as_json, block, facts_of
from regard.views._difference import Difference, difference_facts
from regard.views._measures import add_measures
from regard.views._movement import Movement, movement_facts
from regard.views._position_facts import add_positions
from regard.views._quantize import Encoding, pack
from regard.views._records import AttentionRecord
from regard.views._statistics import add_statistics
from regard.views._values import MOST_BYTES, Held, ValueHead, add_values
from regard.views._widget import make_widget, marimo_object, notebook_bundle


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
        records, movement, difference: What it was made from, for a notebook.
        left_out: Measures that it does not have, though they were asked for or are always wanted, and why.
    """

    html: str = field(repr=False)
    encoding: Encoding
    largest_difference: float
    every: int = 1
    values: Held = "none"
    records: tuple[AttentionRecord, ...] = field(default=(), repr=False, compare=False)
    movement: Movement | None = field(default=None, repr=False, compare=False)
    difference: Difference | None = field(default=None, repr=False, compare=False)
    left_out: Mapping[str, str] = field(default_factory=dict, repr=False)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, whole or not at all.

        Args:
            path: The file. An existing file is replaced; a link is followed.

        Raises:
            OutputError: The file could not be written; what was there before is still there.
        """
        write_whole(path, self.html.encode("utf-8"))

    def widget(self) -> Any:
        """The same view as a widget of a notebook, which shows it by itself: an `anywidget.AnyWidget`.

        Raises:
            MissingExtraError: anywidget is not installed: `pip install 'regard[notebook]'`.
            InputError: The page is of a difference, which no widget shows yet.
            InputError: The page shows a difference, which is shown in a file alone.
        """
        if self.difference is not None:
            raise InputError("a difference is shown in a file: page.write(path), and open it in a browser.")
        if self.difference is not None:
            raise InputError(
                "difference: wanted a page of one run or of a word's movement, got one of a difference; "
                "write it with page.write(path)"
            )
        return make_widget(self.records, movement=self.movement)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        del include, exclude
        if self.difference is not None:
            return {"text/plain": f"{self!r}; page.write(path) puts it in a file"}
        return notebook_bundle(repr(self), self.widget, lambda: self.records)

    def _display_(self) -> Any:  # of marimo
        return marimo_object(repr(self), self.widget)


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
    return _render([record], None, values)


def render_comparison(records: Sequence[AttentionRecord], movement: Movement) -> Page:
    """Renders one word's movement in several texts, with the attention of each text, as one page.

    Args:
        records: The run on each text.
        movement: The word in these texts; the page opens with it.

    Returns:
        The page. What it says of differences holds for every run.

    Raises:
        InputError: Not one record for each text of the movement.
    """
    if len(records) != len(movement.texts):
        raise InputError(f"records: wanted one for each of {len(movement.texts)} texts, got {len(records)}")
    return _render(records, movement, ())


def render_difference(one: AttentionRecord, other: AttentionRecord, difference: Difference) -> Page:
    """Renders how two runs differ, with the attention of both, as one page.

    Args:
        one, other: The runs.
        difference: How the second differs from the first; the page opens with it.

    Returns:
        The page. What it says of differences from Python holds for both runs.

    Raises:
        InputError: A kind of attention that one of the runs has not.
    """
    for kind in difference.kinds:
        if kind not in one.layers or kind not in other.layers:
            raise InputError(f"difference: wanted kinds that both runs have, got {kind!r}")
    return _render([one, other], None, (), difference)


def _render(
    records: Sequence[AttentionRecord],
    movement: Movement | None,
    values: Sequence[ValueHead],
    difference: Difference | None = None,
) -> Page:
    page, style, script = _assets.read("page.html"), _assets.style(), _assets.script()
    packed = [pack(record) for record in records]
    runs = []
    left_out: dict[str, str] = {}
    for record, each in zip(records, packed, strict=True):
        facts, blocks = facts_of(record, each, _round_up(each.largest_difference))
        add_positions(record, facts, blocks)
        add_statistics(record, facts)
        left_out |= add_measures(record, each, facts, blocks)
        for measure in [each for kind in facts["kinds"].values() for each in kind["measures"]]:
            measure["difference"] = _round_up(measure["difference"])
        runs.append((facts, blocks))
    if movement is not None:
        # The page asks the first run's facts what there is besides.
        runs[0][0]["movement"] = movement_facts(movement)
    if difference is not None:
        runs[0][0]["compared"] = difference_facts(difference)
    size = sum(len(text.encode()) for text in (style, script, page, *map(_data, runs)))
    held: set[Held] = set()
    for number, (facts, blocks) in enumerate(runs):
        before = len(blocks.html())
        room = (MOST_BYTES - size) // (len(runs) - number)
        held.add(add_values(records[number], packed[number], facts, blocks, wanted=values, room=room))
        facts["values"]["difference"] = _round_up(facts["values"]["difference"])
        size += len(blocks.html()) - before
    parts = {
        "policy": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "data": "\n".join(_data(run, f"run{number}-" if number else "") for number, run in enumerate(runs)),
        "script": script,
    }
    # One pass, so that nothing inside a part is taken for a placeholder.
    html = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)
    return Page(
        html=html,
        encoding="int16" if all(each.encoding == "int16" for each in packed) else "float32",
        largest_difference=max(facts["difference"] for facts, _ in runs),
        every=max(each.every for each in packed),
        values=held.pop() if len(held) == 1 else "some",
        records=tuple(records),
        movement=movement,
        difference=difference,
        left_out=left_out,
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


def _data(run: tuple[dict[str, Any], Blocks], prefix: str = "") -> str:
    facts, blocks = run
    return block(f"{prefix}facts", "application/json", as_json(facts)) + "\n" + blocks.html(prefix)


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
