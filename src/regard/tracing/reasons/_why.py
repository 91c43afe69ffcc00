"""Why a head looks where it looks: a score, split over what wrote its query and its key."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from regard.core.arguments import one_of
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.reasons._cuts import weight_without
from regard.tracing.reasons._scores import Scores
from regard.tracing.reasons._seen import side_of
from regard.tracing.reasons._side import most_of
from regard.tracing.reasons._writers import Writer
from regard.tracing.record import Trace, WordOrToken, token_of

if TYPE_CHECKING:
    from rich.console import RenderableType

WhyOf = Literal["difference", "score"]

_SHOWN = 6
"""Parts of each side that are drawn, and pairs of them."""

_CUT = 3
"""Parts of each side that are cut to check."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WhyPart:
    """What one writer gave to the query, or to the key, and what that adds to the score.

    Args:
        writer: who.
        value: what it adds, with the whole of the other side.
        sources: of a head: float64 (tokens,), the same by the tokens that it took from. Of the key, they sum
            to what it adds to the key's own score: nothing is subtracted. None of other writers.
        tokens: those of `sources`, as people read them.
        weight: the head's weight when this part is cut out of the model; None where it was not.
    """

    writer: Writer
    value: float
    sources: Tensor | None = None
    tokens: tuple[str, ...] = ()
    weight: float | None = None

    @property
    def source(self) -> int | None:
        """The token that gave most of it; None of what is no head's."""
        return None if self.sources is None else most_of(self.sources)

    def __str__(self) -> str:
        source = self.source
        return str(self.writer) if source is None else f"{self.writer}, from {self.tokens[source]}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Why(Displayable):
    """A head's score for one query and one key, by what wrote the query and what wrote the key.

    Args:
        layer, head, kind: which head.
        query, key: which tokens.
        against: the key whose score is subtracted; None for the mean of all keys that the query may see, and
            where `of` is "score".
        of: "difference" or "score".
        value: the difference, or the score, by the model's own queries and keys.
        score, weight: of the key, whatever is split.
        keys: how many keys the query may see.
        query_parts, key_parts: what wrote them, the largest first.
        parts: float64 (query parts, key parts), which with `bias` sum to the value.
        bias: what ALiBi or T5's buckets add, by the distance alone; 0 without.
        query_token, key_token, against_token: as people read them.
    """

    layer: int
    head: int
    kind: Kind
    query: int
    key: int
    against: int | None
    of: WhyOf
    value: float
    score: float
    weight: float
    keys: int
    query_parts: tuple[WhyPart, ...]
    key_parts: tuple[WhyPart, ...]
    parts: Tensor
    bias: float
    query_token: str
    key_token: str
    against_token: str | None

    @cached_property
    def total(self) -> float:
        """The sum of all parts."""
        return float(self.parts.sum()) + self.bias

    @property
    def error(self) -> float:
        """total - value: rounding in the model's type."""
        return self.total - self.value

    @property
    def sentence(self) -> str:
        """The largest part of the key that speaks for the difference, in one line."""
        is_more = self.value >= 0
        # The part that speaks most for the sign of the difference.
        part = max(self.key_parts, key=lambda each: each.value if is_more else -each.value)
        what, value = (str(part), part.value)
        # Distance may matter more than any part of the key.
        if abs(self.bias) > abs(value) and (self.bias >= 0) == is_more:
            what, value = "their distance", self.bias
        looks = self._pair() if is_more else f"{self.query_token} looks away from {self.key_token}"
        return f"{looks} above all because of {what}: {value:+.2f} of {self.value:+.2f}{self._over()}"

    def __repr__(self) -> str:
        return f"Why(head {self.layer}.{self.head}: {self.sentence}; error {self.error:.0e})"

    def _within(self) -> str:
        """The error, up to a power of ten: its digits are rounding, and others on other processors."""
        error = abs(self.error)
        # To the power of ten above it.
        return f"{10.0 ** math.ceil(math.log10(error)):.0e}" if error else "0"

    def _pair(self) -> str:
        return f"{self.query_token} looks at {self.key_token}"

    def _over(self) -> str:
        if self.of == "score":
            return ""
        against = f"the mean of {self.keys} keys" if self.against is None else str(self.against_token)
        return f" over {against}"

    def to_json(self) -> dict[str, Any]:
        """What was asked and found, as plain values; without the pairs."""
        names = ("layer", "head", "kind", "query", "key", "against", "of", "value", "score", "weight", "keys")
        answer = {name: getattr(self, name) for name in (*names, "bias", "error", "sentence")}
        for name in ("query_parts", "key_parts"):
            answer[name] = [
                each.writer.columns() | {"value": each.value, "source": each.source, "weight": each.weight}
                for each in getattr(self, name)
            ]
        return answer

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each pair of a query's part and a key's, and one for the bias."""
        rows = [
            query.writer.columns("query_") | key.writer.columns("key_") | {"value": value}
            for query, values in zip(self.query_parts, self.parts.tolist(), strict=True)
            for key, value in zip(self.key_parts, values, strict=True)
        ]
        nothing = dict.fromkeys(rows[0])
        return [*rows, nothing | {"query_part": "distance", "key_part": "distance", "value": self.bias}]

    def _parts(self) -> "Iterator[RenderableType]":
        over = "" if self.of == "score" else f", {self.value:+.3f}{self._over()}"
        yield f"Head {self.layer}.{self.head}: {self._pair()}, weight {self.weight:.3f}."
        yield f"Score {self.score:.3f}{over}; the parts sum to it within {self._within()}.\n"
        for what, parts in (("the key", self.key_parts), ("the query", self.query_parts)):
            yield from _side(what, parts, self.weight)
        pairs = self.parts.abs().flatten().argsort(descending=True)[:_SHOWN].tolist()
        columns = len(self.key_parts)
        rows = [
            [
                str(self.query_parts[at // columns]),
                str(self.key_parts[at % columns]),
                f"{float(self.parts[at // columns, at % columns]):+.3f}",
            ]
            for at in pairs
        ]
        if self.bias:
            rows.append(["their distance", "", f"{self.bias:+.3f}"])
        yield plain_table(["in the query", "meets in the key", "adds"], rows, left=2)


def _side(what: str, parts: Sequence[WhyPart], weight: float) -> "Iterator[RenderableType]":
    was_cut = any(part.weight is not None for part in parts)

    def row(name: str, left: float | None, value: float) -> list[str]:
        return [name, *(["" if left is None else f"{left:.3f}"] if was_cut else []), f"{value:+.3f}"]

    rows = [row(str(part), part.weight, part.value) for part in parts[:_SHOWN]]
    # What is not shown is summed, so that the table adds up.
    if rest := parts[_SHOWN:]:
        rows.append(row(f"{len(rest)} others", None, sum(part.value for part in rest)))
    columns = [f"what wrote {what}", *([f"weight without (was {weight:.3f})"] if was_cut else []), "adds"]
    yield plain_table(columns, rows)
    yield ""


def why(
    trace: Trace,
    layer: int,
    head: int,
    query: WordOrToken,
    key: WordOrToken,
    *,
    kind: Kind | None = None,
    against: WordOrToken | None = None,
    of: WhyOf = "difference",
    check: bool = False,
) -> Why:
    """Split a head's score over what wrote its query and its key: why it looks there.

        s_ij = scale q_i . k_j = sum over a, b of scale q_i^a . k_j^b + bias_ij

    a and b run over what wrote the residual stream that query and key are read from: the word, its position,
    each head of each layer before, each feed-forward network, biases. Each norm on the way (also of queries
    and keys), and a soft cap, has its scale as it was in this run; with it frozen all is linear, and the sum
    exact. A turn by the position (RoPE) belongs to the token. A softmax sees differences of scores alone: so
    by default it is the difference s_ij - s_ij' that is split, to another key or to the mean over all keys.

    It says what the score is made of, not what would happen without a part: the scales are frozen, and later
    parts were made of earlier ones. `check` tries that.

    Args:
        layer, head, kind: which head, as in `Trace.weights`.
        query, key: a token each: an index, or a word, of which the last piece is meant.
        against: another key, for the difference to it; None for the mean of all that the query may see.
        of: "difference", or "score" for the score itself.
        check: whether the three largest parts of each side are cut, one at a time, and the model runs again
            each time: `WhyPart.weight` is the weight that is left. What is cut is set to zero at that token.

    Returns:
        See `Why`; `error` is how far the sum is from the model's own number.

    Raises:
        InputError: a token that is not there, or that the query may not see; a model or parts of the trace
            that are not at hand; scores that are no dot products, or queries and keys that are no sums:
            DeBERTa, kernels, recurrent layers, edits of the residual stream; through the lens, also norms
            after a sum, or of queries and keys, and cross-attention.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> found = trace.why(2, 3, "arrow", "flies")
        >>> abs(found.error) < 1e-5
        True
        >>> len(found.key_parts), str(found.key_parts[0].writer)
        (30, 'feed-forward 1')

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Three kinds of
    composition"; Kamath et al. 2025, "Tracing Attention Computation Through Feature Interactions", does the
    same with the features of a dictionary, which this does not need.
    """
    one_of("of", of, get_args(WhyOf))
    if of == "score" and against is not None:
        raise InputError('against must be None where of="score": nothing is subtracted from the score.')
    kind = trace.kind(kind)
    layer, head = trace.layer_index(layer, kind), trace.head_index(head, kind, layer)
    of_queries, of_keys = trace.sides(kind)
    at, to = (
        # A word of several tokens is asked about at its last one.
        token_of(name, side.encoding, token)[-1]
        for name, side, token in (("query", of_queries, query), ("key", of_keys, key))
    )
    other = None if against is None else token_of("against", of_keys.encoding, against)[-1]
    with torch.no_grad():
        of_head = Scores(trace, layer, head, kind)
        # One row: the query's scores.
        scores, ratios, bias = (each[0] for each in of_head.rows(torch.tensor([at], device=of_head.q.device)))
        seen = scores.isfinite()
        for name, token in (("key", to), ("against", other)):
            if token is not None and not seen[token]:
                raise InputError(f"{name} must be a token that the query may see, by the mask; got {token}.")
        # How often each key's score is taken.
        times = torch.zeros_like(scores)
        times[to] = 1.0
        if other is not None:
            times[other] -= 1.0
        elif of == "difference":
            # Less the mean of all that the query may see.
            times -= seen.double() / seen.sum()
        scores, bias = scores.masked_fill(~seen, 0.0), bias.masked_fill(~seen, 0.0)
        # What each side is multiplied with, as the model had it: so sources need one side at a time.
        of_query = of_head.factor * ratios[to] * of_head.q[at]
        of_key = of_head.factor * ((times * ratios) @ of_head.k)
        # Keys whose score is taken, and the key itself.
        rows = [each for each, count in enumerate(times.tolist()) if count or each == to]
        keys, queries = (
            side_of(trace, layer, head, kind, "k", rows),
            side_of(trace, layer, head, kind, "q", [at]),
        )
        tokens = {each: trace.sides(each)[1].shown for each in trace.kinds}
        asked, carried, q, k = [], [], [], []
        for part in queries.parts():
            # From which tokens a head took it.
            asked.append((part.writer, part.taken and part.taken(0, of_key).cpu()))
            q.append(queries.turned(part.values)[0])
        for part in keys.parts():
            carried.append((part.writer, part.taken and part.taken(rows.index(to), of_query).cpu()))
            k.append((times * ratios)[rows] @ keys.turned(part.values))
        # (query parts, key parts): every pair.
        parts = (of_head.factor * torch.stack(q) @ torch.stack(k).mT).cpu()
    # With `check`, the model runs again without each of the first parts.
    weight = partial(weight_without, trace, layer=layer, head=head, kind=kind, pair=(at, to))
    sides = [
        _told(found, parts.sum(dim=dim), tokens, partial(weight, token=token) if check else None)
        for found, dim, token in ((asked, 1, at), (carried, 0, to))
    ]
    return Why(
        layer=layer,
        head=head,
        kind=kind,
        query=at,
        key=to,
        against=other,
        of=of,
        value=float(times @ scores),
        score=float(scores[to]),
        weight=float(trace.weights(layer, head, kind=kind, query=at, key=to)),
        keys=int(seen.sum()),
        query_parts=sides[0],
        key_parts=sides[1],
        # Largest rows and columns first.
        parts=parts[_order(parts.sum(dim=1))][:, _order(parts.sum(dim=0))],
        bias=float(times @ bias),
        query_token=of_queries.shown[at],
        key_token=of_keys.shown[to],
        against_token=None if other is None else of_keys.shown[other],
    )


def _told(
    found: Sequence[tuple[Writer, Tensor | None]],
    values: Tensor,
    tokens: dict[Kind, tuple[str, ...]],
    weight: Callable[[Writer], float | None] | None,
) -> tuple[WhyPart, ...]:
    """The parts, the largest first; the first few with the weight without them."""
    parts, left = [], _CUT
    for place in _order(values):
        writer, sources = found[place]
        # Biases cannot be cut: they do not use one of the checks up.
        without = weight(writer) if weight is not None and left else None
        left -= without is not None
        names = () if sources is None else tokens[writer.kind]
        value = float(values[place])
        parts.append(WhyPart(writer=writer, value=value, sources=sources, tokens=names, weight=without))
    return tuple(parts)


def _order(values: Tensor) -> list[int]:
    order: list[int] = values.abs().argsort(descending=True).tolist()
    return order
