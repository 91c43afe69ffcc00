"""What the families are run on: every kind of input, for encoders, decoders, and both together."""

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Shape = Literal["encoder", "decoder", "encoder-decoder"]
Kind = Literal["encoder", "decoder"]

BATCH, N, M = 5, 13, 11
_LENGTHS = torch.tensor([13, 2, 7, 1, 11])
_TARGET_LENGTHS = torch.tensor([3, 11, 1, 5, 7])
_PACKED = (5, 1, 7)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """An input of both libraries: int64 (batch, N), and masks, True = a token.

    Args:
        token_ids: the encoder's, or the only stack's.
        mask: where there is a token; None where everywhere.
        token_types: which sentence.
        positions: the numbers of the positions, where they are given.
        target_ids, target_mask: the decoder's, of an encoder-decoder.
        packed: the lengths of the texts that stand in the one row; empty where there is one.
    """

    token_ids: Tensor
    mask: Tensor | None = None
    token_types: Tensor | None = None
    positions: Tensor | None = None
    target_ids: Tensor | None = None
    target_mask: Tensor | None = None
    packed: tuple[int, ...] = ()

    def real(self, kind: Kind) -> Tensor:
        """bool (batch, positions): where the stack has a token."""
        target = kind == "decoder" and self.target_ids is not None
        ids, mask = (self.target_ids, self.target_mask) if target else (self.token_ids, self.mask)
        assert ids is not None
        return torch.ones_like(ids, dtype=torch.bool) if mask is None else mask

    def texts(self) -> list["Batch"]:
        """A packed row's texts, each by itself."""
        pieces = self.token_ids.split(list(self.packed), dim=1)
        return [Batch(token_ids=piece) for piece in pieces]


@dataclass(frozen=True, kw_only=True)
class InputsOf:
    """Makes the inputs of a network of some sizes.

    Args:
        shape: its stacks.
        vocab_size: ids are below it.
        pad_id: what pads where padding has an id of its own; None where the network knows none.
        eos_id: what ends a text, where the network looks for it.
        max_len: the longest text; None where there is no limit.
        num_token_types: 0 where there are none.
        first_position: the number of the first position.
        takes_positions, packs: whether numbers of positions can be given, and texts packed.
    """

    shape: Shape
    vocab_size: int
    pad_id: int | None
    eos_id: int | None
    max_len: int | None
    num_token_types: int
    first_position: int
    takes_positions: bool
    packs: bool

    @functools.cache  # noqa: B019 - the entries, which they belong to, stay to the end
    def all(self) -> dict[str, Batch]:
        """Every kind. Where padding has no id of its own it holds any: what is masked must not matter.

        Neither pad_id nor eos_id stands for a token: transformers never trains the row of pad_id, which
        regard does where it is given as a token.
        """
        made = self._of_two_stacks() if self.shape == "encoder-decoder" else self._of_one_stack()
        if self.num_token_types:
            types = torch.randint(0, self.num_token_types, (BATCH, N), generator=_generator(3))
            made["pair"] = Batch(token_ids=self._ids(1, N), token_types=torch.tensor([[0] * 6 + [1] * 7]))
            made["types-padded"] = Batch(token_ids=self._ids(), mask=_right(), token_types=types)
        return made

    @functools.cache  # noqa: B019
    def of_head(self, head: str) -> dict[str, Batch]:
        """What the heads are run on: padding is told by ids, where a head reads them."""
        if self.shape == "encoder-decoder" and head == "sequence":
            return self._to_classify()
        every = self.all()
        return {
            name: every[name] for name in ("plain", "batch", "right-pad-id", "left-pad-id") if name in every
        }

    def _of_one_stack(self) -> dict[str, Batch]:
        holes = torch.rand(BATCH, N, generator=_generator(1)) < 0.5
        holes[:, 0] = True
        left = _right().flip(1)
        made = {
            "plain": Batch(token_ids=self._ids(1)),
            "one-token": Batch(token_ids=self._ids(1, 1)),
            "longest": Batch(token_ids=self._ids(1, 29 if self.max_len is None else self.max_len)),
            "batch": Batch(token_ids=self._ids()),
            "mask-of-ones": Batch(token_ids=self._ids(), mask=torch.ones(BATCH, N, dtype=torch.bool)),
            "right-padded": Batch(token_ids=self._ids(), mask=_right()),
            "left-padded": Batch(token_ids=self._ids(), mask=left),
            "holes": Batch(token_ids=self._ids(), mask=holes),
            "right-pad-id": Batch(token_ids=self._padded(_right()), mask=_right()),
            "left-pad-id": Batch(token_ids=self._padded(left), mask=left),
        }
        if self.takes_positions:
            counted = (left.cumsum(1) - 1).clamp(min=0) + self.first_position
            made["left-positions"] = Batch(token_ids=self._ids(), mask=left, positions=counted)
        if self.packs:
            numbers = torch.cat([torch.arange(length) for length in _PACKED])[None] + self.first_position
            positions = numbers if self.takes_positions else None
            made["packed"] = Batch(token_ids=self._ids(1), positions=positions, packed=_PACKED)
        return made

    def _of_two_stacks(self) -> dict[str, Batch]:
        source, target = self._ids(), self._ids(BATCH, M, seed=5)
        right, target_right = _right(), torch.arange(M) < _TARGET_LENGTHS[:, None]
        left, target_left = right.flip(1), target_right.flip(1)
        holes = torch.rand(BATCH, N, generator=_generator(1)) < 0.5
        holes[:, 0] = True
        longest = 29 if self.max_len is None else self.max_len

        def made(mask: Tensor | None, target_mask: Tensor | None) -> Batch:
            return Batch(token_ids=source, mask=mask, target_ids=target, target_mask=target_mask)

        return {
            "plain": Batch(token_ids=source[:1], target_ids=target[:1, :7]),
            "longer-target": Batch(token_ids=source[:1, :5], target_ids=target[:1]),
            "one-token": Batch(token_ids=source[:1, :1], target_ids=target[:1, :1]),
            "longest": Batch(token_ids=self._ids(1, longest), target_ids=self._ids(1, longest, seed=5)),
            "batch": made(None, None),
            "right-padded": made(right, None),
            "left-padded": made(left, None),
            "holes": made(holes, None),
            "right-right": made(right, target_right),
            "left-left": made(left, target_left),
            "right-left": made(right, target_left),
            "right-pad-id": Batch(
                token_ids=self._padded(right),
                mask=right,
                target_ids=self._padded(target_right),
                target_mask=target_right,
            ),
            "left-pad-id": Batch(
                token_ids=self._padded(left),
                mask=left,
                target_ids=self._padded(target_left),
                target_mask=target_left,
            ),
        }

    def _to_classify(self) -> dict[str, Batch]:
        """Both stacks of one length, one eos_id at each text's end: BART reads the decoder there."""
        assert self.eos_id is not None
        right = torch.arange(N) < _LENGTHS[:, None]
        padded = self._padded(right)
        padded[torch.arange(BATCH), _LENGTHS - 1] = self.eos_id
        target = self._ids(seed=5)
        return {
            "plain": Batch(token_ids=padded[:1], target_ids=target[:1]),
            "right-pad-id": Batch(token_ids=padded, mask=right, target_ids=target),
        }

    def _ids(self, batch: int = BATCH, length: int = N, *, seed: int = 7) -> Tensor:
        reserved = {self.pad_id, self.eos_id}
        allowed = torch.tensor([token for token in range(self.vocab_size) if token not in reserved])
        return allowed[torch.randint(0, len(allowed), (batch, length), generator=_generator(seed))]

    def _padded(self, mask: Tensor) -> Tensor:
        ids = self._ids(*mask.shape)
        return ids if self.pad_id is None else ids.masked_fill(~mask, self.pad_id)


def _right() -> Tensor:
    return torch.arange(N) < _LENGTHS[:, None]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
