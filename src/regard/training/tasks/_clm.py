"""Next-token prediction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import FamilyConfig, Transformer
from regard.text import Tokenizer
from regard.training._batch import Batch, Generators, Row, labels_of, stack_input
from regard.training._losses import NOT_A_TARGET, language_sums
from regard.training.tasks._task import Task, Values, run


class NextToken(Task):
    """Predict each token from those before it: - sum_t log p(x_t | x_<t).

    A text is read as it stands, with the mark of its beginning and of its end where the tokenizer has them.

    Args:
        network: a decoder with a head over the vocabulary.
        tokenizer: its tokenizer.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", equation 1.
    """

    beyond = 1
    family = "gpt2"
    head = "language-model"
    tokenizer_kind = "bpe"
    unit = "file"
    forms = ("blocks", "packed", "rows")
    longer = "split"

    def __init__(self, network: Transformer, tokenizer: Tokenizer) -> None:
        super().__init__(network, tokenizer)
        if list(network.prefixes) != ["decoder"] or not network.has_vocabulary_head:
            raise InputError("model must be a decoder with a head over the vocabulary for clm, such as gpt2.")
        special = tokenizer.special_ids
        # Where a tokenizer has no such marks, as of characters, a text is read without.
        self.first = () if special.bos is None else (special.bos,)
        self.last = () if special.eos is None else (special.eos,)
        self.penalties = network.config.penalties() if isinstance(network.config, FamilyConfig) else {}

    @property
    def weights(self) -> Mapping[str, float]:
        return {"loss": 1.0, **self.penalties}

    @classmethod
    def predicted(cls, values: Values) -> str:
        return str(values[0])

    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        # A text with its marks of begin and end.
        for pieces in self.tokenizer.bulk.pieces([text for (text,) in rows]):
            yield {"tokens": [*self.first, *pieces, *self.last]}

    def split(self, example: Mapping[str, Sequence[int]], length: int) -> Iterator[dict[str, Sequence[int]]]:
        """Windows of length + 1 tokens; each begins with the last target of the one before."""
        tokens = example["tokens"]
        # The last token of a window is only predicted, and the first of the next only read.
        for start in range(0, len(tokens) - 1, length):
            yield {"tokens": tokens[start : start + length + 1]}

    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        return {"tokens": example["tokens"][: length + 1]}

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        del draws
        texts = [[each["tokens"] for each in row] for row in rows]
        # Position t predicts token t + 1; texts of one row stay apart.
        labels = labels_of([[text[1:] for text in row] for row in texts])
        batch = Batch.labelled(
            rows, stack_input([[text[:-1] for text in row] for row in texts], pad_id=self.pad_id), labels
        )
        return replace(batch, counts=dict.fromkeys(self.weights, batch.counts["loss"]))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        # What attention layers say of themselves, such as spans.
        heard: dict[str, list[Tensor]] = {name: [] for name in self.penalties}
        listeners = {f"layers.*.attention.{name}": each.append for name, each in heard.items()}
        taps = Taps(listeners) if listeners else None
        state = run(self.network, batch, logits=False, taps=taps).last_hidden_state
        # One number for each token that has a target, and layer; as of the loss, their sums.
        is_target = batch.labels != NOT_A_TARGET
        penalties = {
            name: torch.stack([(each * is_target).sum() for each in values]).sum()
            for name, values in heard.items()
        }
        return language_sums(self.network, state, batch.labels) | penalties

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        # By its own number of targets.
        targets = {name: max(1.0, sums[f"targets.{name}"]) for name in self.penalties}
        return super().scores(sums) | {name: sums[name] / count for name, count in targets.items()}
