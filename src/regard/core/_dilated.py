"""A window with gaps: as far as a wide one, at the cost in weights of a narrow one."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.core._masks import Mask, Window
from regard.core.errors import InputError


@dataclass(frozen=True)
class DilatedWindow(Mask):
    """Query i attends to the keys i + offset + dilation * m, for m from -left to right.

    A window of left + 1 + right keys, `dilation` apart, reaches `dilation` times as far as `Window`. It is
    exact: the softmax is over these keys, and a trace shows its weights.

    Args:
        left, right: how many keys before and after its own position a query sees; conjoin with `Causal`, or
            take right=0, for a causal one.
        dilation: how far apart they are, at least 1, which is a plain window.
        offset: as in `Causal`.

    Raises:
        InputError: numbers below these.

    Example:
        >>> DilatedWindow(left=1, right=1, dilation=2).dense(5, 5)[0, 0].int()
        tensor([[1, 0, 1, 0, 0],
                [0, 1, 0, 1, 0],
                [1, 0, 1, 0, 1],
                [0, 1, 0, 1, 0],
                [0, 0, 1, 0, 1]], dtype=torch.int32)

    Source: Beltagy et al. 2020 (Longformer), arXiv 2004.05150, section 3.1, figure 2c.
    """

    left: int
    right: int
    dilation: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("left", self.left, 0),
            ("right", self.right, 0),
            ("dilation", self.dilation, 1),
        ):
            if value < least:
                raise InputError(f"{name} must be at least {least}; got {value}.")

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = keys[None, :] - (queries[:, None] + self.offset)
        near = (distance >= -self.left * self.dilation) & (distance <= self.right * self.dilation)
        return (near & (torch.remainder(distance, self.dilation) == 0))[None, None]

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        return self._window().key_range(first_query, last_query, k_len)

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        return self._window().simplified(q_len, k_len) if self.dilation == 1 else self

    def since(self, query: int, key: int = 0) -> Mask:
        return replace(self, offset=self.offset + query - key)

    def _window(self) -> Window:
        return Window(self.left * self.dilation, self.right * self.dilation, self.offset)
