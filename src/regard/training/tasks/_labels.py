"""The labels of a run: gathered from what it learns from, once, and kept with it."""

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from torch import Tensor

from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole
from regard.core.wording import reason
from regard.models import Transformer, load_checkpoint
from regard.text import Tokenizer
from regard.training._networks import network_of
from regard.training.tasks._task import Task, TaskInputs, Values

LABELS = "labels.json"


class Labelled(Task):
    """A task whose targets are labels with names, which the network's config holds.

    Args:
        network: one whose head gives labels.
        tokenizer: its tokenizer.
    """

    family = "bert"
    tokenizer_kind = "wordpiece"
    marks = "bert"
    best = "accuracy"

    def __init__(self, network: Transformer, tokenizer: Tokenizer) -> None:
        super().__init__(network, tokenizer)
        config: Any = network.config
        if config.head != self.head:
            raise InputError(f"model must have a head of kind {self.head!r} for labels; got {config.head!r}.")
        self.labels = config.labels or tuple(map(str, range(config.num_labels)))
        self._number = {name: number for number, name in enumerate(self.labels)}

    @classmethod
    def made(cls, making: TaskInputs, options: Mapping[str, Any]) -> Self:
        network = network_of(making.wanted, making.tokenizer, head=cls.head, **cls._wanted(making))
        return cls(network, making.tokenizer, **options)

    @classmethod
    def _wanted(cls, making: TaskInputs) -> dict[str, Any]:
        """The labels as fields of a config."""
        file = making.folder / LABELS
        if not file.exists():
            labels = cls._gathered(making)
            write_whole(file, json.dumps(labels, ensure_ascii=False, indent=2).encode() + b"\n")
        try:
            kept = tuple(map(str, json.loads(file.read_bytes())))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{file} cannot be read ({reason(error)}); choose another folder, or put back what it held."
            ) from error
        return {"labels": kept, "num_labels": len(kept)}

    @classmethod
    def _gathered(cls, making: TaskInputs) -> list[str]:
        """Those of the data in order; those of the checkpoint where it is trained for them already."""
        found: set[str] = set()
        for values, place in making.rows:
            try:
                found.update(str(name) for name in cls.names_in(values[-1]))
            except TypeError:
                raise InputError(f"{place}: must hold a list of tags; got {values[-1]!r}.") from None
        if making.wanted.start is not None:
            config: Any = load_checkpoint(making.wanted.start).network.config
            if config.head == cls.head and found <= set(config.labels):
                return list(config.labels)
        if len(found) < 2:
            told = f"only {min(found)!r}" if found else "none"
            raise InputError(f"label must name at least two labels in the data; there is {told}.")
        return sorted(found, key=int if all(map(str.isdecimal, found)) else None)

    @classmethod
    @abstractmethod
    def names_in(cls, value: Any) -> Iterable[Any]:
        """The labels in the last field of a row."""

    def numbers(self, value: Any) -> list[int | None]:
        """The labels in the last field of a row as numbers; None for one that the network does not have.

        A whole number that is no name is taken for itself, as data sets have them.
        """
        return [self._numbered(name) for name in self.names_in(value)]

    def _numbered(self, name: Any) -> int | None:
        plain = name if isinstance(name, int) and 0 <= name < len(self.labels) else None
        return self._number.get(str(name), plain)

    def refusal(self, values: Values) -> str | None:
        unknown = [name for name in self.names_in(values[-1]) if self._numbered(name) is None]
        if unknown:
            return f"label must be one of {shortly(self.labels)}, those of the model; got {unknown[0]!r}"
        return super().refusal(values[:-1])


def shortly(names: Sequence[str]) -> str:
    """Names in a message: the first of many."""
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def confusion(wanted: Tensor, guessed: Tensor, labels: int) -> Tensor:
    """How often each label (row) was taken for each (column): int64 (labels, labels).

    Example:
        >>> import torch
        >>> confusion(torch.tensor([0, 1, 1]), torch.tensor([1, 1, 1]), 2).tolist()
        [[0, 1], [0, 2]]
    """
    return (labels * wanted + guessed).bincount(minlength=labels**2).reshape(labels, labels)
