"""Masked language modelling."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Network, Transformer
from regard.text import Tokenizer
from regard.training._batch import Batch
from regard.training._losses import NOT_A_TARGET, cross_entropy
from regard.training.tasks._masking import Masked, masking_of
from regard.training.tasks._scores import of_language_model


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
        targets, logits = predicted(self.network, batch, self.state(batch).last_hidden_state)
        sums = {"loss": cross_entropy(logits, targets)}
        if not self.training:
            sums["right"] = (logits.argmax(dim=-1) == targets).sum()
        return sums

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        return of_language_model(sums)


def predicted(network: Network, batch: Batch, state: Tensor) -> tuple[Tensor, Tensor]:
    """The labels of the masked places, (M,), and the head's logits there, (M, V).

    At least one place is read, so that every parameter takes part in every step.
    """
    wanted = batch.labels != NOT_A_TARGET
    if not bool(wanted.any()):
        wanted = torch.zeros_like(wanted)
        wanted[:, 0] = True
    logits = network.readout(state[wanted][None], normed=True)
    assert logits is not None
    return batch.labels[wanted], logits[0]
