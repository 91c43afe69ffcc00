"""A tag for every word."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from regard.models import Transformer
from regard.text import Tokenizer
from regard.training._batch import Batch, Generators, Row, labels_of, stack_input
from regard.training._losses import NOT_A_TARGET, cross_entropy
from regard.training.tasks._classify import Labelled
from regard.training.tasks._task import Values, precision_recall_f1, run


class WordTags(Labelled):
    """Predict the tag of each word: - sum over words of log p(tag | text), read off its first piece.

    The words are joined by blanks for the tokenizer. A word that it drops has no target.

    Args:
        network: one with a head for labels of tokens.
        tokenizer: its tokenizer.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 5.3.
    """

    reads = ("text", "label")
    named = {"text": "words", "label": "tags"}
    has_tags = True
    columns = ("tokens", "labels")
    head = "token"
    forms = ("rows", "packed")

    def __init__(self, network: Transformer, tokenizer: Tokenizer) -> None:
        super().__init__(network, tokenizer)
        self.frame = tokenizer.bulk.frame()
        # Tags of spans are scored by spans, others by words.
        self.kinds = kinds_of(self.labels) if is_bio(self.labels) else ()
        self.best = "f1" if self.kinds else "accuracy"

    @classmethod
    def texts_of(cls, values: Values) -> Iterable[str]:
        return (" ".join(map(str, values[0])),)

    @classmethod
    def names_in(cls, value: Any) -> Iterable[Any]:
        if isinstance(value, str):
            raise TypeError("a text, not a list")
        yield from value

    def refusal(self, values: Values) -> str | None:
        words, tags = values
        if not all(isinstance(each, list) for each in values):
            return "must hold a list of words and a list of tags"
        # The checks of a row, from the type of it to each word.
        if len(words) != len(tags):
            return f"must hold as many words as tags; got {len(words)} and {len(tags)}"
        if not all(isinstance(word, str) and word.strip() for word in words):
            return "must hold words, none of them blank"
        return super().refusal((" ", tags))

    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        before, after = self.frame.before, self.frame.after
        aligned = self.tokenizer.bulk.aligned([" ".join(words) for words, _ in rows])
        for (words, tags), text in zip(rows, aligned, strict=True):
            # Only the first piece of a word has a label.
            labels = [NOT_A_TARGET] * len(text.ids)
            # Where each word ends in the joined text, its blank included.
            ends = list(accumulate(len(word) + 1 for word in words))
            last = -1
            for place, (start, end) in enumerate(text.spans):
                # By its end: some pieces begin with the blank before their word.
                word = bisect_right(ends, end - 1)
                if start < end and word > last:  # the first piece of a word
                    last, labels[place] = word, self._tag(tags[word])
            yield {
                "tokens": [*before, *text.ids, *after],
                "labels": [*[NOT_A_TARGET] * len(before), *labels, *[NOT_A_TARGET] * len(after)],
            }

    def _tag(self, name: Any) -> int:
        [number] = self.numbers([name])
        assert number is not None, "rows with unknown tags are refused"
        return number

    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        # The frame's end stays.
        after = len(self.frame.after)
        return {name: [*ids[: length - after], *ids[len(ids) - after :]] for name, ids in example.items()}

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        del draws
        source = stack_input([[each["tokens"] for each in row] for row in rows], pad_id=self.pad_id)
        return Batch.labelled(rows, source, labels_of([[each["labels"] for each in row] for row in rows]))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        logits = run(self.network, batch).logits
        assert logits is not None
        sums = {"loss": cross_entropy(logits, batch.labels)}
        if not self.training:
            guessed = logits.argmax(dim=-1)
            sums["right"] = (guessed == batch.labels).sum()
            if self.kinds:
                sums["spans"] = self._spans(batch, guessed)
        return sums

    def _spans(self, batch: Batch, guessed: Tensor) -> Tensor:
        """int64 (kinds, 3): of each kind the spans that there are, that were found, and that are right."""
        counts = torch.zeros(len(self.kinds), 3, dtype=torch.int64)
        # None where each row is one text.
        numbers = batch.source.segments
        texts = torch.zeros_like(batch.labels) if numbers is None else numbers
        # Text by text, also of several in a row: no span goes on in the next text.
        for row, places in enumerate(batch.labels != NOT_A_TARGET):
            for text in set(texts[row, places].tolist()):
                # The words of one text, in order.
                chosen = places & (texts[row] == text)
                there, seen = (
                    spans([self.labels[tag] for tag in tags[row, chosen].tolist()])
                    for tags in (batch.labels, guessed)
                )
                # In the data, found, and in both.
                for column, kind_spans in enumerate((there, seen, there & seen)):
                    for kind, _, _ in kind_spans:
                        counts[self.kinds.index(kind), column] += 1
        return counts

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        targets = max(1.0, sums["targets.loss"])
        scores = {"loss": sums["loss"] / targets, "accuracy": sums["right"] / targets}
        return scores | (
            precision_recall_f1([sum(column) for column in zip(*sums["spans"], strict=True)])
            if self.kinds
            else {}
        )

    def details(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        found = zip(self.kinds, sums.get("spans", ()), strict=True)
        return {"kinds": {kind: precision_recall_f1(counts) | {"spans": counts[0]} for kind, counts in found}}


def is_bio(tags: Sequence[str]) -> bool:
    """Whether tags mark spans: each is "O", or begins with one of B-, I-, E- and S-."""
    return all(tag == "O" or tag[:2] in ("B-", "I-", "E-", "S-") for tag in tags) and set(tags) != {"O"}


def kinds_of(tags: Sequence[str]) -> tuple[str, ...]:
    """The kinds of spans, in order."""
    return tuple(sorted({tag[2:] for tag in tags if tag != "O"}))


def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """The spans that the tags of a text mark: kind, first word, and the word after the last.

    An I- that does not go on from a word of its kind begins a span, as in IOB1 and in what a model says.

    Source: conlleval.pl, Tjong Kim Sang 2004, "endOfChunk" and "startOfChunk"; seqeval has the same rules.
    """
    marked = set()
    start, kind, before = 0, "", "O"
    # One "O" more ends a span that reaches the end.
    for place, tag in enumerate([*tags, "O"]):
        prefix = tag[0]
        # I or E goes on with a span of its own kind that B or I began.
        goes_on = prefix in "IE" and before in "BI" and tag[2:] == kind
        if not goes_on:
            if before != "O":
                marked.add((kind, start, place))
            # Also where a tag goes on from nothing, or from another kind.
            start, kind = place, tag[2:]
        before = prefix
    return marked
