"""The attentions that are measured, each a function of one record, with a forecast of its memory."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from regard.blocks.attentions import LinearAttention, Linformer, Performer
from regard.core import (
    AttentionInputs,
    Causal,
    DilatedWindow,
    Mask,
    fused_attention,
    reference_attention,
)
from regard.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of what is measured: one text of `length` tokens.

    Args:
        length: queries, and keys.
        heads, head_dim: as of `AttentionInputs`.
        causal: whether a query sees only what is before it.
    """

    length: int
    heads: int = 12
    head_dim: int = 32
    causal: bool = False

    def record(self, seed: int = 0) -> AttentionInputs:
        """Normal numbers as q, k and v."""
        draw = torch.Generator().manual_seed(seed)
        shape = 1, self.heads, self.length, self.head_dim
        q, k, v = (torch.randn(shape, generator=draw) for _ in range(3))
        return AttentionInputs(q=q, k=k, v=v, mask=Causal() if self.causal else None)

    @property
    def record_bytes(self) -> int:
        """Of q, k, v and the context."""
        return 16 * self.length * self.heads * self.head_dim


class Case(ABC):
    """An attention that is measured.

    Attributes:
        name: what the command calls it.
        is_causal: whether it has a causal form.
        is_exact: whether it is softmax attention over all keys, to rounding.
    """

    name: ClassVar[str]
    is_causal: ClassVar[bool] = True
    is_exact: ClassVar[bool] = False

    @abstractmethod
    def context(self, inputs: AttentionInputs) -> Tensor:
        """The context of a record."""

    @abstractmethod
    def numbers(self, shape: Shape) -> int:
        """More float32 numbers than it has at any time beside the record."""

    def check(self, *, causal: bool) -> None:
        """Raise InputError where it has no causal form and one is wanted."""
        if causal and not self.is_causal:
            able = ", ".join(name for name, case in CASES.items() if case.is_causal)
            raise InputError(f"attention must have a causal form, as {able} have; got {self.name}.")


# torch's own buffers, a block of a mask, and what the C library rounds up to.
_ALWAYS = 2**24


@dataclass(frozen=True)
class Softmax(Case):
    """Softmax attention by the fused kernel: what the others are compared with."""

    name = "softmax"
    is_exact = True

    def context(self, inputs: AttentionInputs) -> Tensor:
        return fused_attention(inputs)

    def numbers(self, shape: Shape) -> int:
        return 2 * shape.length * shape.heads * shape.head_dim + _ALWAYS


@dataclass(frozen=True)
class Matrix(Case):
    """Softmax attention written out, every matrix of queries by keys in memory: as the formula stands."""

    name = "matrix"
    is_exact = True

    def context(self, inputs: AttentionInputs) -> Tensor:
        return reference_attention(inputs).context

    def numbers(self, shape: Shape) -> int:
        return 6 * shape.heads * shape.length**2 + _ALWAYS


def _of_features(shape: Shape, features: int) -> int:
    sums = features * (shape.head_dim + 1) * (1 + (shape.length // 128 if shape.causal else 0))
    rows = shape.length * (6 * features + 4 * (shape.head_dim + 1) + (256 if shape.causal else 0))
    return shape.heads * (rows + 3 * sums) + _ALWAYS


@dataclass(frozen=True)
class PerformerCase(Case):
    """Performer.

    Args:
        features: m; see `regard.blocks.attentions.Performer`.
    """

    name = "performer"
    features: int = 128

    def context(self, inputs: AttentionInputs) -> Tensor:
        return Performer(features=self.features)(inputs)

    def numbers(self, shape: Shape) -> int:
        return _of_features(shape, self.features)


@dataclass(frozen=True)
class LinearCase(Case):
    """Linear attention."""

    name = "linear"

    def context(self, inputs: AttentionInputs) -> Tensor:
        return LinearAttention()(inputs)

    def numbers(self, shape: Shape) -> int:
        return _of_features(shape, shape.head_dim)


@dataclass(frozen=True)
class LinformerCase(Case):
    """Linformer, whose mixtures are those of the paper's theorem: normal, not learned.

    Args:
        rank: r.
    """

    name = "linformer"
    is_causal = False
    rank: int = 128

    def context(self, inputs: AttentionInputs) -> Tensor:
        return _projection(self.rank, inputs.k_len)(inputs).detach()

    def numbers(self, shape: Shape) -> int:
        return 2 * shape.length * (self.rank + 2 * shape.heads * shape.head_dim) + _ALWAYS


@lru_cache(maxsize=2)
def _projection(rank: int, length: int) -> Linformer:
    draw = torch.Generator().manual_seed(length)
    return Linformer(torch.randn(rank, length, generator=draw) * rank**-0.5)


@dataclass(frozen=True)
class WindowCase(Case):
    """A window, exact within it.

    Args:
        width: keys on each side of a query.
        dilation: how far apart.
    """

    name = "window"
    width: int = 64
    dilation: int = 1

    def context(self, inputs: AttentionInputs) -> Tensor:
        window: Mask = DilatedWindow(left=self.width, right=self.width, dilation=self.dilation)
        mask = window if inputs.mask is None else inputs.mask & window
        return fused_attention(inputs.changed(mask=mask))

    def numbers(self, shape: Shape) -> int:
        return 2 * shape.length * shape.heads * shape.head_dim + _ALWAYS


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (Softmax(), Matrix(), PerformerCase(), LinformerCase(), LinearCase(), WindowCase())
}
"""Every attention that can be measured, by its name."""


def case_named(name: str) -> Case:
    """The case of that name.

    Raises:
        InputError: there is none; the message lists them.
    """
    if name not in CASES:
        raise InputError(f"attention must be one of {', '.join(CASES)}; got {name!r}.")
    return CASES[name]
