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
    Kernel,
    Mask,
    Ramp,
    Unexpired,
    fused_attention,
    reference_attention,
)
from regard.core.arguments import one_of
from regard.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of what is measured: one text of `length` tokens.

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
        # A mask only where it is causal: without one the fused kernel is at its best.
        return AttentionInputs(q=q, k=k, v=v, mask=Causal() if self.causal else None)

    @property
    def record_bytes(self) -> int:
        """The bytes of q, k, v and the context."""
        # Four tensors of float32: 4 x 4 bytes.
        return 16 * self.length * self.heads * self.head_dim


# Numbers for torch's own buffers, a block of a mask, and what the C library rounds up to: 64 MB.
_ALWAYS = 2**24


class Case(ABC):
    """An attention that is measured.

    Attributes:
        name: what the command calls it.
        causal: True where it has only a causal form, False where it has none, None where it has both.
    """

    name: ClassVar[str]
    causal: ClassVar[bool | None] = None

    @abstractmethod
    def context(self, inputs: AttentionInputs) -> Tensor:
        """The context of a record."""

    def numbers(self, shape: Shape) -> int:
        """About as many float32 numbers as it has at one time beside the record; of the matrix no fewer."""
        # Two more tensors as large as q.
        return 2 * shape.length * shape.heads * shape.head_dim + _ALWAYS

    def check(self, *, causal: bool) -> None:
        """Raise InputError where it has no form of that kind."""
        if self.causal not in (None, causal):
            form = "a causal form" if causal else "a form that sees all keys"
            able = ", ".join(names_of(causal=causal))
            raise InputError(f"attention must have {form}, as {able} have; got {self.name}, which has none.")


@dataclass(frozen=True)
class Softmax(Case):
    """Softmax attention by the fused kernel: what the others are compared with."""

    name = "softmax"

    def context(self, inputs: AttentionInputs) -> Tensor:
        return fused_attention(inputs)


@dataclass(frozen=True)
class Matrix(Case):
    """Softmax attention written out, every matrix of queries by keys in memory: as the formula stands."""

    name = "matrix"

    def context(self, inputs: AttentionInputs) -> Tensor:
        return reference_attention(inputs).context

    def numbers(self, shape: Shape) -> int:
        # Scores, weights, and what softmax and products make of them: six matrices at one time.
        return 6 * shape.heads * shape.length**2 + _ALWAYS


@dataclass(frozen=True)
class KernelCase(Case):
    """A kernel without parameters, such as Performer."""

    name: str  # type: ignore[misc]
    kernel: Kernel

    def context(self, inputs: AttentionInputs) -> Tensor:
        return self.kernel(inputs)


@dataclass(frozen=True)
class LinformerCase(Case):
    """Linformer, whose mixtures are those of the paper's theorem: normal, not learned.

    Args:
        rank: r.
    """

    name = "linformer"
    causal = False
    rank: int = 128

    def context(self, inputs: AttentionInputs) -> Tensor:
        return _projection(self.rank, inputs.k_len)(inputs).detach()


@lru_cache(maxsize=2)
def _projection(rank: int, length: int) -> Linformer:
    draw = torch.Generator().manual_seed(length)
    # Columns of norm 1 on average, as the theorem has them.
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
        # To the right, too: a causal mask is added below.
        window: Mask = DilatedWindow(left=self.width, right=self.width, dilation=self.dilation)
        mask = window if inputs.mask is None else inputs.mask & window
        return fused_attention(inputs.changed(mask=mask))


@dataclass(frozen=True)
class ExpireSpanCase(Case):
    """Expire-Span with spans spread evenly between 0 and L = 2 `span`, as if they had been learned.

    A block of queries is multiplied with the keys from the first on that is not forgotten, so with L + R of
    them, and the rows of the block. Those among them whose span is over are hidden, not skipped.

    Args:
        span: the mean of e.
        ramp: R.
    """

    name = "expire-span"
    causal = True
    span: float = 64.0
    ramp: float = 16.0

    def context(self, inputs: AttentionInputs) -> Tensor:
        # Spans between 0 and twice the mean, the same at each call.
        spans = 2 * self.span * torch.rand(1, inputs.k_len, generator=torch.Generator().manual_seed(0))
        mask = Causal() & Unexpired(spans, self.ramp)
        return fused_attention(inputs.changed(mask=mask, bias=Ramp(spans, self.ramp)))


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Softmax(),
        Matrix(),
        KernelCase("performer", Performer(features=128)),
        LinformerCase(),
        KernelCase("linear", LinearAttention()),
        WindowCase(),
        ExpireSpanCase(),
    )
}
"""Every attention that can be measured, by its name."""


def names_of(*, causal: bool) -> list[str]:
    """The attentions that have a form of that kind."""
    return [name for name, case in CASES.items() if case.causal in (None, causal)]


def case_named(name: str) -> Case:
    """The case of that name.

    Raises:
        InputError: there is none; the message lists them.
    """
    return CASES[one_of("attention", name, CASES)]
