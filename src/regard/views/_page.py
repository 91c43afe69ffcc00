"""One HTML file that holds a whole model's attention over a text, and needs nothing else."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regard.core.arguments import path_of
from regard.core.errors import InputError
from regard.core.files import write_whole
from regard.views import _assets
from regard.views._assets import digest
from regard.views._blocks import MOST_BYTES, Blocks, Held, add_values, as_json, block, wanted_bytes
from regard.views._budget import MOST_MB, all_bytes, check_heads, choose_heads, norm_bytes, only_heads
from regard.views._contents import add_thumbnails, begin, put_heads, round_up, thumbnail_bytes
from regard.views._live import NO_REQUEST, LiveRecord, LiveRun, ServedRecord
from regard.views._preview import Preview, preview_of
from regard.views._quantize import TOLERANCE, Encoding, Packed, pack
from regard.views._records import AttentionRecord, HeadName, HeldHeads, RecordKind, Subject
from regard.views._start import start_of
from regard.views._widget import make_widget, marimo_object, notebook_bundle


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A rendered page.

    Attributes:
        html: The whole file, to be encoded as UTF-8. Text from outside is in it as ASCII escapes.
        preview: The page in short: `preview.png()` is a picture for links to it.
        encoding: How q and k are stored in it.
        largest_difference: What the page states: the largest difference between a weight it shows and
            float32 arithmetic in Python, rounded up to two significant digits.
        every: Over the weights of every query, 1; or of one query in so many, where the text is too long to
            compare them all.
        values: Whether it holds the values (v) of all heads, of some, or none: see `render_page`.
        heads: Whether it holds q and k of all heads, or only of those that fit.
        held: The heads that it holds, of each (kind, layer).
        records, subject: What a notebook shows: what it was made from, or of a training the last step.
        left_out: Measures that it does not have, though they were asked for or are always wanted, and why.
        beside: Of a live page whose model is in a file of its own, that file's name and content; else None.
        live_difference: Of a live page the largest difference of an attention weight between its model and
            Python's, over some texts; else None.
    """

    html: str = field(repr=False)
    preview: Preview = field(repr=False, compare=False)
    encoding: Encoding
    largest_difference: float
    every: int = 1
    values: Held = "none"
    heads: Held = "all"
    held: Mapping[tuple[RecordKind, int], tuple[int, ...]] = field(default_factory=dict, repr=False)
    records: tuple[AttentionRecord, ...] = field(default=(), repr=False, compare=False)
    subject: Subject | None = field(default=None, repr=False, compare=False)
    left_out: Mapping[str, str] = field(default_factory=dict, repr=False)
    live_difference: float | None = None
    beside: tuple[str, bytes] | None = field(default=None, repr=False)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, whole or not at all, and before it the file beside it, where there is one.

        Args:
            path: The file. An existing file is replaced; a link is followed.

        Raises:
            OutputError: The file could not be written; what was there before is still there.
        """
        # First, so that a page that is there has its weights.
        if self.beside is not None:
            name, content = self.beside
            write_whole(path_of("path", path).parent / name, content)
        write_whole(path, self.html.encode("utf-8"))

    def widget(self) -> Any:
        """The same view as a widget of a notebook, which shows it by itself: an `anywidget.AnyWidget`.

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        return make_widget(self._runs(), self.subject)

    def _runs(self) -> list[LiveRun]:
        return [LiveRun(record=record) for record in self.records]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        del include, exclude
        return notebook_bundle(repr(self), self._runs, self.subject, way='page.write("page.html")')

    def _display_(self) -> Any:  # of marimo
        return marimo_object(repr(self), self.widget)


def render_page(
    *records: AttentionRecord,
    subject: Subject | None = None,
    values: Sequence[HeadName] = (),
    heads: Sequence[HeadName] = (),
    max_mb: float | None = MOST_MB,
    live: LiveRecord | ServedRecord | None = None,
    only: Sequence[HeadName] | None = None,
) -> Page:
    """Renders a run, or several, as one self-contained HTML page.

    The page carries q and k, computes the weights itself, and makes no request. Its scripts and styles are
    named by hash in a Content-Security-Policy, so nothing that a token contains can run.

    Args:
        records: What to show: one run, or those that the subject is of. Of a training the page opens on the
            last.
        subject: What the page is about besides.
        values: Heads, (kind, layer, head), whose values the page holds in any case. It holds those of all
            heads while it stays under 8 MB with them.
        heads: Heads that the page holds in any case, where not all fit. The others that it holds are the
            first of each layer, the second of each, and so on; of those that it does not hold it has the
            statistics and a small picture, and it says so.
        max_mb: What the page may take, in millions of bytes, without a model in it; None is no limit.
        live: The model of one run, to be in the page, or who runs it for the page.
        only: Of one run, heads that the page holds, with their values, and nothing of any other.

    Returns:
        The page. What it says of differences from Python holds for every run.

    Raises:
        InputError: A head that is not there, or has no values; or what is asked for does not fit.

    Example:
        >>> import numpy as np
        >>> from regard.views import LayerRecord, PageToken, Side
        >>> q, k = np.random.default_rng(0).standard_normal((2, 2, 3, 5), dtype=np.float32)
        >>> layers = {"encoder": (LayerRecord(layer=0, q=q, k=k, scale=5**-0.5),)}
        >>> side = Side(text="a bank", tokens=tuple(PageToken(text=text) for text in ("a", "river", "bank")))
        >>> page = render_page(AttentionRecord(model="tiny", encoder=side, layers=layers))
        >>> page.encoding, page.largest_difference < 1e-3, "://" in page.html
        ('int16', True, False)
    """
    page, is_live = _assets.read("page.html"), live is not None
    style, loader = _assets.style(live=is_live), _assets.loader()
    # One run of one kind: a smaller script will do.
    is_usual = subject is None and len(records[0].kinds) == 1
    script = _assets.script(usual=is_usual) if live is None else live.script()
    style_packed, script_packed = _assets.packed_asset(style), _assets.packed_asset(script)
    whole = 0
    # Chosen heads, and their values where they have some.
    if only is not None:
        whole = sum(layer.heads for layers in records[0].layers.values() for layer in layers)
        heads = check_heads(records, only, "only")
        records = (only_heads(records[0], heads),)
        chosen = records[0].layers.items()
        valued = {(kind, layer.layer) for kind, of in chosen for layer in of if layer.v is not None}
        values = [name for name in heads if name[:2] in valued]
    # What every page has, whatever fits besides.
    runs = [begin(record) for record in records]
    first, shown, about = runs[0][0], records, subject
    if subject is not None:
        # The page asks the first run's facts what there is besides.
        first[subject.kind] = subject.facts
        # A film shows its last step in a notebook.
        if subject.kind == "training":
            # A notebook's widget has no steps.
            shown, about = records[-1:], None
    if isinstance(live, LiveRecord):
        live = replace(live, weight=round_up(live.weight))
    if live is not None:
        first["live"] = live.facts()
    # Bytes that are there in any case; the rest is for heads and values.
    plain = sum(len(text.encode()) for text in (style_packed, script_packed, loader, page))
    size = plain + sum(map(_size, runs)) + sum(norm_bytes(each) + _names_bytes(each) for each in records)
    # Which heads fit, in 16 or in 32 bits.
    held, packed = pack_records(records, heads, values, max_mb, size, alone=only is not None)
    first["start"] = start_of(shown, held, about)
    every_mb = (size + all_bytes(records, packed[0].encoding)) / 1e6
    for (facts, blocks, left), record, packed_run in zip(runs, records, packed, strict=True):
        put_heads(record, packed_run, facts, blocks, left)
        # The page says what it lacks, and why.
        if only is not None:
            facts["held"] = {"only": whole}
        elif not held.every:
            facts["held"] = {"most": max_mb, "all": every_mb}
            add_thumbnails(record, held, facts, blocks)
    size = plain + sum(map(_size, runs))
    states: set[Held] = set()
    for number, (facts, blocks, _) in enumerate(runs):
        before = blocks.size
        most = MOST_BYTES if max_mb is None else min(MOST_BYTES, int(max_mb * 1e6))
        # What is left is shared by the runs that are left.
        room = (most - size) // (len(runs) - number) if held.every else 0
        states.add(add_values(records[number], packed[number], facts, blocks, wanted=values, room=room))
        facts["values"]["difference"] = round_up(facts["values"]["difference"])
        size += blocks.size - before
    data = "\n".join(_data(run, f"run{number}-" if number else "") for number, run in enumerate(runs))
    preview = preview_of(records[0], first["start"] if is_usual else None)
    html = wrapped(data, script, live, head=preview.head())
    return Page(
        html=html,
        encoding="int16" if all(each.encoding == "int16" for each in packed) else "float32",
        largest_difference=max(facts["difference"] for facts, *_ in runs),
        every=max(each.every for each in packed),
        values=states.pop() if len(states) == 1 else "some",
        heads="all" if held.every else "some",
        held=held.heads,
        records=shown,
        subject=about,
        left_out={name: reason for *_, left in runs for name, reason in left.items()},
        preview=preview,
        live_difference=live.weight if isinstance(live, LiveRecord) else None,
        beside=(live.beside, live.binary()) if isinstance(live, LiveRecord) and live.beside else None,
    )


def wrapped(data: str, script: str, live: LiveRecord | ServedRecord | None = None, *, head: str) -> str:
    """The HTML around a page's data: what the browser may run is named by its hash."""
    page, style, loader = _assets.read("page.html"), _assets.style(live=live is not None), _assets.loader()
    early = page.split("<style>")[1].split("</style>")[0]  # what is said of a file that ends too soon
    parts = {
        # Nothing is loaded from anywhere, and only these scripts run.
        "policy": (
            f"default-src 'none'; script-src '{digest(loader)}' '{digest(script)}'"
            f"{'' if live is None else live.policy}; "
            f"style-src '{digest(early)}' '{digest(style)}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        "head": head,
        "data": data,
        "style": _assets.packed_asset(style),
        "script": _assets.packed_asset(script),
        "loader": loader,
        "model": "" if live is None else live.html(),
        "asks": NO_REQUEST if live is None else live.asks,
    }
    # One pass, so that nothing inside a part is taken for a placeholder.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)


def pack_records(
    records: Sequence[AttentionRecord],
    heads: Sequence[HeadName] = (),
    values: Sequence[HeadName] = (),
    max_mb: float | None = None,
    size: int = 0,
    *,
    alone: bool = False,
) -> tuple[HeldHeads, list[Packed]]:
    """The heads that the page holds, and their q and k: in 16 bits if that keeps each weight, else in 32.

    `size` is the bytes of all else; with `alone` it holds these heads and no others; the rest as in
    `render_page`.
    """
    if max_mb is not None and not max_mb > 0:
        raise InputError(f"max_mb must be millions of bytes, a number above 0, or None; got {max_mb!r}")
    # Heads whose values are asked for must be held as well.
    asked = [*check_heads(records, heads), *check_heads(records, values, "values")]
    of_values = sum(wanted_bytes(record, values) for record in records)
    room = math.inf if max_mb is None else 1e6 * max_mb - size - of_values
    pictures = 0 if alone else sum(map(thumbnail_bytes, records))
    encodings: tuple[Encoding, ...] = ("int16", "float32")
    for encoding in encodings:
        held = choose_heads(records, asked, room=room, pictures=pictures, encoding=encoding, alone=alone)
        packed = [pack(record, held, encoding) for record in records]
        # 16 bits, if no weight changes in the third decimal.
        if max(each.largest_difference for each in packed) <= TOLERANCE:
            break
    return held, packed


def _names_bytes(record: AttentionRecord) -> int:
    """What the facts take at most that say where the heads' arrays are, and which are held."""
    layers = [layer for layers in record.layers.values() for layer in layers]
    return 4000 + sum(1000 + 8 * layer.heads for layer in layers)


_Run = tuple[dict[str, Any], Blocks, dict[str, str]]


def _size(run: _Run) -> int:
    facts, blocks, _ = run
    return len(_assets.packed(as_json(facts))) + blocks.size + 100


def _data(run: _Run, prefix: str = "") -> str:
    facts, blocks, _ = run
    packed = _assets.packed(as_json(facts))
    return block(f"{prefix}facts", "application/gzip", packed) + "\n" + blocks.html(prefix)


def usages_page(index: str, size: str, fields: Sequence[str] = ()) -> str:
    """The HTML of a page that asks its server, at v1/usages/search, for the uses of words.

    Args:
        index, size: the name of the index, and how large it is, in words: the page shows both.
        fields: what conditions may name, beside what all corpora have.

    Example:
        >>> "connect-src 'self'" in usages_page("brown", "57,340 texts, 1,161,192 words")
        True
    """
    style, script = _assets.usages_style(), _assets.usages_script()
    parts = {
        "policy": (
            f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "script": script,
        "facts": as_json({"index": index, "size": size, "fields": [*fields]}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _assets.read("usages/page.html"))
