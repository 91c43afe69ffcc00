"""Which heads and measures a page holds: those that are asked for alone, or those for which it has room.

Where all would make it too large, which is forecast before anything is made, the heads that are asked for
come first, then the first head of each layer, the second of each, and so on while they fit. Of the others the
page has the statistics and a small picture.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._blocks import Blocks, plain
from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._quantize import TOLERANCE, Encoding, Packed, Values, quantize, query_blocks, rows_as_values
from regard.views._records import AttentionRecord, HeadName, HeldHeads, MeasureRecord, RecordKind, Side

_Floats = npt.NDArray[np.float32]

MOST_MEASURES = 24_000_000
"""What the matrices of measures may take in a page: a browser opens a file of this size at once."""


# Queries from which the value of a full line is estimated.
_SOME = 64


def matrix_bytes(matrices: int, queries: int, keys: int) -> int:
    """What so many matrices take in a page: 16 bits a number and a step for each row, in base64.

    Example:
        >>> matrix_bytes(6, 512, 512)
        4202496
    """
    return 4 * (-(-matrices * (2 * queries * keys + 2 * queries) // 3))


def add_matrices(record: AttentionRecord, facts: dict[str, Any], blocks: Blocks) -> dict[str, str]:
    """Put the measures that have matrices of their own into a page's facts; the reason for each that it
    lacks.
    """
    left = dict(record.left_out)
    for kind in record.kinds:
        facts["kinds"][kind]["measures"] = []
        for measure in record.measures.get(kind, ()):
            # Norms come later: they depend on the heads held.
            if measure.name != "norm":
                known, difference = _matrices(kind, measure, blocks)
                _put(facts, kind, measure, known, difference, left)
    return left


def add_norms(
    record: AttentionRecord, packed: Packed, facts: dict[str, Any], blocks: Blocks, left: dict[str, str]
) -> None:
    """Put the norms, which the page multiplies its weights by, before the other measures; adds to `left`."""
    for kind in record.kinds:
        for measure in record.measures.get(kind, ()):
            if measure.name == "norm":
                known, difference = _norms(record, packed, kind, measure, blocks)
                _put(facts, kind, measure, known, difference, left)
        # Norms first in the list that a reader sees.
        facts["kinds"][kind]["measures"].sort(key=lambda known: known["name"] != "norm")
    # Arrays without a model have none of them.
    asked = bool(record.measures) or bool(left)
    facts["leftOut"] = [{"name": name, "reason": reason} for name, reason in left.items()] if asked else None


def norm_bytes(record: AttentionRecord) -> int:
    """What norms take in a page."""
    layers = [
        array
        for measures in record.measures.values()
        for measure in measures
        if measure.name == "norm"
        for array in measure.layers
    ]
    return sum(3 * array.size + 24 * len(array) + 300 for array in layers)


def _put(
    facts: dict[str, Any],
    kind: RecordKind,
    measure: MeasureRecord,
    known: list[dict[str, Any]],
    difference: float,
    left: dict[str, str],
) -> None:
    # Better no measure than another number.
    if difference > TOLERANCE:
        left[measure.name] = (
            f"its values are so large that the page's numbers would differ by {difference:.1e}."
        )
        return
    facts["kinds"][kind]["measures"].append(
        {"name": measure.name, "by": measure.by, "of": measure.of, "difference": difference, "layers": known}
    )


def _matrices(kind: RecordKind, measure: MeasureRecord, blocks: Blocks) -> tuple[list[dict[str, Any]], float]:
    known, difference = [], 0.0
    for number, array in enumerate(measure.layers):
        values, read = rows_as_values(array)
        rounding = float(np.abs(array - read).max())
        # As float32, which is exact.
        if rounding > TOLERANCE:
            values, rounding = Values(stored=array), 0.0
        difference = max(difference, rounding)
        most = np.abs(array).max(axis=(1, 2))
        known.append(_known(f"{kind}-{measure.name}-{number}", values, len(array), most, blocks))
    return known, difference


def _norms(
    record: AttentionRecord, packed: Packed, kind: RecordKind, measure: MeasureRecord, blocks: Blocks
) -> tuple[list[dict[str, Any]], float]:
    known, difference = [], 0.0
    of_kind = zip(record.layers[kind], packed.layers[kind], measure.layers, strict=True)
    for number, (layer, kept, norms) in enumerate(of_kind):
        integers, steps = quantize(norms[:, :, None])
        read = (integers.astype(np.float32) * steps[:, None, :])[:, :, 0]
        # A weight is 1 at most, so this is the most that both roundings can do at a key.
        apart = np.abs(norms - read)
        if kind in packed.changes:
            # And by the weights' own rounding.
            apart = apart + packed.changes[kind][number] * np.maximum(norms, read)
        for head in kept.heads:
            most = float(apart[head].max())
            # The bound is too coarse: measure it.
            if most > TOLERANCE:
                most = _apart(layer, kept.shown, head, norms[head], read[head], packed.every)
            difference = max(difference, most)
        values, most_drawn = Values(stored=integers, steps=steps), largest_norms(kept.shown, kept.heads, read)
        known.append(_known(f"{kind}-norm-{number}", values, len(norms), most_drawn, blocks))
    return known, difference


def largest_norms(shown: LayerRecord, heads: Sequence[int], norms: _Floats) -> _Floats:
    """The largest weight times norm of each head, among some queries: how strongly lines are drawn."""
    queries = np.unique(np.linspace(0, shown.queries - 1, _SOME).round().astype(np.int64))
    found = np.zeros(len(norms), np.float32)
    for head in heads:
        rows = weight_rows(shown, head, queries)
        found[head] = (rows[:, : shown.keys] * norms[head]).max()
    return found


def _apart(
    layer: LayerRecord, shown: LayerRecord, head: int, norms: _Floats, read: _Floats, every: int
) -> float:
    largest = 0.0
    for queries in query_blocks(layer, every):
        wanted = weight_rows(layer, head, queries)[:, : layer.keys] * norms
        found = weight_rows(shown, head, queries)[:, : layer.keys] * read
        largest = max(largest, float(np.abs(wanted - found).max()))
    return largest


def _known(name: str, values: Values, heads: int, most: _Floats, blocks: Blocks) -> dict[str, Any]:
    return {
        "heads": heads,
        **blocks.add_values(name, values),
        # The value of a full line.
        "most": plain(most),
    }


MOST_MB = 32.0
"""What a page takes at most, unless more is asked for: a browser opens it within two seconds."""


def choose_heads(
    records: Sequence[AttentionRecord],
    asked: Iterable[HeadName],
    *,
    room: float,
    pictures: int,
    encoding: Encoding,
    alone: bool = False,
) -> HeldHeads:
    """The heads that a page holds, the same of all its runs; with `alone`, those that are asked for and no
    others.

    `room` is the bytes that q, k and dense biases may take, and `pictures` those that it takes besides where
    it does not hold all. An InputError where what is asked for, and one head of each kind, do not fit.
    """
    # In the order in which they are taken.
    every = list(_names(records))
    # All fit: nothing to choose.
    if not alone and all_bytes(records, encoding) <= room:
        return _held(every, every)
    costs = _Costs(records, encoding)
    asked = list(dict.fromkeys(asked))
    # Each kind needs a head, or its view would be empty.
    first = {name[0]: name for name in reversed(every)}  # of each kind
    least = [first[kind] for kind in records[0].kinds if kind not in {kind for kind, _, _ in asked}]
    used = sum(map(costs.take, asked + least)) + pictures
    if used > room:
        said = f"the {len(asked)} heads that are asked for" if asked else "one head of each kind of attention"
        raise InputError(
            f"max_mb must leave room for {said}; the page would take {max(used - room, 1e5) / 1e6:.1f} MB "
            "more than max_mb; give a larger max_mb, fewer heads or a shorter text"
        )
    chosen = dict.fromkeys(asked + least)
    # As many of the others as there is room for.
    for name in () if alone else every:
        if name not in chosen:
            used += costs.take(name)
            if used > room:
                break
            chosen[name] = None
    return _held(chosen, every)


def check_heads(
    records: Sequence[AttentionRecord], heads: Iterable[HeadName], said: str = "heads"
) -> list[HeadName]:
    """Heads that are there; `said` is what they are given as.

    Raises:
        InputError: One is not.
    """
    # A head of any run will do.
    there = set(_names(records))
    named = list(heads)
    for kind, layer, head in named:
        if (kind, layer, head) not in there:
            raise InputError(
                f"{said} must be heads of the model; got head {head} of {kind} layer {layer}; "
                "layers and heads count from 0"
            )
    return named


def all_bytes(records: Sequence[AttentionRecord], encoding: Encoding) -> int:
    """What q, k and dense biases of all heads take in a page."""
    return sum(map(_Costs(records, encoding).take, _names(records)))


class _Costs:
    """What a page takes for one head more: its q and dense bias, and k unless a head before has taken it."""

    def __init__(self, records: Sequence[AttentionRecord], encoding: Encoding) -> None:
        self._layers: dict[tuple[RecordKind, int], list[LayerRecord]] = {}
        for record in records:
            for kind, layers in record.layers.items():
                for layer in layers:
                    self._layers.setdefault((kind, layer.layer), []).append(layer)
        self._size = 2 if encoding == "int16" else 4
        self._taken: set[tuple[RecordKind, int, int]] = set()
        self._biases: set[tuple[int, int]] = set()

    def take(self, name: HeadName) -> int:
        kind, number, head = name
        entries = steps = 0
        for layer in self._layers[kind, number]:
            # Another run may have fewer.
            if head >= layer.heads:
                continue
            if layer.weights is not None:
                entries += layer.queries * layer.keys
                steps += layer.queries
                continue
            dim = layer.q.shape[2]
            entries += layer.queries * dim
            steps += dim
            # k is stored once for a group of heads.
            of_keys = (kind, number, head // layer.group)
            if of_keys not in self._taken:
                entries += layer.keys * dim
                steps += dim
            if layer.bias is None or layer.bias.ndim == 2:
                continue
            # Layers may share a bias, and heads.
            bias = (id(layer.bias), head if len(layer.bias) > 1 else 0)
            if bias not in self._biases:
                self._biases.add(bias)
                entries += layer.queries * layer.keys
                steps += layer.queries
        self._taken.add((kind, number, head // self._layers[kind, number][0].group))
        # Steps have 16 bits, and only integers have them.
        steps = 2 * steps if self._size == 2 else 0
        return 4 * (self._size * entries + steps) // 3 + 16


def _names(records: Sequence[AttentionRecord]) -> Iterator[HeadName]:
    """The heads of some runs in the order in which they are taken: round by round through the layers."""
    names = {
        (kind, layer.layer, head)
        for record in records
        for kind, layers in record.layers.items()
        for layer in layers
        for head in range(layer.heads)
    }
    kinds = records[0].kinds
    # Head 0 of each layer, then head 1: so every layer is there.
    yield from sorted(names, key=lambda name: (name[2], name[1], kinds.index(name[0])))


def _held(names: Collection[HeadName], every: Sequence[HeadName]) -> HeldHeads:
    heads: dict[tuple[RecordKind, int], list[int]] = {(kind, layer): [] for kind, layer, _ in every}
    for kind, layer, head in names:
        heads[kind, layer].append(head)
    found = {each: tuple(sorted(heads[each])) for each in sorted(heads)}
    return HeldHeads(heads=found, every=len(names) == len(every))


def only_heads(record: AttentionRecord, names: Sequence[HeadName]) -> AttentionRecord:
    """The record with the layers of these heads alone, without measures, positions and story.

    Of other heads it has neither statistics nor names; their numbers stay, so that head 11 is still head 11.
    """
    if not names:
        raise InputError("only must be at least one head, such as (5, 11); got none")
    heads: dict[tuple[RecordKind, int], tuple[int, ...]] = {}
    for kind, number, head in sorted(set(names)):
        heads[kind, number] = (*heads.get((kind, number), ()), head)
    layers, statistics, named = {}, {}, {}
    for kind in record.kinds:
        # Layers of which at least one head is asked for.
        places = [i for i, layer in enumerate(record.layers[kind]) if (kind, layer.layer) in heads]
        if not places:
            continue
        layers[kind] = tuple(record.layers[kind][place] for place in places)
        chosen = [heads[kind, layer.layer] for layer in layers[kind]]
        of_kind = record.statistics.get(kind, {})
        statistics[kind] = {name: _blanked(values[places], chosen) for name, values in of_kind.items()}
        named[kind] = _named(record, kind, places, chosen)
    return replace(
        record,
        encoder=_bare(record.encoder),
        decoder=_bare(record.decoder),
        layers=layers,
        statistics=statistics,
        measures={},
        left_out={},
        names=None if record.names is None else {**record.names, "kinds": named},
        story={},
        start=None,
    )


def _blanked(values: np.ndarray, chosen: Sequence[tuple[int, ...]]) -> np.ndarray:
    blank = np.full_like(values, np.nan)
    for place, heads in enumerate(chosen):
        blank[place, list(heads)] = values[place, list(heads)]
    return blank


def _named(
    record: AttentionRecord, kind: RecordKind, places: Sequence[int], chosen: Sequence[tuple[int, ...]]
) -> Any:
    names = None if record.names is None else record.names["kinds"].get(kind)
    if names is None:
        return None
    return [
        [shown if head in heads else [] for head, shown in enumerate(names[place])]
        for place, heads in zip(places, chosen, strict=True)
    ]


def _bare(side: Side | None) -> Side | None:
    return None if side is None else replace(side, positions=None)
