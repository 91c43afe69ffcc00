"""What makes a score: the dot product and what was there before and beside it, and the bias that is added."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.core.tensors import unit

# Entries of one block of additive scores where no gradient is wanted: 2^20 are 4 MB in float32.
_BLOCK_ENTRIES = 2**20


@dataclass(frozen=True, eq=False)
class Scorer(ABC):
    """How well a key answers a query, in every head: the scores, before scale, cap, bias and mask.

    A scorer of your own is a frozen dataclass with `operands`, and with `learned` where it learns something.

    Attributes:
        formula: a score in symbols, for people who explain it.
    """

    formula: ClassVar[str] = "score(q, k)"

    @abstractmethod
    def operands(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor] | None:
        """Queries and keys whose dot products are the scores; None where no dot product gives them.

        Args:
            q: (batch, heads, queries, head_dim).
            k: (batch, kv_heads, keys, head_dim).

        Returns:
            q' and k' of the same shapes. They are q and k themselves for the dot product; else in float32 or
            wider. Attention then runs on the fused kernel, at its full speed.
        """

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """(batch, heads, queries, keys), in the type of q, of keys (batch, heads, keys, head_dim)."""
        operands = self.operands(q, k)
        assert operands is not None, "a scorer without operands writes its scores itself"
        # (batch, heads, queries, head_dim) @ (batch, heads, head_dim, keys)
        return operands[0] @ operands[1].mT

    def factors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What a score is a sum of products of, dimension by dimension, for people who explain it.

        Args:
            q, k: as for `scores`.

        Returns:
            Two tensors that broadcast to (batch, heads, queries, keys, head_dim), the first of them the same
            for all keys: their product, summed over the last axis, is the scores.
        """
        operands = self.operands(q, k)
        assert operands is not None, "a scorer without operands has factors of its own"
        # (batch, heads, queries, 1, head_dim) and (batch, heads, 1, keys, head_dim)
        return operands[0][:, :, :, None], operands[1][:, :, None]

    def scale(self, head_dim: int) -> float:
        """What the scores are multiplied by where `AttentionInputs.scale` does not say it."""
        del head_dim
        return 1.0

    def entries(self, head_dim: int) -> int:
        """How many numbers are made for one score: what blocks of scores are measured by."""
        del head_dim
        return 1

    def learned(self) -> tuple[Tensor, ...]:
        """All tensors that may want a gradient, as of `Bias.learned`."""
        return ()

    def of_heads(self, heads: Sequence[int]) -> "Scorer":
        """The scorer of some of the heads, in this order."""
        del heads
        return self

    def check(self, heads: int, head_dim: int) -> None:
        """Raise InputError where its tensors are not of so many heads and dimensions."""
        del heads, head_dim


@dataclass(frozen=True)
class ScaledDot(Scorer):
    """q . k, scaled by 1 / sqrt(head_dim): the transformer's, and the default.

    Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1.

    Example:
        >>> from regard.core import ScaledDot
        >>> ScaledDot().scale(4)
        0.5
    """

    formula = "q . k"

    def operands(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def scale(self, head_dim: int) -> float:
        return 1.0 / math.sqrt(head_dim)


@dataclass(frozen=True)
class Dot(Scorer):
    """q . k, as it is.

    Source: Luong, Pham and Manning 2015, arXiv 1508.04025, section 3.1, "dot".

    Example:
        >>> import torch
        >>> from regard.core import Dot
        >>> Dot().scores(torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 5.0]]]]))
        tensor([[[[13.]]]])
    """

    formula = "q . k"

    def operands(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


@dataclass(frozen=True, eq=False)
class Bilinear(Scorer):
    """q^T W k: Luong's "general".

    Args:
        weight: W of every head, (heads, head_dim, head_dim).

    Source: Luong, Pham and Manning 2015, arXiv 1508.04025, section 3.1, "general".

    Example:
        >>> import torch
        >>> from regard.core import Bilinear
        >>> swap = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
        >>> Bilinear(swap).scores(torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 5.0]]]]))
        tensor([[[[11.]]]])
    """

    formula = "q W . k"
    weight: Tensor

    def operands(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(q.dtype, torch.float32)
        # q^T W once for each query, then plain dot products.
        return q.to(wide) @ self.weight.to(wide), k.to(wide)

    def learned(self) -> tuple[Tensor, ...]:
        return (self.weight,)

    def of_heads(self, heads: Sequence[int]) -> "Bilinear":
        return replace(self, weight=self.weight[list(heads)])

    def check(self, heads: int, head_dim: int) -> None:
        _check("weight", self.weight, "(heads, head_dim, head_dim)", (heads, head_dim, head_dim))


@dataclass(frozen=True)
class Cosine(Scorer):
    """The cosine of the angle between q and k, divided by a temperature; 0 where one of them is zero.

    Args:
        temperature: greater than 0. Cosines lie from -1 to 1: with a temperature of 1 no weight is more than
            e^2 = 7.4 times another, whatever the model has learned.

    Raises:
        InputError: a temperature that is not a finite number above 0.

    Source: Graves, Wayne and Danihelka 2014, arXiv 1410.5401, equations 5 and 6, where 1 / temperature is the
    key strength; Liu et al. 2022, arXiv 2111.09883, equation 2.

    Example:
        >>> import torch
        >>> from regard.core import Cosine
        >>> Cosine().scores(torch.tensor([[[[2.0, 0.0]]]]), torch.tensor([[[[3.0, 4.0]]]]))
        tensor([[[[0.6000]]]])
    """

    formula = "cos(q, k)"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < float("inf"):
            raise InputError(f"temperature must be finite and greater than 0; got {self.temperature}.")

    def operands(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        # In half precision a sum of squares has few digits.
        wide = torch.promote_types(q.dtype, torch.float32)
        return unit(q.to(wide)), unit(k.to(wide))

    def scale(self, head_dim: int) -> float:
        del head_dim
        return 1.0 / self.temperature


@dataclass(frozen=True, eq=False)
class Additive(Scorer):
    """v_a^T tanh(q + k): a feed-forward network with the head's dimensions as its hidden units.

    Bahdanau's e_ij = v_a^T tanh(W_a s_(i-1) + U_a h_j) is this with q = W_a s_(i-1) and k = U_a h_j: W_a and
    U_a are the projections to queries and keys, which every attention has. No dot product gives these
    scores, so no fused kernel takes them: they are written out, a block at a time.

    Args:
        v: of every head, (heads, head_dim).

    Source: Bahdanau, Cho and Bengio 2015, arXiv 1409.0473, appendix A.1.2.

    Example:
        >>> import torch
        >>> from regard.core import Additive
        >>> Additive(torch.tensor([[2.0]])).scores(torch.tensor([[[[0.5]]]]), torch.tensor([[[[0.5]]]]))
        tensor([[[[1.5232]]]])
    """

    formula = "v_a . tanh(q + k)"
    v: Tensor

    def operands(self, q: Tensor, k: Tensor) -> None:
        # tanh stands between the sum and v_a: no dot product gives the score.
        return None

    def factors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        v = self.v.to(q.dtype)
        # tanh(q + k) is (batch, heads, queries, keys, head_dim).
        return v[None, :, None, None], torch.tanh(q[:, :, :, None] + k[:, :, None])

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        # Autograd would keep the blocks in any case.
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, self.v)):
            return self._of_block(q, k)
        # (rows, keys, head_dim) numbers stand between: of few rows at a time.
        # Numbers that one query of each head makes.
        of_a_row = q.shape[0] * q.shape[1] * k.shape[2] * k.shape[3]
        blocks = torch.split(q, max(1, _BLOCK_ENTRIES // of_a_row), dim=2)
        return torch.cat([self._of_block(block, k) for block in blocks], dim=2)

    def _of_block(self, q: Tensor, k: Tensor) -> Tensor:
        v, hidden = self.factors(q, k)
        # (.., head_dim) @ (.., head_dim, 1)
        return (hidden @ v.mT)[..., 0]

    def entries(self, head_dim: int) -> int:
        return head_dim

    def learned(self) -> tuple[Tensor, ...]:
        return (self.v,)

    def of_heads(self, heads: Sequence[int]) -> "Additive":
        return replace(self, v=self.v[list(heads)])

    def check(self, heads: int, head_dim: int) -> None:
        _check("v", self.v, "(heads, head_dim)", (heads, head_dim))


def _check(name: str, tensor: Tensor, said: str, wanted: tuple[int, ...]) -> None:
    if tensor.shape != wanted or not tensor.is_floating_point():
        raise InputError(
            f"{name} of the scorer must be floating point of shape {said} = {wanted}; "
            f"got {tensor.dtype} of shape {tuple(tensor.shape)}."
        )


@runtime_checkable
class Bias(Protocol):
    """An additive bias, computed for the rows and columns asked for: ALiBi, T5's relative bias."""

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The bias of some rows and columns.

        Args:
            queries: int64 (rows,), positions of the queries.
            keys: int64 (columns,), positions of the keys.

        Returns:
            Floating point, four axes that broadcast to (batch, heads, rows, columns).
        """
        ...

    def learned(self) -> tuple[Tensor, ...]:
        """All the tensors that `block` reads and that may want a gradient; () where nothing is learned.

        The fused form computes the gradients of these, and of no others.
        """
        ...


@dataclass(frozen=True, eq=False)
class DenseBias:
    """A bias that is there as a tensor, four axes that broadcast to (batch, heads, queries, keys)."""

    values: Tensor

    def __post_init__(self) -> None:
        if self.values.ndim != 4 or not self.values.is_floating_point():
            raise InputError(
                "bias must be floating point with four axes that broadcast to (batch, heads, queries, keys); "
                f"got {self.values.dtype} of shape {tuple(self.values.shape)}."
            )

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        # An axis of size 1 broadcasts, so there is nothing to pick from it.
        rows = self.values if self.values.shape[2] == 1 else self.values.index_select(2, queries)
        return rows if rows.shape[3] == 1 else rows.index_select(3, keys)

    def learned(self) -> tuple[Tensor, ...]:
        return (self.values,)

    def check(self, *, batch: int, heads: int, q_len: int, k_len: int) -> None:
        """Raise InputError where the tensor does not broadcast to attention of this size."""
        wanted = (batch, heads, q_len, k_len)
        if any(size not in (1, full) for size, full in zip(self.values.shape, wanted, strict=True)):
            raise InputError(
                f"bias must broadcast to (batch, heads, queries, keys) = {wanted}; "
                f"got shape {tuple(self.values.shape)}."
            )


@dataclass(frozen=True, eq=False)
class BiasOfHeads:
    """Some of the heads of another bias: what one head adds, or a layer that has lost heads.

    Args:
        bias: the bias of all heads, or one that is the same for each of them.
        heads: which of them, in the order wanted.

    Example:
        >>> import torch
        >>> whole = DenseBias(torch.arange(3.0).view(1, 3, 1, 1))
        >>> BiasOfHeads(whole, (2, 0)).block(torch.arange(1), torch.arange(1)).flatten().tolist()
        [2.0, 0.0]
    """

    bias: Bias
    heads: tuple[int, ...]

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        whole = self.bias.block(queries, keys)
        # One bias for all heads stays as it is.
        return whole if whole.shape[1] == 1 else whole[:, list(self.heads)]

    def learned(self) -> tuple[Tensor, ...]:
        return self.bias.learned()
