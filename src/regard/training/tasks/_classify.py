"""A label for a text or a pair; and the labels of a run, gathered from its data once and kept with it."""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from torch import Tensor

from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole
from regard.core.wording import reason
from regard.models import Transformer, load_checkpoint
from regard.text import Tokenizer
from regard.training._batch import Batch, Generators, Row, filled, labels_of, stack_input
from regard.training._folder import LABELS
from regard.training._losses import NOT_A_TARGET, cross_entropy
from regard.training._networks import network_of
from regard.training.tasks._task import Task, TaskInputs, Values, run


class Labelled(Task):
    """A task whose targets are labels with names, which the network's config holds."""

    family = "bert"
    tokenizer_kind = "wordpiece"
    marks = "bert"
    best = "accuracy"

    def __init__(self, network: Transformer, tokenizer: Tokenizer) -> None:
        super().__init__(network, tokenizer)
        config: Any = network.config
        if config.head != self.head:
            raise InputError(f"model must have a head of kind {self.head!r} for labels; got {config.head!r}.")
        # Without names labels are called by their numbers.
        self.labels = config.labels or tuple(map(str, range(config.num_labels)))
        self._number = {name: number for number, name in enumerate(self.labels)}

    @classmethod
    def from_inputs(cls, inputs: TaskInputs, options: Mapping[str, Any]) -> Self:
        network = network_of(inputs.spec, inputs.tokenizer, head=cls.head, **cls._label_fields(inputs))
        return cls(network, inputs.tokenizer, **options)

    @classmethod
    def _label_fields(cls, inputs: TaskInputs) -> dict[str, Any]:
        """The labels as fields of a config."""
        file = inputs.folder / LABELS
        # Gathered once, by the first process.
        if not file.exists():
            labels = cls._gathered(inputs)
            write_whole(file, json.dumps(labels, ensure_ascii=False, indent=2).encode() + b"\n")
        try:
            kept = tuple(map(str, json.loads(file.read_bytes())))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{file} cannot be read ({reason(error)}); choose another folder, or put back what it held."
            ) from error
        return {"labels": kept, "num_labels": len(kept)}

    @classmethod
    def _gathered(cls, inputs: TaskInputs) -> list[str]:
        """Those of the data in order; those of the checkpoint where it is trained for them already."""
        names: set[str] = set()
        for values, place in inputs.rows:
            try:
                names.update(str(name) for name in cls.names_in(values[-1]))
            except TypeError:
                raise InputError(f"{place}: must hold a list of tags; got {values[-1]!r}.") from None
        # A checkpoint that knows these labels keeps its numbers for them, and so its head.
        if inputs.spec.start is not None:
            config: Any = load_checkpoint(inputs.spec.start).network.config
            if config.head == cls.head and names <= set(config.labels):
                return list(config.labels)
        if len(names) < 2:
            in_data = f"only {min(names)!r}" if names else "none"
            raise InputError(f"label must name at least two labels in the data; there is {in_data}.")
        # In an order that does not depend on the texts; 10 comes after 9.
        return sorted(names, key=int if all(map(str.isdecimal, names)) else None)

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
        # A number is a name too, as "3": only one that is no name is taken for itself.
        plain = name if isinstance(name, int) and 0 <= name < len(self.labels) else None
        return self._number.get(str(name), plain)

    def refusal(self, values: Values) -> str | None:
        unknown = [name for name in self.names_in(values[-1]) if self._numbered(name) is None]
        if unknown:
            return f"label must be one of {shortly(self.labels)}, those of the model; got {unknown[0]!r}"
        return super().refusal(values[:-1])


class TextLabels(Labelled):
    """Predict the label of a text: - log p(label | text).

    Args:
        network: one with a head for labels of texts.
        tokenizer: its tokenizer.
        pairs: whether a row has two texts, "text" and "target", which are read together.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 4.1.
    """

    reads = ("text", "label")
    head = "sequence"

    def __init__(self, network: Transformer, tokenizer: Tokenizer, *, pairs: bool = False) -> None:
        super().__init__(network, tokenizer)
        self.pairs = pairs
        self.columns = ("tokens", "label", "types") if pairs else ("tokens", "label")
        self.frame = tokenizer.bulk.frame()
        self.pair_frame = tokenizer.bulk.pair_frame()
        self.reads_types = pairs and network.config.num_token_types > 1

    @classmethod
    def fields(cls, options: Mapping[str, Any]) -> Sequence[str]:
        return ("text", "target", "label") if options.get("pairs") else cls.reads

    @classmethod
    def texts_of(cls, values: Values) -> Iterable[str]:
        return values[:-1]

    @classmethod
    def names_in(cls, value: Any) -> Iterable[Any]:
        return (value,)

    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        # Columns: one text or two, then the label.
        *texts, labels = zip(*rows, strict=True)
        pieces = [self.tokenizer.bulk.pieces(each) for each in texts]
        for *parts, label in zip(*pieces, labels, strict=True):
            yield self._example(parts, self.numbers(label))

    def _example(self, parts: Sequence[Sequence[int]], label: Sequence[Any]) -> dict[str, Sequence[int]]:
        """The texts in their frame; "sizes", how long each is, is not written."""
        if not self.pairs:
            tokens = [*self.frame.before, *parts[0], *self.frame.after]
            return {"tokens": tokens, "label": label, "sizes": [len(parts[0])]}
        frame = self.pair_frame
        # [CLS] a [SEP] b [SEP], or what the model has for it.
        pieces = (frame.before, parts[0], frame.between, parts[1], frame.after)
        return {
            "tokens": [id for piece in pieces for id in piece],
            "types": [kind for piece, kind in zip(pieces, frame.types, strict=True) for _ in piece],
            "label": label,
            "sizes": [len(part) for part in parts],
        }

    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        """Without the end of the text; of a pair, of the longer one until both are as long."""
        tokens, sizes = example["tokens"], list(example["sizes"])
        frame = self.pair_frame if self.pairs else self.frame
        # Where each text begins among the tokens.
        start = len(frame.before)
        starts = [start, start + sizes[0] + len(self.pair_frame.between)]
        room = length - len(frame)
        if self.pairs:
            # The shorter text keeps all that it has, up to half of the room.
            first = min(sizes[0], max(room - sizes[1], (room + 1) // 2))
            kept = [first, min(sizes[1], room - first)]
        else:
            kept = [room]
        parts = [tokens[at : at + size] for at, size in zip(starts, kept, strict=False)]
        return self._example(parts, example["label"])

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        del draws
        examples = [each for [each] in rows]
        read = stack_input([[each["tokens"]] for each in examples], pad_id=self.pad_id)
        if self.reads_types:
            read = replace(read, types=filled([each["types"] for each in examples], 0))
        return Batch.labelled(rows, read, labels_of([[each["label"]] for each in examples])[:, 0])

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        # (batch, labels)
        logits = run(self.network, batch).logits
        assert logits is not None
        sums = {"loss": cross_entropy(logits, batch.labels)}
        if not self.training:
            known = batch.labels != NOT_A_TARGET
            wanted, guessed = batch.labels[known], logits.argmax(dim=-1)[known]
            sums["right"] = (guessed == wanted).sum()
            sums["confusion"] = confusion(wanted, guessed, len(self.labels))
        return sums

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        return class_scores(sums)

    def details(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        return {"labels": list(self.labels), "confusion": sums["confusion"]}


def shortly(names: Sequence[str]) -> str:
    """Names in a message: the first of many."""
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def confusion(wanted: Tensor, guessed: Tensor, labels: int) -> Tensor:
    """How often each label (row) was taken for each (column): int64 (labels, labels)."""
    # A pair of labels is one number, and what is counted are numbers.
    return (labels * wanted + guessed).bincount(minlength=labels**2).reshape(labels, labels)


def class_scores(sums: Mapping[str, Any]) -> dict[str, float]:
    """Loss, the share of texts with the right label, and the mean of F1 over the labels (macro-F1).

        F1 of a label = 2 right / (texts that have it + texts that were given it)

    A label that neither occurs nor was given has no F1, and is left out of the mean.
    """
    table, targets = sums["confusion"], max(1.0, sums["targets.loss"])
    # For each label how often it is right or said: the denominator of F1.
    both = [sum(row) + sum(column) for row, column in zip(table, zip(*table, strict=True), strict=True)]
    # Labels that never occur do not count.
    f1_scores = [2.0 * table[label][label] / count for label, count in enumerate(both) if count]
    return {
        "loss": sums["loss"] / targets,
        "accuracy": sums["right"] / targets,
        "macro_f1": sum(f1_scores) / max(1, len(f1_scores)),
    }
