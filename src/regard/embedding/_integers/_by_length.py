"""An engine for short rows, and another for long ones."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from regard.embedding._engine import Engine


class ByLength:
    """Rows of up to so many tokens by one engine, longer ones by another: by which depends on the row alone.

    Args:
        short: for rows of up to `most` tokens.
        long: for the others. Both take rows of different lengths in one call, and give the same layers.
        most: tokens.
    """

    mixed = True

    def __init__(self, short: Engine, long: Engine, *, most: int) -> None:
        self._short, self._long, self._most = short, long, most

    def hidden(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> list[Tensor]:
        """See `Engine.hidden`."""
        made, start = [], 0
        for is_short, group in groupby(shape, key=lambda run: run[1] <= self._most):
            runs = list(group)
            stop = start + sum(rows * length for rows, length in runs)
            engine = self._short if is_short else self._long
            made.append(engine.hidden(token_ids[start:stop], runs))
            start = stop
        return made[0] if len(made) == 1 else [torch.cat(parts) for parts in zip(*made, strict=True)]
