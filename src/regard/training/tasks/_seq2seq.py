"""Encoder-decoder training with teacher forcing."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from torch import Tensor

from regard.core.errors import InputError
from regard.decoding import Beams, decode_texts
from regard.models import Transformer
from regard.text import Tokenizer
from regard.training._batch import Batch, Generators, Row, labels_of, stack_input
from regard.training._losses import cross_entropy, kl_divergence, language_sums
from regard.training.tasks._scores import USUAL, language_scores, signatures, texts_scored, translation_scores
from regard.training.tasks._task import Task, Values

_LOSSES = {"cross-entropy": cross_entropy, "kl": kl_divergence}


class Translation(Task):
    """Predict each token of the target from the source and the target's tokens before it.

    The decoder reads the right tokens, whatever it would have predicted itself (teacher forcing): its start
    token, then the target without its last token.

    Args:
        network: an encoder and a decoder, with a head over the decoder's vocabulary.
        tokenizer: its tokenizer.
        smoothing: the share of the target distribution that is spread over the vocabulary.
        loss: "cross-entropy", or "kl": the same less the entropy of the target distribution, a constant.
        bleu_texts: how many texts of the set to score on are translated for each score, the first ones; 0 for
            none, None for 200 where sacrebleu is installed.
        bleu_tokenize: how sacrebleu's BLEU cuts texts into words: "13a", "intl", "char", "zh", or "none" for
            texts that are tokenised already.
        beam: how many beams translate them.

    Source: Vaswani et al. 2017, arXiv 1706.03762, sections 3.1 and 5.4.
    """

    reads = ("text", "target")
    columns = ("source", "target")
    sized = ("source", "target")
    family = "marian"
    # The network of the paper: regard.models.families.bart.original_transformer.
    sizes = MappingProxyType({"activation": "relu", "scale_embedding": True, "starts_xavier": True})
    schedule = "inverse-sqrt"
    head = "language-model"
    tokenizer_kind = "bpe"
    marks = "t5"
    forms = ("rows", "packed")
    longer = "drop"  # half a text is no translation of a whole one

    def __init__(
        self,
        network: Transformer,
        tokenizer: Tokenizer,
        *,
        smoothing: float = 0.1,
        loss: Literal["cross-entropy", "kl"] = "cross-entropy",
        bleu_texts: int | None = None,
        bleu_tokenize: str = USUAL,
        beam: int = 1,
    ) -> None:
        super().__init__(network, tokenizer)
        if len(network.prefixes) != 2:
            raise InputError("model must have an encoder and a decoder for seq2seq, such as marian or t5.")
        if loss not in _LOSSES:
            raise InputError(f"task.loss must be {' or '.join(_LOSSES)}; got {loss!r}.")
        if not 0.0 <= smoothing < 1.0:
            raise InputError(f"task.smoothing must be at least 0 and below 1; got {smoothing}.")
        self.smoothing, self.loss = smoothing, _LOSSES[loss]
        self.samples, self.beam = texts_scored(bleu_texts), beam
        self.signatures = signatures(bleu_tokenize) if self.samples else {}
        self.bleu_tokenize = bleu_tokenize
        self.best = "chrf" if self.samples else "loss"  # low BLEU is mostly chance
        self.frames = tokenizer.bulk.frame(), tokenizer.target.bulk.frame()
        end = tokenizer.special_ids.eos
        if end is None and not self.frames[1].after:
            raise InputError(
                "tokenizer must mark the end of a text, such as </s>: the decoder learns to stop."
            )
        self.end = self.frames[1].after or (end,)

    @classmethod
    def predicted(cls, values: Values) -> str:
        return str(values[1])

    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        sources, targets = zip(*rows, strict=True)
        before, after = self.frames[0].before, self.frames[0].after
        pieces = self.tokenizer.bulk.pieces(sources), self.tokenizer.target.bulk.pieces(targets)
        for source, target in zip(*pieces, strict=True):
            yield {
                "source": [*before, *source, *after],
                "target": [*self.frames[1].before, *target, *self.end],
            }

    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        keep = {"source": self.frames[0].after, "target": self.end}
        return {
            name: ids if len(ids) <= length else [*ids[: length - len(keep[name])], *keep[name]]
            for name, ids in example.items()
        }

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        del draws
        source = stack_input([[each["source"] for each in row] for row in rows], pad_id=self.pad_id)
        read = [[self.shifted(each["target"]) for each in row] for row in rows]
        labels = labels_of([[each["target"] for each in row] for row in rows])
        return Batch.of(rows, source, labels, target=stack_input(read, pad_id=self.pad_id))

    def shifted(self, target: np.ndarray) -> np.ndarray:
        """The input of the decoder: the start token, then the target without its last token."""
        start = self.network.start_id
        return np.concatenate(([target[-1] if start is None else start], target[:-1]))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        state = self.state(batch).last_hidden_state
        loss = partial(self.loss, smoothing=self.smoothing)
        return language_sums(self.network, state, batch.labels, loss)

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        return language_scores(sums)

    def written(self, network: Transformer, samples: Sequence[Values]) -> dict[str, float]:
        """BLEU and chrF of translations of the samples."""
        choice = Beams(self.beam) if self.beam > 1 else None
        found = decode_texts(network, self.tokenizer, [source for source, _ in samples], choice=choice)
        written, wanted = [ways[0].text for ways in found], [target for _, target in samples]
        return translation_scores(written, wanted, tokenize=self.bleu_tokenize)
