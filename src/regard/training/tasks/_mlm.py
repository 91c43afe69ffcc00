"""Masked language modelling, and the masking that ELECTRA and distillation share with it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Transformer
from regard.text import Frame, Tokenizer
from regard.training._batch import Batch, Generators, Row, labels_of, stack_input
from regard.training._losses import NOT_A_TARGET, language_sums
from regard.training.tasks._task import Task, Values


class Masking:
    """Which tokens are to be predicted, and what the network sees in their place.

    Of the words of a text, `share` are drawn (of the tokens, where `whole_words` is false), at least one; of
    the drawn tokens 80 % become the mask token, 10 % a random token, and 10 % stay, where `fates` say so.

    Args:
        mask_id: of the mask token.
        ordinary: the ids that a random token is drawn from.
        share: how much is drawn.
        whole_words: whether all pieces of a word are drawn together.
        fates: which shares of the drawn tokens become the mask token, and a random one.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1 and appendix A.1; whole words: their code's
    README of May 2019.
    """

    def __init__(
        self,
        mask_id: int,
        ordinary: np.ndarray[Any, Any],
        *,
        share: float = 0.15,
        whole_words: bool = True,
        fates: tuple[float, float] = (0.8, 0.1),
    ) -> None:
        if not 0.0 < share < 1.0:
            raise InputError(f"task.masked must be above 0 and below 1; got {share}.")
        self.mask_id, self.ordinary, self.share, self.whole_words = mask_id, ordinary, share, whole_words
        self.fates = fates

    def __call__(
        self, tokens: np.ndarray[Any, Any], words: np.ndarray[Any, Any], draw: np.random.Generator
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The ids that the network sees of a text, and its labels; a word of -1 is never masked."""
        # Words or single tokens: what is drawn as one.
        units = words if self.whole_words else np.where(words < 0, -1, np.arange(len(words)))
        # Tokens of the frame have -1.
        candidates = np.unique(units[units >= 0])
        seen, labels = tokens.copy(), np.full_like(tokens, NOT_A_TARGET)
        if not len(candidates):
            return seen, labels
        # The expected number is share x candidates, also of short texts: the rest decides by chance.
        wanted = self.share * len(candidates)
        count = max(1, int(wanted) + int(draw.random() < wanted % 1.0))
        # All pieces of a drawn word.
        drawn = np.isin(units, draw.permutation(candidates)[:count])
        labels[drawn] = tokens[drawn]
        fate, (masked, others) = draw.random(len(tokens)), self.fates
        # Some are random or stay, since texts without a mask token are read later: as in BERT.
        seen[drawn & (fate < masked)] = self.mask_id
        random = drawn & (fate >= masked) & (fate < masked + others)
        seen[random] = draw.choice(self.ordinary, size=int(random.sum()))
        return seen, labels


class Masked(Task):
    """A task whose texts have masked tokens, drawn anew in each epoch; `masking` draws them."""

    columns = ("tokens", "words")
    tokenizer_kind = "wordpiece"
    marks = "bert"
    forms = ("rows", "packed")
    longer = "split"
    masking: Masking

    @property
    def frame(self) -> Frame:
        """The tokens around every text."""
        return self.tokenizer.bulk.frame()

    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        for text in self.tokenizer.bulk.aligned([text for (text,) in rows]):
            yield framed(text.ids, words_of(text.word_of), self.frame)

    def split(self, example: Mapping[str, Sequence[int]], length: int) -> Iterator[dict[str, Sequence[int]]]:
        # The frame is taken off, and put around each part.
        before, after = len(self.frame.before), len(self.frame.after)
        room = length - before - after  # every part gets the tokens around it anew
        ids, words = (example[name][before : len(example[name]) - after] for name in self.columns)
        for start in range(0, len(ids), room):
            yield framed(ids[start : start + room], words[start : start + room], self.frame)

    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        return next(self.split(example, length))

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        masked = [
            [self.masking(each["tokens"], each["words"], draw) for each, draw in zip(*row, strict=True)]
            for row in zip(rows, draws, strict=True)
        ]
        source = stack_input([[seen for seen, _ in row] for row in masked], pad_id=self.pad_id)
        return Batch.labelled(rows, source, labels_of([[labels for _, labels in row] for row in masked]))


def masking_of(tokenizer: Tokenizer, share: float, whole_words: bool, **more: Any) -> Masking:
    """The masking with a tokenizer's own mask token; refused where it has none."""
    # Without it there is nothing to put in a token's place.
    mask_id = tokenizer.special_ids.mask
    if mask_id is None:
        raise InputError(
            "tokenizer must have a mask token, such as [MASK], for masked language modelling; "
            "`regard tokenizer train --kind wordpiece` makes one that has."
        )
    # A random token must be one that a text could have.
    ids = np.array([id for id in range(tokenizer.vocab_size) if not tokenizer.is_special(id)])
    return Masking(mask_id, ids, share=share, whole_words=whole_words, **more)


def words_of(word_of: Sequence[int]) -> list[int]:
    """The word of each piece; a piece that belongs to none counts as a word of its own.

    Example:
        >>> words_of([0, 0, -1, 1])
        [0, 0, 2, 1]
    """
    # Numbers that no word has.
    fresh = max(word_of, default=-1) + 1
    words = []
    for word in word_of:
        words.append(word if word >= 0 else fresh)
        fresh += word < 0
    return words


def framed(ids: Sequence[int], words: Sequence[int], frame: Frame) -> dict[str, Sequence[int]]:
    """A text between the tokens of the template, which are never masked."""
    before, after = frame.before, frame.after
    return {
        "tokens": [*before, *ids, *after],
        "words": [*[-1] * len(before), *words, *[-1] * len(after)],
    }


class MaskedTokens(Masked):
    """Predict the tokens that were masked: - sum over masked places of log p(x_i | the text as seen).

    A text is masked anew in each epoch. The head reads the masked places only.

    Args:
        network: an encoder with a head for masked tokens.
        tokenizer: its tokenizer, which must have a mask token.
        masked: the share that is drawn.
        whole_words: whether all pieces of a word are drawn together.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1.
    """

    family = "bert"
    head = "masked-lm"

    def __init__(
        self, network: Transformer, tokenizer: Tokenizer, *, masked: float = 0.15, whole_words: bool = True
    ) -> None:
        super().__init__(network, tokenizer)
        if list(network.prefixes) != ["encoder"] or not network.has_vocabulary_head:
            raise InputError("model must be an encoder with a head for masked tokens for mlm, such as bert.")
        self.masking = masking_of(tokenizer, masked, whole_words)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        state = self.state(batch).last_hidden_state
        return language_sums(self.network, state, batch.labels)
