"""Which vectors of the last hidden state a classifier reads."""

from collections.abc import Callable
from dataclasses import dataclass

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


Reading = Callable[[LastState], Tensor]
"""From the last hidden state to the vectors that are labelled: (batch, N, d_model) by `every_position`, else
(batch, d_model), one for a whole row, which must then hold one text."""


def every_position(read: LastState) -> Tensor:
    """Each one, for a label a token: (batch, N, d_model)."""
    return read.state


def first_position(read: LastState) -> Tensor:
    """That of the first position, the [CLS] token: (batch, d_model)."""
    return read.state[:, 0]


def pooled(read: LastState) -> Tensor:
    """The pooler's output: (batch, d_model)."""
    assert read.pooled is not None, "a head that reads the pooler is built with one"
    return read.pooled


def mean_of_tokens(read: LastState) -> Tensor:
    """The mean over the positions that are not padding: (batch, d_model); zero where there is none."""
    real = padding_of(read.mask)
    if real is None:
        return read.state.mean(dim=1)
    total = torch.where(real[:, :, None], read.state, 0.0).sum(dim=1)
    return total / real.sum(dim=1, keepdim=True).clamp(min=1)


def last_token(read: LastState, *, pad_id: int | None) -> Tensor:
    """The last token that is not padding: (batch, d_model).

    With `pad_id`, padding is told by its id alone, as in `transformers`. Without one, it is what the mask
    says is padding, and without a mask there is none; `transformers` refuses several texts then, and reads
    the last position of a single one, padding or not. The first position is read where nothing but padding
    stands.
    """
    real = padding_of(read.mask) if pad_id is None else read.token_ids != pad_id
    if real is None:
        return read.state[:, -1]
    return _at(read.state, last_of(real.expand(read.token_ids.shape)))


def last_end(read: LastState, *, end_id: int) -> Tensor:
    """The last token that ends a text: (batch, d_model)."""
    state, token_ids = read.state, read.token_ids
    if state.shape[:2] != token_ids.shape:
        raise InputError(
            "decoder_token_ids must have the shape of token_ids, whose end the classifier reads: "
            f"{tuple(token_ids.shape)}; got {tuple(state.shape[:2])}."
        )
    is_end = token_ids == end_id
    if not bool(is_end.any(dim=1).all()):
        raise InputError(
            f"token_ids must hold the end of text, id {end_id}, in every row: the classifier reads its label "
            "there."
        )
    return _at(state, last_of(is_end))


def last_of(chosen: Tensor) -> Tensor:
    """int64 (batch,), where the last True of every row of a bool (batch, N) stands; 0 where there is none."""
    return (torch.arange(chosen.shape[1], device=chosen.device) * chosen).argmax(dim=1)


def _at(state: Tensor, places: Tensor) -> Tensor:
    return state[torch.arange(len(state), device=state.device), places]
