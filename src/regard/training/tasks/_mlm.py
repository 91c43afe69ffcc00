"""Masked language modelling."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.core.errors import InputError
from regard.models import Transformer
from regard.text import Tokenizer
from regard.training._batch import Batch
from regard.training._losses import cross_entropy
from regard.training._readout import loss_of, right, sums_of
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
        state = self.state(batch).last_hidden_state
        if self.training:
            return {"loss": loss_of(self.network, state, batch.labels, cross_entropy)}
        return sums_of(self.network, state, batch.labels, {"loss": cross_entropy, "right": right})

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        return of_language_model(sums)
