"""A head as a small picture: evenly spaced queries, and for each bin of keys the largest weight.

The page makes its own from q and k (static/base/thumbnails.js); of heads that it does not hold, and in a
notebook, it gets them from here, the same to the pixel.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._assets import drawing
from regard.views._blocks import Blocks
from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._records import AttentionRecord, HeldHeads, PageToken, RecordKind

SIDE: int = drawing()["thumbnail"]["side"]
"""Queries and bins of keys at most."""

_Places = npt.NDArray[np.int64]


def sampled(queries: _Places, height: int) -> _Places:
    """So many of some queries, evenly spaced."""
    return queries[((np.arange(height) + 0.5) * len(queries) / height).astype(np.int64)]


def binned(rows: npt.NDArray[np.floating[Any]], keys: _Places, width: int) -> npt.NDArray[np.floating[Any]]:
    """The largest of some rows' numbers in each of so many bins of keys, whatever its sign: (rows, width).

    One key past the last is a sink, of which rows without one have 0.
    """
    picked = np.pad(rows, ((0, 0), (0, 1)))[:, keys]
    first = np.searchsorted(np.arange(len(keys)) * width // len(keys), np.arange(width))
    above, below = np.maximum.reduceat(picked, first, axis=1), np.minimum.reduceat(picked, first, axis=1)
    largest: npt.NDArray[np.floating[Any]] = np.where(-below > above, below, above)
    return largest


def add_thumbnails(record: AttentionRecord, held: HeldHeads, facts: dict[str, Any], blocks: Blocks) -> None:
    """Puts pictures of the heads that a page does not hold into its facts and blocks.

    They are of all tokens, and, where there are some that the model added, of the others too. Each is
    (height, width), 0 to 255, for each head that is not held, layer by layer.
    """
    for kind in record.kinds:
        sink = any(layer.sinks is not None for layer in record.layers[kind])
        made = {"all": _block(record, kind, held, blocks, specials=True, sink=sink)}
        if sink or any(token.special for side in record.sides(kind) for token in side.tokens):
            made["plain"] = _block(record, kind, held, blocks, specials=False, sink=sink)
        facts["kinds"][kind]["pictures"] = made


def thumbnail_bytes(record: AttentionRecord) -> int:
    """What they take in a page at most."""
    return sum(
        # With special tokens and without.
        2 * (4 * min(SIDE, layer.queries) * min(SIDE, layer.keys + 1) // 3 + 4) * layer.heads
        for layers in record.layers.values()
        for layer in layers
    )


def _block(
    record: AttentionRecord, kind: RecordKind, held: HeldHeads, blocks: Blocks, *, specials: bool, sink: bool
) -> str | None:
    of_queries, of_keys = (_places(side.tokens, specials) for side in record.sides(kind))
    if sink and specials:
        of_keys = np.append(of_keys, len(record.sides(kind)[1].tokens))
    if not len(of_queries) or not len(of_keys):
        return None
    pictures = [
        _levels(layer, head, of_queries, of_keys)
        for layer in record.layers[kind]
        for head in sorted(set(range(layer.heads)) - set(held.of(kind, layer)))
    ]
    if not pictures:
        return None
    return blocks.add(f"{kind}-pictures-{'all' if specials else 'plain'}", np.stack(pictures))


def _places(tokens: tuple[PageToken, ...], specials: bool) -> _Places:
    return np.array([i for i, token in enumerate(tokens) if specials or not token.special], np.int64)


def _levels(layer: LayerRecord, head: int, queries: _Places, keys: _Places) -> npt.NDArray[np.uint8]:
    height, width = min(SIDE, len(queries)), min(SIDE, len(keys))
    rows = weight_rows(layer, head, sampled(queries, height))
    picture = binned(rows, keys, width)
    largest = float(picture.max())
    # As the page does it: a weight of 0.1 beside one of 1 would otherwise vanish.
    levels: npt.NDArray[np.uint8] = (255 * np.sqrt(picture / (largest or 1.0))).astype(np.uint8)
    return levels
