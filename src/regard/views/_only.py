"""A few heads of a run by themselves, for a page that is shown inside another: nothing else is in it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.views._records import AttentionRecord, HeadName, RecordKind, Side


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
