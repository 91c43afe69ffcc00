"""A run as what a page reads of it: facts, blocks and small pictures of heads, in a file or from a server.

A small picture has evenly spaced queries, and for each bin of keys the largest weight. The page makes its own
from q and k (static/base/thumbnails.js); of heads that it does not hold, and in a notebook, it gets them from
here, the same to the pixel.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._assets import drawing
from regard.views._blocks import Blocks, add_heads, add_values, facts_of, plain
from regard.views._budget import add_matrices, add_norms, all_bytes, choose_heads
from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._quantize import TOLERANCE, Packed, Values, by_dimension, pack
from regard.views._records import (
    SHOWN,
    AttentionRecord,
    HeadStatistics,
    HeldHeads,
    PageToken,
    RecordKind,
    StoryNeurons,
    StoryRecord,
    StoryRow,
)
from regard.views._start import start_of

SIDE: int = drawing()["thumbnail"]["side"]
"""Queries and bins of keys at most."""

_Places = npt.NDArray[np.int64]


def sampled(queries: _Places, height: int) -> _Places:
    """So many of some queries, evenly spaced."""
    # The middle of each of `height` equal parts.
    return queries[((np.arange(height) + 0.5) * len(queries) / height).astype(np.int64)]


def binned(rows: npt.NDArray[np.floating[Any]], keys: _Places, width: int) -> npt.NDArray[np.floating[Any]]:
    """The largest of some rows' numbers in each of `width` bins of keys, whatever its sign: (rows, width).

    One key past the last is a sink, of which rows without one have 0.
    """
    # One column more, for a sink that this layer lacks.
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
        # One picture with special tokens; one without, if there are any.
        pictures = {"all": _block(record, kind, held, blocks, specials=True, sink=sink)}
        if sink or any(token.special for side in record.sides(kind) for token in side.tokens):
            pictures["plain"] = _block(record, kind, held, blocks, specials=False, sink=sink)
        facts["kinds"][kind]["pictures"] = pictures


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
        for head in sorted(set(range(layer.heads)) - set(held.of_layer(kind, layer)))
    ]
    if not pictures:
        return None
    return blocks.add(f"{kind}-pictures-{'all' if specials else 'plain'}", np.stack(pictures))


def _places(tokens: tuple[PageToken, ...], specials: bool) -> _Places:
    return np.array([i for i, token in enumerate(tokens) if specials or not token.special], np.int64)


def _levels(layer: LayerRecord, head: int, queries: _Places, keys: _Places) -> npt.NDArray[np.uint8]:
    height, width = min(SIDE, len(queries)), min(SIDE, len(keys))
    # Only the rows that the picture shows.
    rows = weight_rows(layer, head, sampled(queries, height))
    picture = binned(rows, keys, width)
    largest = float(picture.max())
    # As the page does it: a weight of 0.1 beside one of 1 would otherwise vanish.
    levels: npt.NDArray[np.uint8] = (255 * np.sqrt(picture / (largest or 1.0))).astype(np.uint8)
    return levels


_Floats = npt.NDArray[np.float32]


def begin(record: AttentionRecord) -> tuple[dict[str, Any], Blocks, dict[str, str]]:
    """The facts and blocks of a run without what each head has of its own, and the measures left out."""
    facts, blocks = facts_of(record)
    for kind in record.kinds:
        # A trace comes with statistics; those of arrays are worked out here.
        found = record.statistics.get(kind) or head_statistics(record, kind)
        facts["kinds"][kind]["statistics"] = {name: plain(values) for name, values in found.items()}
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
    # As many heads as an answer may have.
    held = choose_heads([record], [], room=1e6 * max_mb - size, pictures=pictures, encoding="float32")
    facts["start"] = start_of([record], held)
    packed = pack(record, held, "float32")
    put_heads(record, packed, facts, blocks, left)
    # The others as small pictures.
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
    # Rounded up in the second digit.
    digits = 1 - math.floor(math.log10(value))
    return float(f"{math.ceil(round(value * 10**digits, 6))}e{-digits}")


def head_statistics(record: AttentionRecord, kind: RecordKind) -> HeadStatistics:
    """Statistics of a record that came without: of weights that were given, there is no trace to ask.

    They are means over all queries by the definitions of `regard.tracing.Statistics`, of what a page knows of
    tokens: by name, (layers, heads); NaN where a layer has fewer heads.
    """
    layers = record.layers[kind]
    of_keys = record.sides(kind)[1]
    heads = max(layer.heads for layer in layers)
    sink = any(layer.sinks is not None for layer in layers)
    statistics: dict[str, npt.NDArray[np.float32]] = {}
    # Head by head, so that no two matrices are in memory.
    for place, layer in enumerate(layers):
        for head in range(layer.heads):
            means = _means(layer, head, of_keys.tokens, cross=kind == "cross", sink=sink)
            for name, mean in means.items():
                empty = np.full((len(layers), heads), np.nan, np.float32)
                statistics.setdefault(name, empty)[place, head] = mean
    return statistics


def _means(
    layer: LayerRecord, head: int, tokens: tuple[PageToken, ...], *, cross: bool, sink: bool
) -> dict[str, float]:
    special = np.array([token.special for token in tokens])
    rows = weight_rows(layer, head, np.arange(layer.queries))
    weights = rows[:, : layer.keys]
    # Means over queries: the same statistics as of a trace.
    by_query = {
        "entropy": -(rows * np.log(np.maximum(rows, np.finfo(rows.dtype).tiny))).sum(axis=1),
        "largest": weights.max(axis=1),
        "to_first": weights[:, 0],
    }
    if special.any():
        by_query["to_special"] = weights[:, special].sum(axis=1)
    if sink:
        by_query["to_sink"] = rows[:, layer.keys :].sum(axis=1)
    if not cross:
        away = np.abs(np.subtract.outer(np.arange(layer.queries), np.arange(layer.keys)))
        total = weights.sum(axis=1)
        by_query["distance"] = (weights * away).sum(axis=1) / np.where(total > 0, total, 1)
        by_query["to_self"] = weights.diagonal()
        # The first query has no token before it, and the last none after it: they do not count there.
        by_query["to_previous"], by_query["to_next"] = weights.diagonal(-1), weights.diagonal(1)
    return {name: float(values.mean()) for name, values in by_query.items() if len(values)}


def add_story(record: AttentionRecord, facts: dict[str, Any], blocks: Blocks) -> None:
    """Puts the story of each stack into a page's facts and blocks, where there is one."""
    if record.story:
        facts["story"] = {name: _story(name, story, blocks) for name, story in record.story.items()}


def _story(name: str, story: StoryRecord, blocks: Blocks) -> dict[str, Any]:
    dim = story.rows[-1].dim
    # Sums are not stored: the page adds them up.
    stored = [row.values for row in story.rows if not row.total]
    whole = np.zeros((len(stored), len(story.tokens), min(SHOWN, dim)), np.float32)
    for place, values in enumerate(stored):
        whole[place, :, : values.shape[1]] = values[:, : whole.shape[2]]
    packed, read = by_dimension(whole)
    difference = _difference(story, read)
    # Rounded, a sum would show another digit.
    if difference > TOLERANCE / 2:
        packed, difference = Values(stored=whole), _difference(story, whole)
    return {
        "tokens": list(story.tokens),
        "ids": list(story.ids),
        "vocabulary": story.vocabulary,
        "dim": dim,
        "shown": whole.shape[2],
        "difference": difference,
        "rows": [_row_facts(row, dim) for row in story.rows],
        "values": blocks.add_values(f"{name}-story", packed),
        "lengths": blocks.add(f"{name}-story-lengths", np.stack([row.lengths for row in story.rows])),
        "moved": blocks.add(f"{name}-story-moved", story.moved),
        "neurons": _neuron_facts(name, story.neurons, blocks),
        "parts": _part_facts(name, story, blocks),
        "ending": None if story.ending is None else dict(story.ending),
    }


def _row_facts(row: StoryRow, dim: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"layer": row.layer, "part": row.part, "name": row.name}
    if row.total:
        facts["sum"] = list(row.total)
    if row.hidden is not None:
        facts["hidden"] = row.hidden
    # Embeddings that are narrower than the layers.
    if row.dim != dim:
        facts["dim"] = row.dim
    return facts


def _neuron_facts(name: str, neurons: StoryNeurons | None, blocks: Blocks) -> dict[str, Any] | None:
    if neurons is None:
        return None
    return {
        "layers": list(neurons.layers),
        "count": neurons.count,
        "top": neurons.places.shape[2],
        "places": blocks.add(f"{name}-story-neurons", neurons.places),
        "values": blocks.add(f"{name}-story-neuron-values", neurons.values),
        "active": blocks.add(f"{name}-story-active", neurons.active),
    }


def _part_facts(name: str, story: StoryRecord, blocks: Blocks) -> dict[str, Any] | None:
    if not story.heads:
        return None
    # Layers may have different numbers of heads.
    most = max(lengths.shape[1] for lengths in story.heads.values())
    whole = [np.pad(lengths, ((0, 0), (0, most - lengths.shape[1]))) for lengths in story.heads.values()]
    return {
        "attentions": [{"kind": kind, "layer": layer} for kind, layer in story.heads],
        "heads": most,
        "lengths": blocks.add(f"{name}-story-parts", np.stack(whole)),
    }


def _difference(story: StoryRecord, read: _Floats) -> float:
    """The largest difference of a number that a reader sees: of what is stored, and of the sums of it."""
    stored = iter(read)
    seen: list[npt.NDArray[np.float64]] = []
    largest = 0.0
    # As the page does it: what is stored, and sums of rows before.
    for row in story.rows:
        seen.append(
            np.sum([seen[place] for place in row.total], axis=0)
            if row.total
            else next(stored).astype(np.float64)
        )
        width = min(row.values.shape[1], read.shape[2])
        apart = seen[-1][:, :width] - row.values[:, :width]
        largest = max(largest, float(np.abs(apart).max()))
    return largest
