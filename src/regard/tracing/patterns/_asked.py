"""The patterns, worked out for one text: the keys that each names, and the queries that it is asked of."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.tracing.patterns._patterns import HeadPattern, KeyPattern, RowPattern, Sides


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """The patterns, worked out for one text: which keys, and which queries are asked.

    Args:
        patterns: the patterns, and in the last axis of `Rows` their order.
        places: int64 (queries, m), the keys of the row patterns side by side; -1 for none.
        of_places: for each row pattern, by its place among the patterns, its columns of `places`.
        values: (keys, c), ones at the keys of each part of the key patterns, side by side.
        of_values: the same for the key patterns.
        asked: bool (queries, patterns), whether a query counts: special tokens do not, and a key of a key
            pattern does not count as its query.
        plain: bool (keys,), what `Broadcast` may choose: neither special nor a key of a key pattern.
        shared: whether queries and keys are the same tokens.
    """

    patterns: tuple[HeadPattern, ...]
    places: Tensor
    of_places: dict[int, slice]
    values: Tensor
    of_values: dict[int, slice]
    asked: Tensor
    plain: Tensor
    shared: bool

    @classmethod
    def of(cls, sides: Sides, patterns: Sequence[HeadPattern]) -> "Asked":
        """What these patterns ask of one text."""
        shared = sides.kind != "cross"
        special = torch.tensor([token.special for token in sides.queries])
        asked = ~special[:, None].repeat(1, len(patterns))
        plain = ~torch.tensor([token.special for token in sides.keys])
        places, values = [torch.full((len(special), 0), -1)], [torch.zeros(len(plain), 0)]
        of_places, of_values = {}, {}
        for number, pattern in enumerate(patterns):
            if isinstance(pattern, RowPattern):
                start = sum(each.shape[1] for each in places)
                places.append(pattern.places(sides))
                of_places[number] = slice(start, start + places[-1].shape[1])
            elif isinstance(pattern, KeyPattern):
                start = sum(each.shape[1] for each in values)
                values.append(torch.stack(list(pattern.parts(sides).values()), dim=1).float())
                of_values[number] = slice(start, start + values[-1].shape[1])
                member = values[-1].any(dim=1)
                plain &= ~member
                if shared:
                    asked[:, number] &= ~member
        return cls(
            patterns=tuple(patterns),
            places=torch.cat(places, dim=1),
            of_places=of_places,
            values=torch.cat(values, dim=1),
            of_values=of_values,
            asked=asked,
            plain=plain,
            shared=shared,
        )

    def sums(self) -> tuple[Tensor, Tensor]:
        """(m, patterns) and (c, patterns), ones where a column of `places` or `values` is a pattern's."""
        to_place = torch.zeros(self.places.shape[1], len(self.patterns))
        to_value = torch.zeros(self.values.shape[1], len(self.patterns))
        for to, where in ((to_place, self.of_places), (to_value, self.of_values)):
            for number, columns in where.items():
                to[columns, number] = 1.0
        return to_place, to_value
