"""What a decoder has read so far, so that it goes on from there token by token."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.blocks import LayerState
from regard.core import Mask


class Encoded(NamedTuple):
    """What an encoder made of its texts, for the decoder beside it; `Transformer.encode` gives one.

    Attributes:
        state: (batch, N, d_model), its contextual embeddings.
        mask: the mask that it was given, which the decoder obeys too.
    """

    state: Tensor
    mask: Mask | None


class DecoderState:
    """What a decoder has read so far; `Transformer.begin` makes one, `Transformer.decode` lets it grow.

    Args:
        layers: what each layer keeps.
        encoded: (batch, N, d_model), the encoder's output; None for a decoder that reads none.
        encoded_mask: which of its positions may be attended to.

    Attributes:
        length: how many positions have been read, padding included.
        real: bool (batch, length), where a token stands; None where everywhere.
    """

    def __init__(
        self,
        layers: Sequence[LayerState],
        *,
        encoded: Tensor | None = None,
        encoded_mask: Tensor | None = None,
    ) -> None:
        self.layers = tuple(layers)
        self.encoded, self.encoded_mask = encoded, encoded_mask
        self.real: Tensor | None = None

    @property
    def length(self) -> int:
        """How many positions have been read, padding included."""
        return self.layers[0].attention.length

    def add(self, token_ids: Tensor, mask: Tensor | None) -> Tensor | None:
        """Take in where the next tokens stand.

        Args:
            token_ids: int64 (batch, new).
            mask: bool (batch, new), True = a token; None where all are.

        Returns:
            int64 (batch, new), how many tokens of its text stand before each, which does not depend on the
            padding around them; None where there has been no padding.
        """
        # No padding so far: positions are simply counted.
        if mask is None and self.real is None:
            return None
        new = torch.ones_like(token_ids, dtype=torch.bool) if mask is None else mask
        real = self.real
        if real is None:  # what was read before came without padding
            real = new.new_ones(len(new), self.length)
        self.real = torch.cat((real, new), dim=1)
        # The new token itself is counted in its sum, and padding before the first one would get -1.
        return (real.sum(dim=1, keepdim=True) + new.cumsum(dim=1) - 1).clamp_(min=0)

    def pick(self, rows: Tensor, *, sources: Tensor | None = None) -> None:
        """Put other rows of the batch in the places of these: beams that go on, texts that are finished.

        Args:
            rows: int64 (new batch,), which row each one continues.
            sources: int64, which outputs of the encoder stay, each then read by as many of the new rows side
                by side, as the beams of one text do; None where each row has its own. Given once, always.
        """
        sources = rows if sources is None else sources
        # Where no output of the encoder would move, none is copied: they are as long as the texts.
        if self.encoded is None or sources.tolist() == list(range(len(self.encoded))):
            sources = None
        # Rows follow the beams; sources only where they move.
        for layer in self.layers:
            layer.pick(rows, sources)
        if self.real is not None:
            self.real = self.real.index_select(0, rows)
        if self.encoded is not None and sources is not None:
            self.encoded = self.encoded.index_select(0, sources)
        if self.encoded_mask is not None and sources is not None:
            self.encoded_mask = self.encoded_mask.index_select(0, sources)

    def cut(self, length: int) -> None:
        """Forget the last positions, as `KeyValueCache.cut`.

        Args:
            length: how many stay.

        Raises:
            InputError: more than there are, or fewer than a window allows.
        """
        for layer in self.layers:
            layer.cut(length)
        if self.real is not None:
            # The layers and the record of padding have one length.
            self.real = self.real[:, :length]
