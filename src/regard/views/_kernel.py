"""What a notebook's widget asks of Python: rows, columns, steps and what is made of them, worked out then.

The widget's state holds tokens and sizes alone: a long text needs no q and k in the browser.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError, RegardError
from regard.views._blocks import facts_of, plain
from regard.views._contents import add_story, binned, head_statistics, sampled
from regard.views._layer_record import LayerRecord, bias_rows, weight_rows
from regard.views._live import LiveRun, Measured, NotKept
from regard.views._records import RecordKind, Subject, every_head
from regard.views._start import start_of

# Weights of a head that are kept for the columns of it: a smaller head is worked out once, whole.
_MOST_WHOLE = 1 << 22
_KEPT = 16  # such heads
_BLOCK = 1 << 22  # weights worked out together of a larger one

_Places = npt.NDArray[np.int64]
_Asked = Mapping[str, Any]
_Answer = tuple[dict[str, Any], list[bytes]]


def widget_facts(runs: Sequence[LiveRun], subject: Subject | None = None) -> list[dict[str, Any]]:
    """What the widget knows from the start of each run: tokens, sizes, positions, and no weights.

    The first has the facts of the subject too. Plain values: see static/notebook/source.js.
    """
    of_runs = []
    for run in runs:
        record = run.record
        # Sizes and windows; numbers are asked for.
        slim = {kind: tuple(map(_slim, record.layers[kind])) for kind in record.kinds}
        facts, blocks = facts_of(replace(record, layers=slim))
        add_story(record, facts, blocks)
        # What a widget can ask for, beside what every page has.
        facts |= {
            "kernel": True,
            "check": run.check is not None,
            "typed": (typed := run.again is not None and len(runs) == 1 and subject is None),
            "writes": typed and run.writes is not None,
            "chat": run.chat,
            "values": {"held": "all", "difference": 0.0, "every": 1},
            "leftOut": run.left_out(),
        }
        for kind in record.kinds:
            of_kind = facts["kinds"][kind]
            of_kind |= {"statistics": None, "measures": run.offered(kind)}  # both are asked for
            for layer, its_facts in zip(record.layers[kind], of_kind["layers"], strict=True):
                if layer.bias is not None and layer.bias.ndim == 3:
                    its_facts["bias"] = {"heads": len(layer.bias), "dense": True}
                its_facts["sinks"] = layer.sinks is not None
        of_runs.append({"facts": facts, "blocks": blocks.texts})
    # The start is found here: the browser has no weights.
    records = [run.record for run in runs]
    of_runs[0]["facts"]["start"] = start_of(records, every_head(records[0]), subject)
    if subject is not None:
        of_runs[0]["facts"][subject.kind] = subject.facts
    return of_runs


class Kernel:
    """Answers what a widget asks of some runs.

    Args:
        runs: The runs.
    """

    def __init__(self, runs: Sequence[LiveRun]) -> None:
        self._runs = runs
        self._measured = [Measured(run) for run in runs]
        self._whole: OrderedDict[tuple[int, RecordKind, int, int], npt.NDArray[np.float32]] = OrderedDict()

    def answers(self, run: int, asks: Sequence[_Asked]) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The answers to some questions, in their order: what is said of each, and the buffers of all.

        A question that cannot be answered gets `{"error": why}`.

        Example:
            >>> layer = LayerRecord.of_weights(0, np.array([[[1, 0], [0.5, 0.5]]], np.float32))
            >>> from regard.views._records import (AttentionRecord, PageToken, Side)
            >>> side = Side(text="a b", tokens=(PageToken(text="a"), PageToken(text="b")))
            >>> record = AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)})
            >>> kernel = Kernel([LiveRun(record=record)])
            >>> asked = {"what": "row", "kind": "encoder", "layer": 0, "head": 0, "query": 1}
            >>> said, buffers = kernel.answers(0, [asked])
            >>> said, np.frombuffer(buffers[0], "<f4").tolist()
            ([{'buffers': 1}], [0.5, 0.5])
        """
        said: list[dict[str, Any]] = []
        buffers: list[bytes] = []
        # Each by itself: one that fails leaves the others.
        for asked in asks:
            try:
                answer, parts = self._answer(run, asked)
            except NotKept:
                answer, parts = {"gone": True}, []
            except (RegardError, MemoryError) as error:
                answer, parts = {"error": str(error) or type(error).__name__}, []
            except Exception as error:
                # Whatever it is: a widget that gets no answer waits for ever.
                answer, parts = {"error": f"{type(error).__name__}: {error}"}, []
            said.append(answer | {"buffers": len(parts)})
            buffers += parts
        return said, buffers

    def _answer(self, run: int, asked: _Asked) -> _Answer:
        what, kind = asked["what"], asked["kind"]
        # By what is asked for.
        answers = {
            "row": self._row,
            "column": self._column,
            "steps": self._steps,
            "picture": self._picture,
            "strongest": self._strongest,
            "statistics": self._told,
            "measure": self._worked,
            "check": self._checked,
        }
        if what not in answers or not 0 <= run < len(self._runs) or kind not in self._runs[run].record.kinds:
            raise InputError(
                f"asked must be one of {', '.join(answers)} of a run and kind that is there; got {what}"
            )
        return answers[what](run, kind, asked)

    def _rows(
        self, run: int, kind: RecordKind, asked: _Asked, number: int, head: int, queries: _Places
    ) -> npt.NDArray[np.floating[Any]]:
        """What is asked for, the weights or a measure, of some queries of a head."""

        def weights(of: _Places) -> npt.NDArray[np.floating[Any]]:
            # A head that is kept whole needs no arithmetic.
            known = self._whole.get((run, kind, number, head))
            return weight_rows(self._runs[run].layer(kind, number), head, of) if known is None else known[of]

        name = asked.get("of", "weights")
        if name == "weights":
            return weights(queries)
        return self._measured[run].rows((kind, name, number), head, queries, weights)

    def _keep_whole(self, run: int, kind: RecordKind, number: int, head: int) -> None:
        """Works out a head's weights, with the sink's column, where they are not many, and keeps them."""
        layer = self._runs[run].layer(kind, number)
        # A column of a large head is worked out in blocks instead.
        if layer.queries * layer.keys > _MOST_WHOLE:
            return
        name = (run, kind, number, head)
        if name not in self._whole:
            rows = weight_rows(layer, head, np.arange(layer.queries))
            self._whole[name] = rows.astype(np.float32)
            if len(self._whole) > _KEPT:
                # The one that was used longest ago.
                self._whole.popitem(last=False)
        self._whole.move_to_end(name)

    def _row(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        queries = np.array([asked["query"]])
        return {}, [_floats(self._rows(run, kind, asked, asked["layer"], asked["head"], queries))]

    def _column(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        number, head, key = asked["layer"], asked["head"], asked["key"]
        layer, of = self._runs[run].layer(kind, number), asked.get("of", "weights")
        if key == layer.keys and (layer.sinks is None or of != "weights"):
            return {}, [_floats(np.zeros(layer.queries))]  # a sink that another layer has, or the weights
        if of in ("weights", "norm"):
            self._keep_whole(run, kind, number, head)
        # Rows of a block, so that memory stays the same for any text.
        step = max(1, _BLOCK // layer.keys)
        queries = np.arange(layer.queries)
        blocks = [queries[start : start + step] for start in range(0, layer.queries, step)]
        column = [self._rows(run, kind, asked, number, head, each)[:, key] for each in blocks]
        return {}, [_floats(np.concatenate(column))]

    def _steps(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        """What one query's weights and result are made of: the browser shows each step of it."""
        head, queries = asked["head"], np.array([asked["query"]])
        layer = self._runs[run].layer(kind, asked["layer"])
        if layer.weights is not None:
            raise InputError("steps: weights that were given have none; choose a layer that was traced")
        # The key head of this query head.
        of_keys = head // layer.group
        allowed = (
            np.ones((1, layer.keys), bool)
            if layer.mask is None
            else layer.mask.rows(head, queries, layer.keys)
        )
        said = {
            "scale": layer.scale,
            "scorer": None
            if layer.scorer is None
            else {
                "name": layer.scorer.name,
                "v": None if layer.scorer.v is None else layer.scorer.v[head].tolist(),
            },
            "softcap": layer.softcap,
            "sink": None if layer.sinks is None else float(layer.sinks[head]),
            "vDim": None if layer.v is None else layer.v.shape[2],
        }
        # q, k, bias, mask and v of one row, as bytes.
        return said, [
            _floats(layer.q[head, queries]),
            _floats(layer.k[of_keys]),
            b"" if layer.bias is None else _floats(bias_rows(layer, head, queries)),
            np.packbits(allowed[0], bitorder="little").tobytes(),
            b"" if layer.v is None else _floats(layer.v[of_keys]),
        ]

    def _picture(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        """A thumbnail: evenly spaced queries, in each bin of keys what is largest, whatever its sign."""
        width, height = asked["width"], asked["height"]
        queries, keys = _places(asked["queries"]), _places(asked["keys"])
        rows = self._rows(run, kind, asked, asked["layer"], asked["head"], sampled(queries, height))
        return {}, [_floats(binned(rows, keys, width))]

    def _strongest(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        """The largest between units, [first, last]: sums over keys' pieces, means over queries'."""
        count = asked["count"]
        queries, keys = np.array(asked["queries"]).reshape(-1, 2), np.array(asked["keys"]).reshape(-1, 2)
        strongest: list[tuple[float, int, dict[str, Any]]] = []
        for number, head in asked["heads"]:
            layer = self._runs[run].layer(kind, number)
            # As many units as give a block of weights.
            step = max(1, _BLOCK // layer.keys // int((queries[:, 1] - queries[:, 0]).max(initial=0) + 1))
            for start in range(0, len(queries) if len(keys) else 0, step):
                some = queries[start : start + step]
                means = self._between(run, kind, asked, (number, head), some, keys)
                # The strongest of this block; then of all so far.
                for place in np.argsort(-np.abs(means), axis=None, kind="stable")[:count]:
                    query, key = np.unravel_index(place, means.shape)
                    weight = float(means[query, key])
                    entry = {
                        "layer": number,
                        "head": head,
                        "query": int(some[query, 0]),
                        "key": int(keys[key, 0]),
                    }
                    strongest.append((-abs(weight), len(strongest), entry | {"weight": weight}))
            strongest = sorted(strongest)[:count]
        return {"strongest": [entry for *_, entry in strongest]}, []

    def _between(
        self,
        run: int,
        kind: RecordKind,
        asked: _Asked,
        head: tuple[int, int],
        queries: _Places,
        keys: _Places,
    ) -> npt.NDArray[np.float64]:
        places = [np.arange(first, last + 1) for first, last in queries]
        rows = self._rows(run, kind, asked, *head, np.concatenate(places))
        # Sums over any range of keys by one subtraction.
        sums = np.cumsum(np.pad(rows, ((0, 0), (1, 1))), axis=1, dtype=np.float64)
        single = bool((keys[:, 0] == keys[:, 1]).all())
        of_keys = (
            np.pad(rows, ((0, 0), (0, 1)))[:, keys[:, 0]]
            if single
            else sums[:, keys[:, 1] + 1] - sums[:, keys[:, 0]]
        )
        starts = np.cumsum([0, *map(len, places[:-1])])
        # A unit of several queries is their mean.
        means: npt.NDArray[np.float64] = np.add.reduceat(of_keys, starts, axis=0, dtype=np.float64)
        means /= np.array([len(each) for each in places])[:, None]
        return means

    def _told(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        live = self._runs[run]
        # Given, worked out by the trace, or from the weights.
        if live.record.statistics.get(kind):
            statistics = live.record.statistics[kind]
        elif live.statistics is not None:
            statistics = live.statistics(kind)
        else:
            statistics = head_statistics(live.record, kind)
        return {"statistics": {name: plain(values) for name, values in statistics.items()}}, []

    def _worked(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        return self._measured[run].go_on(kind, asked["of"], asked["layer"]), []

    def _checked(self, run: int, kind: RecordKind, asked: _Asked) -> _Answer:
        check = self._runs[run].check
        if check is None:
            raise InputError("check: no model stands behind this picture; show a trace of a loaded model")
        return {"check": dict(check(kind, asked))}, []


def _slim(layer: LayerRecord) -> LayerRecord:
    line = layer.bias is not None and layer.bias.ndim == 2
    # Which keys come into question is known without asking.
    window = None if layer.mask is None else replace(layer.mask, keys=None, segments=None, bits=None)
    return replace(layer, mask=window, sinks=None, bias=layer.bias if line else None)


def _places(ranges: Sequence[Sequence[int]]) -> _Places:
    return np.concatenate([np.arange(first, last + 1) for first, last in ranges])


def _floats(values: npt.NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values, dtype="<f4").tobytes()
