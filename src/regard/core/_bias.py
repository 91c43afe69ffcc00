"""What is added to the scaled scores before the softmax: a tensor, or an object asked for some rows."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from regard.core.errors import InputError


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
        return whole if whole.shape[1] == 1 else whole[:, list(self.heads)]

    def learned(self) -> tuple[Tensor, ...]:
        return self.bias.learned()
