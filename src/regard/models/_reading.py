"""Which vectors of the last hidden state a classifier reads."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from regard.core import Mask, padding_of
from regard.core.errors import InputError


class Reading(ABC):
    """From the last hidden state to the vectors that are labelled."""

    of_text: ClassVar[bool] = True
    """Whether one vector speaks for a whole row, which must then hold one text."""

    @abstractmethod
    def __call__(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, d_model), or (batch, N, d_model) where each token has a label.

        Args:
            state, pooled, token_ids, mask: as in `Head.forward`.
        """


class EveryPosition(Reading):
    """Each one, for a label a token: (batch, N, d_model)."""

    of_text = False

    def __call__(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """See `Reading`."""
        del pooled, token_ids, mask
        return state


class FirstPosition(Reading):
    """That of the first position, the [CLS] token: (batch, d_model)."""

    def __call__(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """See `Reading`."""
        del pooled, token_ids, mask
        return state[:, 0]


class Pooled(Reading):
    """The pooler's output: (batch, d_model)."""

    def __call__(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """See `Reading`."""
        del state, token_ids, mask
        assert pooled is not None, "a head that reads the pooler is built with one"
        return pooled


class MeanOfTokens(Reading):
    """The mean over the positions that are not padding: (batch, d_model); zero where there is none.

    Example:
        >>> from regard.core import Padding
        >>> real = torch.tensor([[True, True, False]])
        >>> MeanOfTokens()(torch.tensor([[[2.0], [4.0], [9.0]]]), pooled=None,
        ...                token_ids=torch.tensor([[5, 6, 0]]), mask=Padding(real))
        tensor([[3.]])
    """

    def __call__(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """See `Reading`."""
        del pooled, token_ids
        real = padding_of(mask)
        if real is None:
            return state.mean(dim=1)
        total = torch.where(real[:, :, None], state, 0.0).sum(dim=1)
        return total / real.sum(dim=1, keepdim=True).clamp(min=1)


class LastToken(Reading):
    """The last token that is not padding: (batch, d_model).

    With `pad_id`, padding is told by its id alone, as in `transformers`. Without one, it is what the mask
    says is padding, and without a mask there is none; `transformers` refuses several texts then, and reads
    the last position of a single one, padding or not. The first position is read where nothing but padding
    stands.

    Args:
        pad_id: what fills up a text; None where the checkpoint does not say.

    Example:
        >>> LastToken(0)(torch.tensor([[[2.0], [4.0], [9.0]]]), pooled=None,
        ...              token_ids=torch.tensor([[5, 6, 0]]), mask=None)
        tensor([[4.]])
    """

    def __init__(self, pad_id: int | None) -> None:
        self.pad_id = pad_id

    def __call__(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """See `Reading`."""
        del pooled
        real = padding_of(mask) if self.pad_id is None else token_ids != self.pad_id
        return state[:, -1] if real is None else _at(state, last_of(real.expand(token_ids.shape)))


class LastEnd(Reading):
    """The last token that ends a text: (batch, d_model).

    Args:
        end_id: the token at the end of every text.
    """

    def __init__(self, end_id: int) -> None:
        self.end_id = end_id

    def __call__(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """See `Reading`.

        Raises:
            InputError: a text without an end, or the decoder read another number of tokens.
        """
        del pooled, mask
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
