"""One head's weights beside their tokens, for people to read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.core.displayable import Displayable, plain_table
from regard.core.printable import excerpt
from regard.models import Kind
from regard.tracing.record import Selector, Trace, chosen_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_SINK = "(sink)"
_BEST = 3
"""Keys that are named of each query where there are several: so many fit beside it in 80 columns."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WeightTable(Displayable):
    """One head's attention weights, with the tokens that they are of.

    Args:
        kind, layer, head: the head.
        queries, keys: the tokens; an attention sink is the last key, "(sink)".
        weights: float32 (queries, keys), as `Trace.weights` gives them.
    """

    kind: Kind
    layer: int
    head: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: Tensor

    def __repr__(self) -> str:
        queries, keys = self.weights.shape
        return f"WeightTable({self.kind} {self.layer}.{self.head}: {queries} queries x {keys} keys)"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each query and key."""
        return [
            {"query": query, "key": key, "weight": weight}
            for query, row in zip(self.queries, self.weights.tolist(), strict=True)
            for key, weight in zip(self.keys, row, strict=True)
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        whose = f" of {self.queries[0]!r}" if len(self.queries) == 1 else ""
        yield Text(f"Head {self.layer}.{self.head} ({self.kind}): attention weights{whose}", style="dim")
        yield ""
        if len(self.queries) == 1:
            most = max(float(self.weights.max()), 1e-9)
            cells = [
                [excerpt(key, 24), f"{weight:.3f}", "█" * round(40 * weight / most)]
                for key, weight in zip(self.keys, self.weights[0].tolist(), strict=True)
            ]
            yield plain_table(["key", "weight", ""], cells, bar=True)
        else:
            rows = [[excerpt(query, 16), *self._best(at)] for at, query in enumerate(self.queries)]
            yield plain_table(["query", "looks most at", *[""] * (len(rows[0]) - 2)], rows, left=len(rows[0]))

    def _best(self, query: int) -> list[str]:
        values, places = self.weights[query].topk(min(_BEST, len(self.keys)))
        found = zip(values.tolist(), places.tolist(), strict=True)
        return [f"{value:.2f} {excerpt(self.keys[place], 14)}" for value, place in found]


def weight_table(
    trace: Trace,
    layer: int,
    head: int,
    *,
    kind: Kind | None = None,
    query: Selector | None = None,
    key: Selector | None = None,
) -> WeightTable:
    """One head's weights beside their tokens: a table to print, to see in a notebook, or as a data frame.

    Of one query it lists every key; of several, the three that each looks at most. To compute with weights,
    take `weights`.

    Args:
        layer, head: one of each.
        kind, query, key: as in `weights`.

    Raises:
        InputError: as `weights`.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> print(trace.table(5, 0, query="flies"))
        Head 5.0 (encoder): attention weights of 'flies'
        <BLANKLINE>
        key    weight
        [CLS]   0.540  ████████████████████████████████████████
        time    0.062  █████
        flies   0.070  █████
        like    0.085  ██████
        an      0.067  █████
        arrow   0.049  ████
        [SEP]   0.127  █████████
    """
    kind = trace.kind(kind)
    layer, head = trace.layer_index(layer, kind), trace.head_index(head, kind, layer)
    weights = trace.weights(layer, head, kind=kind, query=query, key=key)
    of_queries, of_keys = (each.encoding for each in trace.sides(kind))
    queries, keys = (
        tuple(encoding.tokens[place].surface for place in chosen_of(name, encoding, chosen))
        for name, encoding, chosen in (("query", of_queries, query), ("key", of_keys, key))
    )
    sinks = weights.shape[1] - len(keys)
    return WeightTable(
        kind=kind, layer=layer, head=head, queries=queries, keys=keys + (_SINK,) * sinks, weights=weights
    )
