"""What a head may be looking for: each pattern says which keys it would have every query attend to."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Kind
from regard.text import Token, Word
from regard.tracing.record import Trace, is_punctuation


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The tokens that a kind of attention is between.

    Args:
        kind: "encoder", "decoder" (a query sees no later key) or "cross".
        queries, keys: the tokens; the same ones, except in cross-attention.
        words: the words of the keys; () where there are none.
    """

    kind: Kind
    queries: Sequence[Token]
    keys: Sequence[Token]
    words: Sequence[Word] = ()

    @classmethod
    def of_trace(cls, trace: Trace, kind: Kind) -> "Sides":
        """The tokens of a traced text."""
        of_queries, of_keys = trace.sides(kind)
        queries, keys = of_queries.encoding, of_keys.encoding
        return cls(kind=kind, queries=queries.tokens, keys=keys.tokens, words=keys.words)


class HeadPattern(ABC):
    """Something that a head may do, under the name by which it is reported.

    To add one, derive from `RowPattern` (each query has keys of its own) or from `KeyPattern` (all queries
    have the same keys), and give it to `heads` beside `default_patterns`.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called: "previous". Patterns that share a name are variants, told apart by `detail`."""

    @property
    def detail(self) -> str:
        """What tells it from others of its name: "-2"; "" where there are none."""
        return ""

    @property
    def says(self) -> str:
        """What a head with this pattern does, in one plain sentence; "" to leave it unsaid."""
        return ""


class RowPattern(HeadPattern):
    """Each query has keys of its own.

    Example:
        >>> from regard.tracing import Offset, Sides
        >>> from regard.text import Encoding
        >>> tokens = Encoding.from_ids([7, 7, 7]).tokens
        >>> Offset(-1).places(Sides(kind="decoder", queries=tokens, keys=tokens)).tolist()
        [[-1], [0], [1]]
    """

    @abstractmethod
    def places(self, sides: Sides) -> Tensor:
        """The keys of each query: int64 (queries, m), -1 for none; no key twice in a row."""


class KeyPattern(HeadPattern):
    """All queries have the same keys."""

    @abstractmethod
    def parts(self, sides: Sides) -> dict[str, Tensor]:
        """The keys, in parts with names: each bool (keys,), and no key in two parts."""


@dataclass(frozen=True)
class Offset(RowPattern):
    """The key some places on: -1 the previous token, +1 the next one, 0 the token itself; others strides.

    Previous and next: Clark et al. 2019 (arXiv 1906.04341), section 3.1.
    """

    offset: int

    @property
    def name(self) -> str:
        return {-1: "previous", 0: "self", 1: "next"}.get(self.offset, "positional stride")

    @property
    def detail(self) -> str:
        return f"{self.offset:+d}" if abs(self.offset) > 1 else ""

    @property
    def says(self) -> str:
        near = {-1: "the token just before it", 0: "itself", 1: "the token just after it"}
        far = "the token a fixed number of places before or after it"
        return f"Each token looks at {near.get(self.offset, far)}."

    def places(self, sides: Sides) -> Tensor:
        # Keys before the first or after the last are none.
        keys = torch.arange(len(sides.queries)) + self.offset
        return torch.where((keys >= 0) & (keys < len(sides.keys)), keys, -1)[:, None]


# The nearest so many occurrences count: "the" may stand a thousand times in a long text.
_MOST_OCCURRENCES = 8


@dataclass(frozen=True)
class DuplicateToken(RowPattern):
    """Other occurrences of the query's token: in a decoder earlier ones, in cross-attention in the source.

    The nearest eight count. Duplicate-token heads: Wang et al. 2022 (arXiv 2211.00593), section 3.
    """

    @property
    def name(self) -> str:
        return "duplicate token"

    @property
    def says(self) -> str:
        return "Each token looks at other places where the same token stands."

    def places(self, sides: Sides) -> Tensor:
        return _beside_occurrences(sides, 0)


@dataclass(frozen=True)
class Induction(RowPattern):
    """The token after another occurrence of the query's token, where a copy would go on.

    The nearest eight occurrences count, earlier ones in a decoder. Induction heads: Olsson et al. 2022
    (arXiv 2209.11895), "prefix matching".
    """

    @property
    def name(self) -> str:
        return "induction"

    @property
    def says(self) -> str:
        return "Each token looks at what came after the same token elsewhere, where a copy would go on."

    def places(self, sides: Sides) -> Tensor:
        return _beside_occurrences(sides, 1)


def _beside_occurrences(sides: Sides, step: int) -> Tensor:
    """The keys `step` after the nearest occurrences of each query's token, the query itself left out."""
    crossed = sides.kind == "cross"
    where: dict[str | int, list[int]] = {}
    # Where each token stands among the keys, in order.
    for place, token in enumerate(sides.keys):
        # Two stacks may number their pieces differently.
        where.setdefault(token.text if crossed else token.id, []).append(place)
    rows = []
    for place, token in enumerate(sides.queries):
        # Special tokens repeat without meaning anything.
        places = [] if token.special else where.get(token.text if crossed else token.id, [])
        if sides.kind == "decoder":
            # A decoder sees only what is before; the nearest occurrences count.
            places = places[
                max(0, bisect_left(places, place) - _MOST_OCCURRENCES) : bisect_left(places, place)
            ]
        else:
            middle = bisect_left(places, place)
            # Nearest on both sides.
            near = places[max(0, middle - _MOST_OCCURRENCES) : middle + _MOST_OCCURRENCES + 1]
            near = [each for each in near if crossed or each != place]
            places = sorted(near, key=lambda each: abs(each - place))[:_MOST_OCCURRENCES]
        # The place itself (0), or what follows it (1).
        wanted = (each + step for each in places)
        rows.append([each for each in wanted if each < len(sides.keys) and (crossed or each != place)])
    return padded(rows)


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of several lengths as int64 (rows, longest, at least 1), with -1 where there is none."""
    width = max([1, *map(len, rows)])
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], dtype=torch.int64)


@dataclass(frozen=True)
class Alignment(RowPattern):
    """In cross-attention the key as far into the source as the query is into the target, and its neighbours.

    Query i of Q has the key nearest to i (K - 1) / (Q - 1), and one on either side: a monotone alignment.
    """

    @property
    def name(self) -> str:
        return "alignment"

    @property
    def says(self) -> str:
        return "Each token looks as far into the other text as it stands in its own."

    def places(self, sides: Sides) -> Tensor:
        queries, keys = len(sides.queries), len(sides.keys)
        # As far into the source as the query is into the target.
        middle = [round(each * (keys - 1) / max(1, queries - 1)) for each in range(queries)]
        return padded([[key for key in (m - 1, m, m + 1) if 0 <= key < keys] for m in middle])


@dataclass(frozen=True)
class DelimiterSink(KeyPattern):
    """The first token, special tokens ([SEP], end of text) and punctuation: where attention goes to rest.

    Clark et al. 2019 (arXiv 1906.04341), section 3.2; the first token of decoders: Xiao et al. 2023
    (arXiv 2309.17453). An encoder's first token counts where it is a special one.
    """

    @property
    def name(self) -> str:
        return "delimiter sink"

    @property
    def says(self) -> str:
        return "Tokens look at special tokens, at punctuation, or at the first token."

    def parts(self, sides: Sides) -> dict[str, Tensor]:
        special = torch.tensor([token.special for token in sides.keys])
        # Special tokens are no punctuation, whatever they look like.
        marks = torch.tensor([is_punctuation(token, sides.words) for token in sides.keys]) & ~special
        first = torch.arange(len(sides.keys)) == 0
        is_decoder = torch.tensor(sides.kind == "decoder")
        return {
            # Parts do not overlap: the first token is in one of them.
            "first": first & (special | marks & is_decoder),
            "special": special & ~first,
            "punctuation": marks & ~(first & is_decoder),
            "first word": first & ~special & ~marks & is_decoder,
        }


@dataclass(frozen=True)
class Broadcast(HeadPattern):
    """A few tokens of the text, no delimiters, that every query reads.

    Which ones is not known beforehand: they are those that the queries at even places give most to, and what
    is measured is what the queries at odd places give them. So what only looks shared does not count.

    Args:
        keys: how many tokens.
    """

    keys: int = 2

    @property
    def name(self) -> str:
        return "broadcast"

    @property
    def says(self) -> str:
        return "All tokens look at the same few words."


_STRIDES = (-8, -7, -6, -5, -4, -3, -2, 2, 3, 4, 5, 6, 7, 8)


def default_patterns(kind: Kind) -> tuple[HeadPattern, ...]:
    """The patterns that a kind of attention is tried on.

    In cross-attention the two sides are other texts, so that "previous" means nothing there; a key that is as
    far into its text does.

    Raises:
        InputError: another kind.

    Example:
        >>> from regard.tracing import default_patterns
        >>> [pattern.name for pattern in default_patterns("cross")]
        ['alignment', 'induction', 'duplicate token', 'delimiter sink', 'broadcast']
    """
    if kind not in get_args(Kind):
        raise InputError(f'kind must be "encoder", "decoder" or "cross"; got {kind!r}.')
    content: tuple[HeadPattern, ...] = (Induction(), DuplicateToken(), DelimiterSink(), Broadcast())
    if kind == "cross":
        return (Alignment(), *content)
    # The plain ones first: they are tried, and named, before strides.
    offsets = [-1, 1, 0, *_STRIDES]
    if kind == "decoder":
        # A decoder sees nothing after the query.
        offsets = [each for each in offsets if each <= 0]
    return (*(Offset(each) for each in offsets), *content)
