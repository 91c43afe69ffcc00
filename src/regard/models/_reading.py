"""Which vectors of the last hidden state a classifier reads."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regard.core import Mask, padding_of
from regard.core.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class LastState:
    """What a head reads.

    Args:
        state: (batch, N, d_model), the last hidden state.
        token_ids: int64 (batch, N), what the network was called with: the encoder's, where there are two
            stacks.
        mask: who could be attended to.
        pooled: (batch, d_model), the pooler's output, or None.
    """

    state: Tensor
    token_ids: Tensor
    mask: Mask | None = None
    pooled: Tensor | None = None


class Reading(ABC):
    """From the last hidden state to the vectors that are labelled."""

    of_text: ClassVar[bool] = True
    """Whether one vector speaks for a whole row, which must then hold one text."""

    @abstractmethod
    def __call__(self, read: LastState) -> Tensor:
        """(batch, d_model), or (batch, N, d_model) where each token has a label."""


class EveryPosition(Reading):
    """Each one, for a label a token: (batch, N, d_model)."""

    of_text = False

    def __call__(self, read: LastState) -> Tensor:
        return read.state


class FirstPosition(Reading):
    """That of the first position, the [CLS] token: (batch, d_model)."""

    def __call__(self, read: LastState) -> Tensor:
        return read.state[:, 0]


class Pooled(Reading):
    """The pooler's output: (batch, d_model)."""

    def __call__(self, read: LastState) -> Tensor:
        assert read.pooled is not None, "a head that reads the pooler is built with one"
        return read.pooled


class MeanOfTokens(Reading):
    """The mean over the positions that are not padding: (batch, d_model); zero where there is none."""

    def __call__(self, read: LastState) -> Tensor:
        real = padding_of(read.mask)
        if real is None:
            return read.state.mean(dim=1)
        total = torch.where(real[:, :, None], read.state, 0.0).sum(dim=1)
        return total / real.sum(dim=1, keepdim=True).clamp(min=1)


class LastToken(Reading):
    """The last token that is not padding: (batch, d_model).

    With `pad_id`, padding is told by its id alone, as in `transformers`. Without one, it is what the mask
    says is padding, and without a mask there is none; `transformers` refuses several texts then, and reads
    the last position of a single one, padding or not. The first position is read where nothing but padding
    stands.

    Args:
        pad_id: what fills up a text; None where the checkpoint does not say.
    """

    def __init__(self, pad_id: int | None) -> None:
        self.pad_id = pad_id

    def __call__(self, read: LastState) -> Tensor:
        real = padding_of(read.mask) if self.pad_id is None else read.token_ids != self.pad_id
        if real is None:
            return read.state[:, -1]
        return _at(read.state, last_of(real.expand(read.token_ids.shape)))


class LastEnd(Reading):
    """The last token that ends a text: (batch, d_model).

    Args:
        end_id: the token at the end of every text.
    """

    def __init__(self, end_id: int) -> None:
        self.end_id = end_id

    def __call__(self, read: LastState) -> Tensor:
        """See `Reading`.

        Raises:
            InputError: a text without an end, or the decoder read another number of tokens.
        """
        state, token_ids = read.state, read.token_ids
        if state.shape[:2] != token_ids.shape:
            raise InputError(
                "decoder_token_ids must have the shape of token_ids, whose end the classifier reads: "
                f"{tuple(token_ids.shape)}; got {tuple(state.shape[:2])}."
            )
        is_end = token_ids == self.end_id
        if not bool(is_end.any(dim=1).all()):
            raise InputError(
                f"token_ids must hold the end of text, id {self.end_id}, in every row: the classifier reads "
                "its label there."
            )
        return _at(state, last_of(is_end))


def last_of(chosen: Tensor) -> Tensor:
    """int64 (batch,), where the last True of every row of a bool (batch, N) stands; 0 where there is none."""
    return (torch.arange(chosen.shape[1], device=chosen.device) * chosen).argmax(dim=1)


def _at(state: Tensor, places: Tensor) -> Tensor:
    return state[torch.arange(len(state), device=state.device), places]
