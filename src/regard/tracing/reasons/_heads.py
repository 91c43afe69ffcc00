"""Which writers feed a head over a whole text: composition, measured on the run, beside chance."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.core.displayable import Displayable, plain_table
from regard.models import Kind
from regard.tracing.reasons._scores import Scores
from regard.tracing.reasons._seen import side_of
from regard.tracing.reasons._side import Side
from regard.tracing.reasons._writers import Writer
from regard.tracing.record import Selector, Trace, chosen_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 8
_ENTRIES = 2**18
"""Scores that are held at a time."""


@dataclass(frozen=True, kw_only=True)
class Feeds:
    """What one writer gives to all queries, or to all keys, of a head.

    Args:
        writer: who.
        value: how much it raises the scores where the head looks over those of all that it may see, on
            average over the queries.
        chance, spread: the mean and the standard deviation of that, if what it wrote stood at the tokens in
            any other order: over all permutations, exactly.
    """

    writer: Writer
    value: float
    chance: float
    spread: float

    @property
    def times(self) -> float:
        """(value - chance) / spread; 0 where no order makes a difference."""
        # In standard deviations of random orders.
        return (self.value - self.chance) / self.spread if self.spread else 0.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WhyHeads(Displayable):
    """What feeds a head's queries and its keys over a text.

    Args:
        layer, head, kind: which head.
        value: how much the scores where it looks are over those of all that it may see, on average.
        bias: what ALiBi or T5's buckets have in that.
        query_feeds, key_feeds: by whom; with the bias, either side sums to the value. Those that are furthest
            from chance come first.
    """

    layer: int
    head: int
    kind: Kind
    value: float
    bias: float
    query_feeds: tuple[Feeds, ...]
    key_feeds: tuple[Feeds, ...]

    @property
    def error(self) -> float:
        """How far the sums of the sides are from the value, the larger of the two."""
        # The value less its constant parts.
        sums = (sum(each.value for each in side) for side in (self.query_feeds, self.key_feeds))
        return max((each + self.bias - self.value for each in sums), key=abs)

    def __repr__(self) -> str:
        keys, queries = (side[0].writer for side in (self.key_feeds, self.query_feeds))
        return (
            f"WhyHeads(head {self.layer}.{self.head}: {self.value:.4g}, keys fed by {keys}, queries by "
            f"{queries}; error {self.error:.0e})"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each writer of each side."""
        return [
            {"side": side}
            | each.writer.columns()
            | {"value": each.value, "chance": each.chance, "spread": each.spread}
            for side, feeds in (("query", self.query_feeds), ("key", self.key_feeds))
            for each in feeds
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        yield (
            f"Head {self.layer}.{self.head}: where it looks, scores are {self.value:+.3f} over the mean of "
            "what it may see.\n"
        )
        for what, feeds in (("keys", self.key_feeds), ("queries", self.query_feeds)):
            rows = [
                [str(each.writer), f"{each.value:+.3f}", f"{each.chance:+.3f}", f"{each.spread:.3f}"]
                for each in feeds[:_SHOWN]
            ]
            yield plain_table([f"what feeds its {what}", "adds", "by chance", "+-"], rows)
            yield ""


def why_heads(
    trace: Trace, layer: int, head: int, *, kind: Kind | None = None, query: Selector | None = None
) -> WhyHeads:
    """Find which earlier heads, networks and words feed a head's queries and keys, over the whole text.

        value = mean over i of (sum_j w_ij s_ij - mean_j s_ij) = sum over a of the same with k_j^a for k_j

    w are the head's weights and s its scores, split as `why` splits them: what in the keys (or the queries)
    makes the head look where it looks. Beside each stands chance: what the same vectors would give if they
    stood at the tokens in any other order. So this is composition as it happened on a text, not a product of
    weights. A head that rests on the first token most of the time shows what feeds that: ask about the
    queries where it does something else.

    Args:
        layer, head, kind: which head, as in `Trace.weights`.
        query: over which queries, as in `Trace.weights`; None for all.

    Raises:
        InputError: as `why`.

    Example:
        >>> import regard
        >>> found = regard.load().trace("time flies like an arrow").why_heads(1, 8)
        >>> abs(found.error) < 1e-5
        True
        >>> str(found.key_feeds[0].writer)
        'feed-forward 0'

    Sources: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Three kinds of
    composition"; Hoeffding 1951, "A combinatorial central limit theorem", theorem 2, for chance.
    """
    kind = trace.kind(kind)
    layer, head = trace.layer_index(layer, kind), trace.head_index(head, kind, layer)
    chosen = chosen_of("query", trace.sides(kind)[0].encoding, query)
    scores, value, bias = Scores(trace, layer, head, kind), 0.0, 0.0
    # What the keys, and the queries, are multiplied with.
    toward_k, toward_q = torch.zeros_like(scores.k), []
    with torch.no_grad():
        # Some queries at a time.
        for at in torch.split(
            torch.tensor(chosen, device=scores.q.device), max(1, _ENTRIES // len(scores.k))
        ):
            rows, ratios, biases = scores.rows(at)
            seen = rows.isfinite()
            even = seen.double() / seen.sum(dim=1, keepdim=True)
            # How often each score is taken: as its weight, less an even share.
            times = (torch.softmax(rows, dim=1) - even).masked_fill(~seen, 0.0) / len(chosen)
            value += float((times * rows.masked_fill(~seen, 0.0)).sum())
            bias += float((times * biases.masked_fill(~seen, 0.0)).sum())
            # From scores to products: the cap's ratio and the scale.
            times *= ratios * scores.factor
            # sum over queries of times q, for each key; and the other way round.
            toward_k += times.mT @ scores.q[at]
            toward_q.append(times @ scores.k)
        asked = _feeds(side_of(trace, layer, head, kind, "q", chosen), torch.cat(toward_q))
        carried = _feeds(side_of(trace, layer, head, kind, "k", range(len(toward_k))), toward_k)
    return WhyHeads(
        layer=layer, head=head, kind=kind, value=value, bias=bias, query_feeds=asked, key_feeds=carried
    )


def _feeds(side: Side, toward: Tensor) -> tuple[Feeds, ...]:
    """What each part gives where the side's vectors are multiplied with these, token by token."""
    # The turn belongs to the place, and stays there.
    toward = side.turned(toward, back=True)
    count = len(toward)
    # Chance: the part's rows in random order. Mean and variance of sum toward_i . x_pi(i) over all
    # orders.
    apart = toward - toward.mean(dim=0)
    square = apart.mT @ apart
    feeds = []
    for part in side.parts():
        x = part.values
        centred = x - x.mean(dim=0)
        variance = (square * (centred.mT @ centred)).sum() / max(1, count - 1)
        feeds.append(
            Feeds(
                writer=part.writer,
                value=float((toward * x).sum()),
                chance=float(toward.sum(dim=0) @ x.mean(dim=0)),
                spread=float(variance.clamp(min=0.0).sqrt()),
            )
        )
    # The largest distance from chance first.
    return tuple(sorted(feeds, key=lambda each: -abs(each.value - each.chance)))
