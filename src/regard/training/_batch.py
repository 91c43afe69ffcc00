"""Examples on disk, ragged rows of whole numbers; and the micro-batch of them that a network reads."""

import json
import os
import secrets
import shutil
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import torch
from torch import Tensor

from regard.core import Mask, Padding, Segments
from regard.core.arguments import one_of
from regard.core.errors import CheckpointError, InputError, OutputError
from regard.core.files import read_object
from regard.core.wording import reason
from regard.training._losses import NOT_A_TARGET

_ABOUT = "about.json"
_FLUSHED = 1 << 18
"""Values that wait in memory."""


class Examples:
    """Examples of several columns, each a sequence of whole numbers below 2 ** 31, of any length.

    A folder of plain files: of each column its values, one example after the other, as int32, and where each
    example ends, as int64. Opening it reads no values.

    Example:
        >>> import tempfile
        >>> rows = [{"tokens": [5, 6, 7], "label": [1]}, {"tokens": [8], "label": [0]}]
        >>> examples = Examples.write(Path(tempfile.mkdtemp(), "examples"), rows, ("tokens", "label"))
        >>> len(examples), examples[1], examples.lengths("tokens").tolist()
        (2, {'tokens': array([8], dtype=int32), 'label': array([0], dtype=int32)}, [3, 1])
    """

    def __init__(self, folder: Path, count: int, columns: tuple[str, ...]) -> None:
        """Use `write` or `open`."""
        self.folder, self.columns = folder, columns
        self._count = count
        # For each example where its values end: int64 (examples,).
        self._ends = {name: _mapped(folder, name, "ends", np.int64, count) for name in columns}
        self._values = {
            name: _mapped(folder, name, "values", np.int32, int(ends[-1]))
            for name, ends in self._ends.items()
        }

    @classmethod
    def write(
        cls, folder: Path, rows: Iterable[Mapping[str, Sequence[int]]], columns: tuple[str, ...]
    ) -> Self:
        """Write rows, read once and in constant memory, and open them: the folder is whole or not there."""
        # Made elsewhere first, then renamed: a folder of this name is whole.
        if folder.exists():
            raise OutputError(f"{str(folder)!r} is there already; open it, or choose another folder.")
        temporary = folder.with_name(f".regard-{secrets.token_hex(8)}.tmp")
        try:
            temporary.mkdir()
            try:
                _write(temporary, rows, columns)
                os.replace(temporary, folder)  # under its name it is whole
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
        except OSError as error:
            raise OutputError(f"{str(folder)!r} cannot be written ({reason(error)}).") from error
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open what `write` wrote."""
        about: Any = read_object(folder / _ABOUT)
        try:
            return cls(folder, int(about["count"]), tuple(about["columns"]))
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise CheckpointError(
                f"{str(folder)!r} holds no whole examples ({reason(error)}); remove it, to make them anew."
            ) from error

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """The columns of an example; read-only views of what is on disk."""
        if not 0 <= index < self._count:
            raise IndexError(f"there are {self._count} examples, from 0; got {index}")
        return {
            # An example's values begin where those of the one before end.
            name: self._values[name][0 if index == 0 else ends[index - 1] : ends[index]]
            for name, ends in self._ends.items()
        }

    def flat(self, column: str) -> np.ndarray:
        """A column of all examples, one after the other, as one text."""
        return self._values[self._known(column)]

    def lengths(self, column: str) -> np.ndarray:
        """How many values a column has in each example, as int64."""
        return np.diff(self._ends[self._known(column)], prepend=0)

    def _known(self, column: str) -> str:
        return one_of("column", column, self.columns)


class _Column:
    """A column that is being written."""

    def __init__(self, folder: Path, name: str) -> None:
        # "x": a file that is there already is somebody else's.
        self._files = tuple((folder / f"{name}.{part}").open("xb") for part in ("values", "ends"))
        # 32 bits for values, 64 for places.
        self._waiting = (array("i"), array("q"))
        self._end = 0

    def add(self, values: Sequence[int]) -> None:
        waiting, ends = self._waiting
        before = len(waiting)
        waiting.extend(values)
        self._end += len(waiting) - before
        ends.append(self._end)
        # In constant memory, however many texts there are.
        if len(waiting) + len(ends) >= _FLUSHED:
            self._flush()

    def _flush(self) -> None:
        for file, waiting in zip(self._files, self._waiting, strict=True):
            waiting.tofile(file)
            del waiting[:]

    def close(self, *, whole: bool) -> None:
        """Close the files; where the column is whole, only once they are on disk."""
        if whole:
            self._flush()
        for file in self._files:
            _close(file, whole)


def _close(file: IO[bytes], whole: bool) -> None:
    with file:
        if whole:
            file.flush()
            os.fsync(file.fileno())


def _write(folder: Path, rows: Iterable[Mapping[str, Sequence[int]]], columns: tuple[str, ...]) -> None:
    writers = {name: _Column(folder, name) for name in columns}
    count, whole = 0, False
    try:
        # Numbers in messages count from 1, as lines do.
        for count, row in enumerate(rows, 1):
            for name, writer in writers.items():
                try:
                    writer.add(row[name])
                except KeyError:
                    raise InputError(f"example {count} has no column {name!r}.") from None
                except (TypeError, OverflowError, ValueError) as error:
                    raise InputError(
                        f"example {count}: column {name!r} must hold whole numbers of 32 bits "
                        f"({reason(error)})."
                    ) from error
        if not count:
            raise InputError("rows must hold at least one example; there is none.")
        whole = True
    finally:
        for writer in writers.values():
            # Also after an error: Windows removes no open file.
            writer.close(whole=whole)
    # Last: with it the folder says that all columns are whole.
    with (folder / _ABOUT).open("xb") as file:
        file.write(json.dumps({"count": count, "columns": columns}).encode())
        file.flush()
        os.fsync(file.fileno())


def _mapped(folder: Path, name: str, part: str, type: Any, count: int) -> np.ndarray:
    path = folder / f"{name}.{part}"
    # A file cut short would be read as zeros, or end a run in the middle.
    if path.stat().st_size != count * np.dtype(type).itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes")
    # An empty file cannot be mapped.
    mapped = np.memmap(path, type, mode="r", shape=(count,)) if count else np.empty(0, type)
    return np.asarray(mapped)  # a plain array, whose slices cost less


Example = Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]
"""Columns of whole numbers: one text, as the tokenizer and the objective left it."""

Row = Sequence[Example]
"""The examples in one row of a batch: one, or several that do not see each other."""

Generators = Sequence[Sequence[np.random.Generator]]
"""For each row and each of its examples, the source of the random numbers."""


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
    def labelled(
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
    # (rows, longest), the texts of a row one after the other.
    ids = filled([np.concatenate(list(row)) for row in texts], pad_id)
    # True before the end of each row.
    is_token = torch.arange(ids.shape[1]) < torch.tensor([[sum(map(len, row))] for row in texts])
    # A row of one text needs no segments, without which attention takes a quicker form.
    if all(len(row) == 1 for row in texts):
        return StackInput(ids=ids, is_token=is_token)
    # Which text of its row each position is of.
    numbers = [np.repeat(np.arange(len(row)), [len(text) for text in row]) for row in texts]
    # Positions begin with 0 in each text.
    places = [np.concatenate([np.arange(len(text)) for text in row]) for row in texts]
    # Padding is of segment -1, which is no text's.
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
