"""Encoder-decoder training with teacher forcing."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from torch import Tensor

from regard.core.errors import InputError
from regard.core.extras import missing
from regard.decoding import Beams, decode_texts
from regard.models import Transformer
from regard.text import Tokenizer
from regard.training._batch import Batch, Generators, Row, labels_of, stack_input
from regard.training._losses import cross_entropy, kl_divergence, language_sums
from regard.training.tasks._task import Task, Values

_USUAL_TEXTS = 200
"""Texts that are translated for each score by default."""

_USUAL = "13a"
"""How sacrebleu cuts texts into words by default: as the WMT's script mteval-v13a does."""

_TOKENIZERS = ("13a", "none", "intl", "char", "zh")  # of sacrebleu's those that need nothing else

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
        bleu_tokenize: str = _USUAL,
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
        # Texts that are translated for BLEU; 0 for none.
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
        # What the decoder learns to stop with.
        self.end = self.frames[1].after or (end,)

    @classmethod
    def predicted(cls, values: Values) -> str:
        return str(values[1])

    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        sources, targets = zip(*rows, strict=True)
        # Source and target may have tokenizers of their own.
        before, after = self.frames[0].before, self.frames[0].after
        pieces = self.tokenizer.bulk.pieces(sources), self.tokenizer.target.bulk.pieces(targets)
        for source, target in zip(*pieces, strict=True):
            yield {
                "source": [*before, *source, *after],
                "target": [*self.frames[1].before, *target, *self.end],
            }

    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        # A cut text keeps its end.
        keep = {"source": self.frames[0].after, "target": self.end}
        return {
            name: ids if len(ids) <= length else [*ids[: length - len(keep[name])], *keep[name]]
            for name, ids in example.items()
        }

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        del draws
        source = stack_input([[each["source"] for each in row] for row in rows], pad_id=self.pad_id)
        # Teacher forcing: the decoder reads the true tokens before each.
        read = [[self.shifted(each["target"]) for each in row] for row in rows]
        labels = labels_of([[each["target"] for each in row] for row in rows])
        return Batch.labelled(rows, source, labels, target=stack_input(read, pad_id=self.pad_id))

    def shifted(self, target: np.ndarray) -> np.ndarray:
        """The input of the decoder: the start token, then the target without its last token."""
        start = self.network.start_id
        # mBART begins with the target's last token, its language.
        return np.concatenate(([target[-1] if start is None else start], target[:-1]))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        state = self.state(batch).last_hidden_state
        loss = partial(self.loss, smoothing=self.smoothing)
        return language_sums(self.network, state, batch.labels, loss)

    def written(self, network: Transformer, samples: Sequence[Values]) -> dict[str, float]:
        """BLEU and chrF of translations of the samples."""
        # Greedy by default: beams take as many times as long.
        choice = Beams(self.beam) if self.beam > 1 else None
        found = decode_texts(network, self.tokenizer, [source for source, _ in samples], choice=choice)
        written, wanted = [ways[0].text for ways in found], [target for _, target in samples]
        return translation_scores(written, wanted, tokenize=self.bleu_tokenize)


def texts_scored(wanted: int | None) -> int:
    """Texts to translate for a score: `wanted`, or by default 200 where sacrebleu is installed, else none."""
    if wanted is None:
        return _USUAL_TEXTS if find_spec("sacrebleu") is not None else 0
    if wanted < 0:
        raise InputError(f"task.bleu_texts must be at least 0; got {wanted}.")
    # Asked for: say now what is missing.
    if wanted:
        _metrics()
    return wanted


def translation_scores(
    found: Sequence[str], wanted: Sequence[str], *, tokenize: str = _USUAL
) -> dict[str, float]:
    """BLEU and chrF of translations, each against one reference, in percent; 0 without any.

    Source: Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation"; Popović
    2015, "chrF: character n-gram F-score"; as Post 2018, arXiv 1804.08771, computes them.
    """
    return {
        name: metric.corpus_score(list(found), [list(wanted)]).score if found else 0.0
        for name, metric in _metrics(tokenize).items()
    }


def signatures(tokenize: str = _USUAL) -> dict[str, str]:
    """How the scores are computed, in sacrebleu's notation, which papers quote."""
    return {name: _signed(metric) for name, metric in _metrics(tokenize).items()}


def _signed(metric: Any) -> str:
    metric.corpus_score(["a"], [["a"]])  # only then it knows how many references there are
    return str(metric.get_signature())


def _metrics(tokenize: str = _USUAL) -> dict[str, Any]:
    try:
        metrics = import_module("sacrebleu.metrics")
    except ImportError as error:
        raise missing("BLEU and chrF need", error, "sacrebleu") from error
    if tokenize not in _TOKENIZERS:
        raise InputError(f"task.bleu_tokenize must be {' or '.join(_TOKENIZERS)}; got {tokenize!r}.")
    # force: texts that look tokenised are scored as the signature says, without a remark for each score.
    return {"bleu": metrics.BLEU(tokenize=tokenize, force=True), "chrf": metrics.CHRF()}
