"""Which heads a page holds: those that are asked for alone, or those for which it has room.

Where all would make it too large, which is forecast before anything is made, the heads that are asked for
come first, then the first head of each layer, the second of each, and so on while they fit. Of the others the
page has the statistics and a small picture.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.views._layer_record import LayerRecord
from regard.views._quantize import Encoding
from regard.views._records import AttentionRecord, HeadName, HeldHeads, RecordKind, Side

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
    every = list(_names(records))
    if not alone and all_bytes(records, encoding) <= room:
        return _held(every, every)
    costs = _Costs(records, encoding)
    asked = list(dict.fromkeys(asked))
    first = {name[0]: name for name in reversed(every)}  # of each kind
    least = [first[kind] for kind in records[0].kinds if kind not in {kind for kind, _, _ in asked}]
    used = sum(map(costs.take, asked + least)) + pictures
    if used > room:
        said = f"the {len(asked)} heads that are asked for" if asked else "one head of each kind of attention"
        raise InputError(
            f"max_mb must leave room for {said}; the page would take {_mb(used - room)} MB more than "
            "max_mb; give a larger max_mb, fewer heads or a shorter text"
        )
    chosen = dict.fromkeys(asked + least)
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
    there = set(_names(records))
    found = list(heads)
    for kind, layer, head in found:
        if (kind, layer, head) not in there:
            raise InputError(
                f"{said} must be heads of the model; got head {head} of {kind} layer {layer}; "
                "layers and heads count from 0"
            )
    return found


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
            if head >= layer.heads:
                continue
            if layer.weights is not None:
                entries += layer.queries * layer.keys
                steps += layer.queries
                continue
            dim = layer.q.shape[2]
            entries += layer.queries * dim
            steps += dim
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
        steps = 2 * steps if self._size == 2 else 0
        return 4 * (self._size * entries + steps) // 3 + 16


def _names(records: Sequence[AttentionRecord]) -> Iterator[HeadName]:
    """The heads of some runs in the order in which they are taken: round by round through the layers."""
    found = {
        (kind, layer.layer, head)
        for record in records
        for kind, layers in record.layers.items()
        for layer in layers
        for head in range(layer.heads)
    }
    kinds = records[0].kinds
    yield from sorted(found, key=lambda name: (name[2], name[1], kinds.index(name[0])))


def _held(names: Collection[HeadName], every: Sequence[HeadName]) -> HeldHeads:
    heads: dict[tuple[RecordKind, int], list[int]] = {(kind, layer): [] for kind, layer, _ in every}
    for kind, layer, head in names:
        heads[kind, layer].append(head)
    found = {each: tuple(sorted(heads[each])) for each in sorted(heads)}
    return HeldHeads(heads=found, every=len(names) == len(every))


def _mb(size: float) -> str:
    return f"{max(size, 1e5) / 1e6:.1f}"


def only_heads(record: AttentionRecord, names: Sequence[HeadName]) -> AttentionRecord:
    """The record with the layers of these heads alone, without measures, positions and story.

    Of other heads it has neither statistics nor names; their numbers stay, so that head 11 is still head 11.
    """
    if not names:
        raise InputError("only must be at least one head, such as (5, 11); got none")
    heads: dict[tuple[RecordKind, int], tuple[int, ...]] = {}
    for kind, number, head in sorted(set(names)):
        heads[kind, number] = (*heads.get((kind, number), ()), head)
    layers, statistics, told = {}, {}, {}
    for kind in record.kinds:
        places = [i for i, layer in enumerate(record.layers[kind]) if (kind, layer.layer) in heads]
        if not places:
            continue
        layers[kind] = tuple(record.layers[kind][place] for place in places)
        chosen = [heads[kind, layer.layer] for layer in layers[kind]]
        of_kind = record.statistics.get(kind, {})
        statistics[kind] = {name: _blanked(values[places], chosen) for name, values in of_kind.items()}
        told[kind] = _named(record, kind, places, chosen)
    return replace(
        record,
        encoder=_bare(record.encoder),
        decoder=_bare(record.decoder),
        layers=layers,
        statistics=statistics,
        measures={},
        left_out={},
        names=None if record.names is None else {**record.names, "kinds": told},
        story={},
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
