"""A micro-batch: the rows that a network reads, and the labels that it should predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard.core import Mask, Padding, Segments
from regard.training._losses import NOT_A_TARGET

Example = Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]
"""Columns of whole numbers: one text, as the tokenizer and the objective left it."""

Row = Sequence[Example]
"""The examples in one row of a batch: one, or several that do not see each other."""

Generators = Sequence[Sequence[np.random.Generator]]
"""Of each example of each row, the source of its random numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StackInput:
    """The input of one stack.

    Args:
        ids: int64 (rows, N), padding included.
        is_token: bool (rows, N), False for padding.
        segments: int64 (rows, N), the number of the text in its row; None where each row holds one.
        positions: int64 (rows, N), which begin anew with each text; None likewise.
        types: int64 (rows, N), which text of a pair; None where there are no pairs.
    """

    ids: Tensor
    is_token: Tensor
    segments: Tensor | None = None
    positions: Tensor | None = None
    types: Tensor | None = None

    @property
    def mask(self) -> Mask | Tensor | None:
        """Who may attend to whom, beside what the network itself says."""
        # None where nothing is padded: attention is quicker without a mask.
        padding = None if bool(self.is_token.all()) else self.is_token
        if self.segments is None:
            return padding
        segments = Segments(self.segments)
        return segments if padding is None else Padding(padding) & segments

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if value is not None}
        return replace(self, **moved)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A micro-batch.

    Args:
        source: what the network reads; of two stacks, the encoder.
        target: what the decoder beside an encoder reads.
        labels: int64, what is to be predicted, `NOT_A_TARGET` where nothing is.
        counts: how many targets each term of the loss has: it is divided by their sum over a step, over all
            micro-batches and processes.
        examples: how many texts there are.
        more: tensors that only the objective knows.
    """

    source: StackInput
    target: StackInput | None = None
    labels: Tensor
    counts: Mapping[str, int]
    examples: int
    more: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, rows: Sequence[Row], source: StackInput, labels: Tensor, target: StackInput | None = None
    ) -> Self:
        """A batch with one term of the loss, to which every label is a target."""
        counts = {"loss": int((labels != NOT_A_TARGET).sum())}
        examples = sum(map(len, rows))
        return cls(source=source, target=target, labels=labels, counts=counts, examples=examples)

    @property
    def tokens(self) -> int:
        """Positions that hold a token, of both stacks."""
        sides = (self.source, self.target)
        return sum(int(side.is_token.sum()) for side in sides if side is not None)

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return replace(
            self,
            source=self.source.to(device),
            target=None if self.target is None else self.target.to(device),
            labels=self.labels.to(device),
            more={name: value.to(device) for name, value in self.more.items()},
        )


def stack_input(texts: Sequence[Sequence[np.ndarray[Any, Any]]], *, pad_id: int) -> StackInput:
    """Rows of one or several texts each, filled up with padding at the end.

    Example:
        >>> made = stack_input([[np.array([5, 6]), np.array([7])], [np.array([8])]], pad_id=0)
        >>> made.ids.tolist(), made.segments.tolist(), made.positions.tolist()
        ([[5, 6, 7], [8, 0, 0]], [[0, 0, 1], [0, -1, -1]], [[0, 1, 0], [0, 0, 0]])
    """
    ids = filled([np.concatenate(list(row)) for row in texts], pad_id)
    is_token = torch.arange(ids.shape[1]) < torch.tensor([[sum(map(len, row))] for row in texts])
    # A row of one text needs no segments, without which attention takes a quicker form.
    if all(len(row) == 1 for row in texts):
        return StackInput(ids=ids, is_token=is_token)
    numbers = [np.repeat(np.arange(len(row)), [len(text) for text in row]) for row in texts]
    places = [np.concatenate([np.arange(len(text)) for text in row]) for row in texts]
    return StackInput(ids=ids, is_token=is_token, segments=filled(numbers, -1), positions=filled(places, 0))


def filled(rows: Sequence[np.ndarray[Any, Any]], value: int) -> Tensor:
    """int64 (rows, longest), filled up at the end."""
    made = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for place, row in enumerate(rows):
        made[place, : len(row)] = row
    return torch.from_numpy(made)


def labels_of(rows: Sequence[Sequence[np.ndarray[Any, Any]]]) -> Tensor:
    """int64 (rows, longest): labels beside the ids of `stack_input`."""
    return filled([np.concatenate(list(row)) for row in rows], NOT_A_TARGET)
