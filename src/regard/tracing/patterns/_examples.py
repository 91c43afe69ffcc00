"""The places where a head shows a pattern most: a few of a corpus, found as it passes."""

import numpy as np

from regard.tracing.patterns._patterns import Sides
from regard.tracing.patterns._rows import EXAMPLES, Rows
from regard.tracing.patterns._table import HeadExample


class Examples:
    """For each layer, head and pattern the rows that give most to the pattern's keys, of several texts.

    A text's second row comes after every text's first. Of equal ones the first stays. Only texts that are
    still somebody's example are kept.

    Args:
        shapes: for each layer its heads and patterns.
    """

    def __init__(self, shapes: list[tuple[int, int]]) -> None:
        rooms = [(*shape, EXAMPLES) for shape in shapes]
        self._mass = [np.full(room, -1.0) for room in rooms]
        # text, query, key, and which of its text's rows it is
        self._where = [np.full((*room, 4), -1, dtype=np.int64) for room in rooms]
        self._sides: dict[int, Sides] = {}

    def add(self, layer: int, text: int, rows: Rows) -> None:
        """Take in one layer of a text."""
        query = rows.best_query.numpy()
        heads, patterns = (np.arange(size) for size in query.shape[:2])
        mass = rows.mass.numpy()[heads[:, None, None], query.clip(0), patterns[:, None]]
        rank = np.broadcast_to(np.arange(query.shape[2]), query.shape)
        where = np.stack([np.full_like(query, text), query, rows.best_key.numpy(), rank], axis=-1)
        masses = np.concatenate([self._mass[layer], np.where(query >= 0, mass, -1.0)], axis=-1)
        places = np.concatenate([self._where[layer], where], axis=-2)
        # A mass is at most 1, so that rank goes before it; what is no row goes last.
        key = np.where(masses < 0, np.inf, 2.0 * places[..., 3] - masses)
        order = np.argsort(key, axis=-1, kind="stable")[..., :EXAMPLES]
        self._mass[layer] = np.take_along_axis(masses, order, axis=-1)
        self._where[layer] = np.take_along_axis(places, order[..., None], axis=-2)

    def end_text(self, text: int, sides: Sides) -> None:
        """Keep the tokens of a text that has become an example, and of no other."""
        self._sides[text] = sides
        used = {
            int(each)
            for mass, where in zip(self._mass, self._where, strict=True)
            for each in np.unique(where[..., 0][mass >= 0])
        }
        self._sides = {number: kept for number, kept in self._sides.items() if number in used}

    def of(self, layer: int, head: int, pattern: int) -> tuple[HeadExample, ...]:
        """The examples, one of each text before the second of any, the strongest first."""
        found = []
        masses, places = self._mass[layer][head, pattern], self._where[layer][head, pattern]
        for mass, (text, query, key, _) in zip(masses.tolist(), places.tolist(), strict=True):
            if mass < 0:
                continue
            sides = self._sides[text]
            tokens = tuple(token.surface for token in sides.queries)
            shared = sides.kind != "cross"
            keys = tokens if shared else tuple(token.surface for token in sides.keys)
            found.append(HeadExample(text=text, tokens=tokens, keys=keys, query=query, key=key, mass=mass))
        return tuple(found)
