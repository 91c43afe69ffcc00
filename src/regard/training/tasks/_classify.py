"""A label for a text, or for a pair of texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.models import Transformer
from regard.text import Tokenizer
from regard.training._batch import Batch, Draws, Row, filled, labels_of, side
from regard.training._losses import NOT_A_TARGET, cross_entropy
from regard.training.tasks._labels import Labelled, confusion
from regard.training.tasks._scores import of_classes
from regard.training.tasks._task import Values, run


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
        start = len(frame.before)
        starts = [start, start + sizes[0] + len(self.pair_frame.between)]
        room = length - len(frame)
        if self.pairs:
            first = min(sizes[0], max(room - sizes[1], (room + 1) // 2))
            kept = [first, min(sizes[1], room - first)]
        else:
            kept = [room]
        parts = [tokens[at : at + size] for at, size in zip(starts, kept, strict=False)]
        return self._example(parts, example["label"])

    def batch(self, rows: Sequence[Row], draws: Draws) -> Batch:
        del draws
        examples = [each for [each] in rows]
        read = side([[each["tokens"]] for each in examples], pad_id=self.pad_id)
        if self.reads_types:
            read = replace(read, types=filled([each["types"] for each in examples], 0))
        labels = labels_of([[each["label"]] for each in examples])[:, 0]
        return Batch(
            source=read,
            labels=labels,
            counts={"loss": int((labels != NOT_A_TARGET).sum())},
            examples=len(rows),
            more={},
        )

    def forward(self, batch: Batch) -> dict[str, Tensor]:
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
        return of_classes(sums)

    def details(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        return {"labels": list(self.labels), "confusion": sums["confusion"]}
