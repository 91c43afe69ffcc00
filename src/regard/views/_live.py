"""A run and what Python computes of it on demand: the data of a notebook's widget."""

from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._blocks import plain
from regard.views._layer_record import LayerRecord
from regard.views._measures import largest_norms
from regard.views._records import AttentionRecord, HeadStatistics, MeasureName, MeasureRecord, RecordKind

Statistics = Callable[[RecordKind], HeadStatistics]
"""The statistics of a kind, on demand."""

Check = Callable[[RecordKind, Mapping[str, int]], Mapping[str, Any]]
"""What becomes of the run without a head (`layer`, `head`), or where no other word looks at that of the token
`unseen`, as plain values.
"""

Work = Generator[float, None, MeasureRecord]
"""One layer of a measure in pieces of a part of a second: yields how much is done, from 0 to 1."""

_SLICE = 0.25
"""Seconds of a measure that are worked out for one question: then others get their answer."""

_MOST_KEPT = 1 << 30
"""Bytes of measures that are kept; beyond them the oldest layer is dropped, and computed again on demand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveMeasures:
    """Measures that are computed layer by layer, on demand.

    Attributes:
        names: What there is of each kind of attention.
        left_out: What there is not, each with the reason.
        work: Works out a measure of (kind, name, layer).
    """

    names: Mapping[RecordKind, Sequence[MeasureName]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    work: Callable[[RecordKind, MeasureName, int], Work]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRun:
    """A run, and who is asked for more of it.

    Attributes:
        record: The run.
        statistics: Its statistics by kind; by default the record's own, or what is counted from its weights.
        check: What becomes of it without a head; None where no model stands behind it.
        measures: What can be drawn in the place of the weights; by default what the record has.
        again: The run of another text; None where no model stands behind it.
    """

    record: AttentionRecord
    statistics: Statistics | None = None
    check: Check | None = None
    measures: LiveMeasures | None = None
    again: Callable[[str], "LiveRun"] | None = None

    def layer(self, kind: RecordKind, number: int) -> LayerRecord:
        """The layer of a number."""
        return next(each for each in self.record.layers[kind] if each.layer == number)

    def offered(self, kind: RecordKind) -> list[dict[str, Any]]:
        """The measures of a kind, as a widget knows them before they are worked out."""
        if self.measures is not None:
            return [{"name": name, "of": ""} for name in self.measures.names.get(kind, ())]
        return [{"name": each.name, "of": each.of} for each in self.record.measures.get(kind, ())]

    def left_out(self) -> list[dict[str, str]] | None:
        """What it does not have, each with the reason; None if unknown, as for given arrays."""
        found = self.record.left_out if self.measures is None else self.measures.left_out
        asked = self.measures is not None or bool(self.record.measures) or bool(found)
        return [{"name": name, "reason": reason} for name, reason in found.items()] if asked else None


class NotKept(InputError):
    """The numbers of a measure are not there: not yet, or no longer."""


_Name = tuple[RecordKind, MeasureName, int]


class Measured:
    """The measures of one run as far as they are worked out."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._working: dict[_Name, tuple[Work, list[float]]] = {}
        self._kept: OrderedDict[_Name, MeasureRecord] = OrderedDict()

    def go_on(self, kind: RecordKind, name: MeasureName, number: int) -> dict[str, Any]:
        """Work on one layer for a part of a second.

        `done` is the share that is worked out, and `seconds` what it took; with 1, `most` is what a full line
        of each head stands for, and `of` what a gradient is of. An InputError where it cannot be had.
        """
        asked = (kind, name, number)
        began, spent, done = perf_counter(), [0.0], 1.0
        if asked not in self._kept and self._run.measures is not None:
            if asked not in self._working:
                self._working[asked] = (self._run.measures.work(kind, name, number), [0.0])
            work, spent = self._working[asked]
            try:
                while True:
                    done = next(work)
                    if perf_counter() - began > _SLICE or done == 0:
                        break
            except StopIteration as end:
                done = 1.0
                del self._working[asked]
                self._keep(asked, end.value)
            except BaseException:
                del self._working[asked]
                raise
            else:
                done = min(done, 0.999)
        spent[0] += perf_counter() - began
        if done < 1:
            return {"done": done, "seconds": spent[0]}
        record, layer = self._known(asked)
        of_layer = self._run.layer(kind, number)
        if name == "norm":
            most = largest_norms(of_layer, range(of_layer.heads), layer)
        else:
            most = np.abs(layer).max(axis=(1, 2))
        return {
            "done": 1,
            "seconds": spent[0],
            "most": plain(most),
            "of": record.of,
        }

    def rows(
        self,
        asked: _Name,
        head: int,
        queries: npt.NDArray[np.int64],
        weights: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.floating[Any]]],
    ) -> npt.NDArray[np.floating[Any]]:
        """Of some queries of a head, (len(queries), keys); `weights` gives theirs. NotKept where not worked
        out.
        """
        _, layer = self._known(asked)
        found: npt.NDArray[np.floating[Any]]
        if asked[1] == "norm":
            found = weights(queries)[:, : layer.shape[1]] * layer[head]
        else:
            found = layer[head if len(layer) > 1 else 0][queries]
        return found

    def _known(self, asked: _Name) -> tuple[MeasureRecord, npt.NDArray[np.float32]]:
        kind, name, number = asked
        if self._run.measures is None:
            place = [each.layer for each in self._run.record.layers[kind]].index(number)
            for record in self._run.record.measures.get(kind, ()):
                if record.name == name:
                    return record, record.layers[place]
        if asked not in self._kept:
            raise NotKept(f"{name} of layer {number} is not worked out; ask for the measure first")
        self._kept.move_to_end(asked)
        return self._kept[asked], self._kept[asked].layers[0]

    def _keep(self, asked: _Name, record: MeasureRecord) -> None:
        self._kept[asked] = record
        sizes = [sum(layer.nbytes for layer in each.layers) for each in self._kept.values()]
        while len(sizes) > 1 and sum(sizes) > _MOST_KEPT:
            self._kept.popitem(last=False)
            del sizes[0]
