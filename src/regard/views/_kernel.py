"""What a notebook's widget asks of Python: rows, columns, steps and what is made of them, worked out then.

The widget's state holds tokens and sizes alone: a long text needs no q and k in the browser.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError, RegardError
from regard.views._blocks import facts_of
from regard.views._measures import add_matrices, add_norms
from regard.views._movement import Movement, movement_facts
from regard.views._position_facts import add_positions
from regard.views._quantize import Packed, PackedLayer, Values
from regard.views._records import AttentionRecord, HeadStatistics, LayerRecord, RecordKind
from regard.views._statistics import head_statistics, plain_statistics
from regard.views._thumbnails import binned, sampled
from regard.views._weights import bias_rows, weight_rows

Statistics = Callable[[RecordKind], HeadStatistics]
"""The statistics of a kind, when somebody looks at them."""

Check = Callable[[RecordKind, int, int], Mapping[str, Any]]
"""What becomes of the run without a head (kind, layer, head), as plain values."""

# Weights of a head that are kept for the columns of it: a smaller head is worked out once, whole.
_MOST_WHOLE = 1 << 22
_KEPT = 16  # such heads
_BLOCK = 1 << 22  # weights worked out together of a larger one

_Asked = Mapping[str, Any]
_Answer = tuple[dict[str, Any], list[bytes]]


def widget_facts(
    records: Sequence[AttentionRecord], movement: Movement | None = None, *, check: bool = False
) -> list[dict[str, Any]]:
    """What the widget knows from the start of each run: tokens, sizes, positions, and no weights.

    Args:
        records: The runs.
        movement: One word in all of them, or None.
        check: Whether there is a causal check.

    Returns:
        For each run its facts and blocks, as plain values: see static/notebook/source.js.
    """
    runs = []
    for record in records:
        slim = {kind: tuple(map(_slim, record.layers[kind])) for kind in record.kinds}
        facts, blocks = facts_of(replace(record, layers=slim))
        add_positions(record, facts, blocks)
        add_norms(record, _packed(record), facts, blocks, add_matrices(record, facts, blocks))
        facts |= {"kernel": True, "check": check, "values": {"held": "all", "difference": 0.0, "every": 1}}
        for kind in record.kinds:
            facts["kinds"][kind]["statistics"] = None  # asked for
            for layer, its_facts in zip(record.layers[kind], facts["kinds"][kind]["layers"], strict=True):
                if layer.bias is not None and layer.bias.ndim == 3:
                    its_facts["bias"] = {"heads": len(layer.bias), "dense": True}
                its_facts["sinks"] = layer.sinks is not None
        runs.append({"facts": facts, "blocks": blocks.texts})
    if movement is not None:
        runs[0]["facts"]["movement"] = movement_facts(movement)
    return runs


class Kernel:
    """Answers what a widget asks of some runs.

    Args:
        records: The runs.
        statistics: Where the first run's statistics come from, if the record has none.
        check: The causal check, of the first run; None where no model stands behind it.
    """

    def __init__(
        self,
        records: Sequence[AttentionRecord],
        *,
        statistics: Statistics | None = None,
        check: Check | None = None,
    ) -> None:
        self._records = records
        self._statistics = statistics
        self._check = check
        self._whole: OrderedDict[tuple[int, RecordKind, int, int], npt.NDArray[np.float32]] = OrderedDict()

    def answers(self, run: int, asks: Sequence[_Asked]) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The answers to some questions, in their order: what is said of each, and the buffers of all.

        A question that cannot be answered gets `{"error": why}`.

        Example:
            >>> layer = LayerRecord.given(0, np.array([[[1, 0], [0.5, 0.5]]], np.float32))
            >>> from regard.views._records import PageToken, Side
            >>> side = Side(text="a b", tokens=(PageToken(text="a"), PageToken(text="b")))
            >>> kernel = Kernel([AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)})])
            >>> asked = {"what": "row", "kind": "encoder", "layer": 0, "head": 0, "query": 1}
            >>> said, buffers = kernel.answers(0, [asked])
            >>> said, np.frombuffer(buffers[0], "<f4").tolist()
            ([{'buffers': 1}], [0.5, 0.5])
        """
        said: list[dict[str, Any]] = []
        buffers: list[bytes] = []
        for asked in asks:
            try:
                told, parts = self._answer(run, asked)
            except (RegardError, MemoryError) as error:
                told, parts = {"error": str(error) or type(error).__name__}, []
            except Exception as error:
                # Whatever it is: a widget that gets no answer waits for ever.
                told, parts = {"error": f"{type(error).__name__}: {error}"}, []
            said.append(told | {"buffers": len(parts)})
            buffers += parts
        return said, buffers

    def _answer(self, run: int, asked: _Asked) -> _Answer:
        what, kind = asked["what"], asked["kind"]
        answers = {
            "row": self._row,
            "column": self._column,
            "steps": self._steps,
            "picture": self._picture,
            "strongest": self._strongest,
            "statistics": self._told,
            "check": self._checked,
        }
        if what not in answers or not 0 <= run < len(self._records) or kind not in self._records[run].kinds:
            raise InputError(
                f"asked: wanted one of {', '.join(answers)} of a run and kind that is there, got {what}"
            )
        return answers[what](run, kind, asked)

    def _layer(self, run: int, kind: RecordKind, number: int) -> LayerRecord:
        return next(each for each in self._records[run].layers[kind] if each.layer == number)

    def _rows(
        self, run: int, kind: RecordKind, number: int, head: int, queries: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.floating[Any]]:
        known = self._whole.get((run, kind, number, head))
        return weight_rows(self._layer(run, kind, number), head, queries) if known is None else known[queries]

    def _matrix(self, run: int, kind: RecordKind, number: int, head: int) -> npt.NDArray[np.float32] | None:
        """A head's weights, (queries, keys), and the sink's column; None where they are many."""
        layer = self._layer(run, kind, number)
        if layer.queries * layer.keys > _MOST_WHOLE:
            return None
        name = (run, kind, number, head)
        if name not in self._whole:
            rows = weight_rows(layer, head, np.arange(layer.queries))
            self._whole[name] = rows.astype(np.float32)
            if len(self._whole) > _KEPT:
                self._whole.popitem(last=False)
        self._whole.move_to_end(name)
        return self._whole[name]

    def _row(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        queries = np.array([asked["query"]])
        return {}, [_floats(self._rows(run, kind, asked["layer"], asked["head"], queries))]

    def _column(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        number, head, key = asked["layer"], asked["head"], asked["key"]
        layer = self._layer(run, kind, number)
        if key == layer.keys and layer.sinks is None:  # where another layer has one
            return {}, [_floats(np.zeros(layer.queries))]
        whole = self._matrix(run, kind, number, head)
        if whole is not None:
            return {}, [_floats(whole[:, key])]
        step = max(1, _BLOCK // layer.keys)
        blocks = [np.arange(layer.queries)[start : start + step] for start in range(0, layer.queries, step)]
        return {}, [_floats(np.concatenate([weight_rows(layer, head, each)[:, key] for each in blocks]))]

    def _steps(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        """What one query's weights and result are made of: the browser shows each step of it."""
        head, queries = asked["head"], np.array([asked["query"]])
        layer = self._layer(run, kind, asked["layer"])
        if layer.weights is not None:
            raise InputError("steps: weights that were given have none; choose a layer that was traced")
        of_keys = head // layer.group
        allowed = (
            np.ones((1, layer.keys), bool)
            if layer.mask is None
            else layer.mask.rows(head, queries, layer.keys)
        )
        said = {
            "scale": layer.scale,
            "softcap": layer.softcap,
            "sink": None if layer.sinks is None else float(layer.sinks[head]),
            "vDim": None if layer.v is None else layer.v.shape[2],
        }
        return said, [
            _floats(layer.q[head, queries]),
            _floats(layer.k[of_keys]),
            b"" if layer.bias is None else _floats(bias_rows(layer, head, queries)),
            np.packbits(allowed[0], bitorder="little").tobytes(),
            b"" if layer.v is None else _floats(layer.v[of_keys]),
        ]

    def _picture(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        """A thumbnail: evenly spaced queries, the largest weight in each bin of keys: see thumbnails.js."""
        width, height = asked["width"], asked["height"]
        queries, keys = _places(asked["queries"]), _places(asked["keys"])
        rows = self._rows(run, kind, asked["layer"], asked["head"], sampled(queries, height))
        return {}, [_floats(binned(rows, keys, width))]

    def _strongest(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        """The largest weights between units, [first, last]: sums over keys' pieces, means over queries'."""
        count = asked["count"]
        queries, keys = np.array(asked["queries"]).reshape(-1, 2), np.array(asked["keys"]).reshape(-1, 2)
        found: list[tuple[float, int, dict[str, Any]]] = []
        for number, head in asked["heads"]:
            layer = self._layer(run, kind, number)
            step = max(1, _BLOCK // layer.keys // int((queries[:, 1] - queries[:, 0]).max(initial=0) + 1))
            for start in range(0, len(queries) if len(keys) else 0, step):
                some = queries[start : start + step]
                means = self._between(run, kind, (number, head), some, keys)
                for place in np.argsort(-means, axis=None, kind="stable")[:count]:
                    query, key = np.unravel_index(place, means.shape)
                    weight = float(means[query, key])
                    entry = {
                        "layer": number,
                        "head": head,
                        "query": int(some[query, 0]),
                        "key": int(keys[key, 0]),
                    }
                    found.append((-weight, len(found), entry | {"weight": weight}))
            found = sorted(found)[:count]
        return {"strongest": [entry for *_, entry in found]}, []

    def _between(
        self,
        run: int,
        kind: RecordKind,
        head: tuple[int, int],
        queries: npt.NDArray[np.int64],
        keys: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64]:
        places = [np.arange(first, last + 1) for first, last in queries]
        rows = self._rows(run, kind, *head, np.concatenate(places))
        sums = np.cumsum(np.pad(rows, ((0, 0), (1, 1))), axis=1, dtype=np.float64)
        single = bool((keys[:, 0] == keys[:, 1]).all())
        of_keys = (
            np.pad(rows, ((0, 0), (0, 1)))[:, keys[:, 0]]
            if single
            else sums[:, keys[:, 1] + 1] - sums[:, keys[:, 0]]
        )
        starts = np.cumsum([0, *map(len, places[:-1])])
        means: npt.NDArray[np.float64] = np.add.reduceat(of_keys, starts, axis=0, dtype=np.float64)
        means /= np.array([len(each) for each in places])[:, None]
        return means

    def _told(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        record = self._records[run]
        if record.statistics.get(kind):
            found = record.statistics[kind]
        elif self._statistics is not None and run == 0:
            found = self._statistics(kind)
        else:
            found = head_statistics(record, kind)
        return {"statistics": plain_statistics(found)}, []

    def _checked(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        if self._check is None or run != 0:
            raise InputError("check: no model stands behind this picture; show a trace of a loaded model")
        return {"check": dict(self._check(kind, asked["layer"], asked["head"]))}, []


def _packed(record: AttentionRecord) -> Packed:
    """The record as norms are filled from it, without q and k."""
    nothing = Values(stored=np.empty(0, np.float32))
    layers = {
        kind: tuple(
            PackedLayer(q=nothing, k=nothing, bias=None, shown=each, heads=tuple(range(each.heads)))
            for each in record.layers[kind]
        )
        for kind in record.kinds
    }
    return Packed(encoding="float32", layers=layers, largest_difference=0.0, every=1)


def _slim(layer: LayerRecord) -> LayerRecord:
    line = layer.bias is not None and layer.bias.ndim == 2
    window = None if layer.mask is None else replace(layer.mask, keys=None, segments=None, bits=None)
    return replace(layer, mask=window, sinks=None, bias=layer.bias if line else None)


def _places(ranges: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.arange(first, last + 1) for first, last in ranges])


def _floats(values: npt.NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values, dtype="<f4").tobytes()
