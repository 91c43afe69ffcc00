"""A story in a page: of each vector the first numbers, for eyes, and exact lengths, cosines and distances."""

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._blocks import Blocks
from regard.views._quantize import TOLERANCE, Values, by_dimension
from regard.views._records import AttentionRecord
from regard.views._story_record import SHOWN, StoryNeurons, StoryRecord, StoryRow

_Floats = npt.NDArray[np.float32]


def add_story(record: AttentionRecord, facts: dict[str, Any], blocks: Blocks) -> None:
    """Puts the story of each stack into a page's facts and blocks, where there is one."""
    if record.story:
        facts["story"] = {name: _story(name, story, blocks) for name, story in record.story.items()}


def _story(name: str, story: StoryRecord, blocks: Blocks) -> dict[str, Any]:
    dim = story.rows[-1].dim
    stored = [row.values for row in story.rows if not row.total]
    whole = np.zeros((len(stored), len(story.tokens), min(SHOWN, dim)), np.float32)
    for place, values in enumerate(stored):
        whole[place, :, : values.shape[1]] = values[:, : whole.shape[2]]
    packed, read = by_dimension(whole)
    difference = _difference(story, read)
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
