"""A run as what a page reads of it: facts and blocks, in a file or from a server."""

import math
from typing import Any

import numpy as np

from regard.views._blocks import Blocks, add_heads, facts_of
from regard.views._budget import all_bytes, choose_heads
from regard.views._measures import add_matrices, add_norms
from regard.views._quantize import Packed, pack
from regard.views._records import AttentionRecord
from regard.views._start import start_of
from regard.views._statistics import add_statistics
from regard.views._story import add_story
from regard.views._thumbnails import add_thumbnails, thumbnail_bytes
from regard.views._values import add_values


def begin(record: AttentionRecord) -> tuple[dict[str, Any], Blocks, dict[str, str]]:
    """The facts and blocks of a run without what each head has of its own, and the measures left out."""
    facts, blocks = facts_of(record)
    add_statistics(record, facts)
    add_story(record, facts, blocks)
    return facts, blocks, add_matrices(record, facts, blocks)


def put_heads(
    record: AttentionRecord, packed: Packed, facts: dict[str, Any], blocks: Blocks, left: dict[str, str]
) -> None:
    """Put q, k and the norms of the heads that are held into them."""
    add_heads(packed, facts, blocks, round_up(packed.largest_difference))
    add_norms(record, packed, facts, blocks, left)
    for measure in [each for kind in facts["kinds"].values() for each in kind["measures"]]:
        measure["difference"] = round_up(measure["difference"])


def page_contents(record: AttentionRecord, *, max_mb: float) -> tuple[dict[str, Any], dict[str, str]]:
    """A run for a page that is there already: its facts, and its blocks by name, in float32.

    Args:
        record: The run.
        max_mb: What it may take, in millions of bytes; of a text too long for that it has some heads, and of
            the others pictures, as in `render_page`.

    Example:
        >>> from regard.views import LayerRecord, PageToken, Side
        >>> q, k = np.random.default_rng(0).standard_normal((2, 2, 3, 5), dtype=np.float32)
        >>> layers = {"encoder": (LayerRecord(layer=0, q=q, k=k, scale=5**-0.5),)}
        >>> side = Side(text="a bank", tokens=tuple(PageToken(text=text) for text in ("a", "river", "bank")))
        >>> record = AttentionRecord(model="tiny", encoder=side, layers=layers)
        >>> facts, blocks = page_contents(record, max_mb=1)
        >>> facts["difference"], sorted(blocks)
        (2.4e-07, ['encoder-0-k', 'encoder-0-q'])
    """
    facts, blocks, left = begin(record)
    size, pictures = blocks.size, thumbnail_bytes(record)
    held = choose_heads([record], [], room=1e6 * max_mb - size, pictures=pictures, encoding="float32")
    facts["start"] = start_of([record], held)
    packed = pack(record, held, "float32")
    put_heads(record, packed, facts, blocks, left)
    if not held.every:
        facts["held"] = {"most": max_mb, "all": (size + all_bytes([record], "float32")) / 1e6}
        add_thumbnails(record, held, facts, blocks)
    room = int(1e6 * max_mb) - blocks.size if held.every else 0
    add_values(record, packed, facts, blocks, wanted=(), room=room)
    facts["values"]["difference"] = round_up(facts["values"]["difference"])
    return facts, blocks.texts


def round_up(value: float) -> float:
    """Round up to two significant digits, so that what is stated holds.

    A float32 weight is itself only known to float32's spacing below 1, and two libraries that are both right
    differ by it, or by two of it: that much is added.
    """
    value += 2 * float(np.finfo(np.float32).eps)
    digits = 1 - math.floor(math.log10(value))
    return float(f"{math.ceil(round(value * 10**digits, 6))}e{-digits}")
