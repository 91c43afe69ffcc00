"""One head's weights for people to read: as a table beside their tokens, and as a picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.wording import excerpt
from regard.models import Kind
from regard.text import Encoding
from regard.tracing.record import Selector, Trace, chosen_of
from regard.views import HeadPicture, PictureForm

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
        # One query: its whole row with bars.
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
        tuple(encoding.tokens[place].label for place in chosen_of(name, encoding, chosen))
        for name, encoding, chosen in (("query", of_queries, query), ("key", of_keys, key))
    )
    # One more column where the heads have a sink.
    sinks = weights.shape[1] - len(keys)
    return WeightTable(
        kind=kind, layer=layer, head=head, queries=queries, keys=keys + (_SINK,) * sinks, weights=weights
    )


def plot(
    self: Trace,
    layer: int,
    head: int,
    *,
    kind: "Kind | None" = None,
    query: Selector | None = None,
    key: Selector | None = None,
    form: PictureForm = "lines",
    specials: bool = True,
    least: float = 0.0,
) -> HeadPicture:
    """Draw one head as a picture for a paper; a notebook displays it.

    Args:
        layer, head, kind, query, key: as in `weights`.
        form: "lines", tokens left and right with a line for each weight, or "map", a heat map.
        specials: whether to draw the special tokens too; weights are not rescaled without them.
        least: the smallest weight to draw.

    Returns:
        The picture: `.write("head.svg")`, or .png and .pdf through matplotlib; `.svg()` is its text.

    Raises:
        InputError: as `weights`; or more tokens than can be read.

    Example:
        >>> import regard
        >>> picture = regard.load().trace("time flies like an arrow").plot(3, 5, form="map")
        >>> picture.title
        'sentence-transformers/all-MiniLM-L6-v2: layer 3, head 5'
    """
    kind = self.kind(kind)
    layer = self.layer_index(layer, kind)
    head = self.head_index(head, kind, layer)
    of_queries, of_keys = self.sides(kind)
    # The weights of a long text are many: the sides are chosen, and their number checked, first.
    # Places among those chosen, and names.
    rows, queries = _side(of_queries.encoding, query, specials)
    columns, keys = _side(of_keys.encoding, key, specials)
    HeadPicture.check_size(len(queries), len(keys))
    weights = self.weights(layer, head, kind=kind, query=query, key=key).double().numpy()
    # The sink is drawn as one more key.
    if specials and key is None and weights.shape[1] > len(of_keys.encoding.tokens):
        columns, keys = [*columns, weights.shape[1] - 1], (*keys, "sink")
    said = "" if len(self.kinds) == 1 else f"{kind}, "
    return HeadPicture(
        weights=weights[rows][:, columns],
        queries=queries,
        keys=keys,
        title=f"{self.model}: {said}layer {layer}, head {head}",
        form=form,
        least=least,
    )


def _side(encoding: Encoding, selector: Selector | None, specials: bool) -> tuple[list[int], tuple[str, ...]]:
    """The tokens of one side that are drawn: their places, of all that were asked for, and their names."""
    tokens = encoding.tokens
    chosen = chosen_of("query or key", encoding, selector)
    kept = [(place, token) for place, token in enumerate(chosen) if specials or not tokens[token].special]
    if not kept:
        raise InputError("specials must be True where the model's own tokens are all that is asked for.")
    names = [tokens[at].label for _, at in kept]
    # Each token of a pair says which text it is of, by the letters that the page has for them.
    if any(token.sequence == 1 for token in tokens):
        of = {0: " (A)", 1: " (B)", None: ""}
        names = [name + of[tokens[at].sequence] for name, (_, at) in zip(names, kept, strict=True)]
    return [place for place, _ in kept], tuple(names)
