"""What all layers of one forward pass share: a mask or a bias that is worked out once for all of them."""

from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from torch import Tensor

from regard.core._bias import Bias
from regard.core._masks import Mask

# What one object keeps for the layers to come: 2^24 numbers, 64 MB in float32. Beyond that each layer makes
# its own, block by block, so that memory stays O(N).
MOST_ENTRIES = 2**24


T = TypeVar("T")


class Memory:
    """What was worked out for some blocks, for as long as the mask or bias that it was made of is in use."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[object, Any]] = {}
        self._room = MOST_ENTRIES

    def recall(self, key: tuple[object, ...], of: object) -> Any:
        """What was kept under this key for this very object; None where there is nothing."""
        owner, kept = self._kept.get(key, (None, None))
        return kept if owner is of else None

    def forget(self) -> None:
        """Let go of everything that is kept."""
        self._kept.clear()
        self._room = MOST_ENTRIES

    def keep(self, key: tuple[object, ...], of: object, made: object, *, entries: int) -> None:
        """Keep it if there is room for so many numbers."""
        if entries <= self._room:
            self._room -= entries
            self._kept[key] = (of, made)


@dataclass(frozen=True, eq=False)
class SharedMask(Mask):
    """A mask of one forward pass; see `shared`."""

    mask: Mask
    memory: Memory = field(default_factory=Memory)
    _simple: dict[tuple[int, int], Mask | None] = field(default_factory=dict)

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.mask.block(queries, keys)

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        return self.mask.key_range(first_query, last_query, k_len)

    def parts(self) -> tuple[Mask, ...]:
        return self.mask.parts()

    def check(self, *, batch: int, q_len: int, k_len: int) -> None:
        self.mask.check(batch=batch, q_len=q_len, k_len=k_len)

    def simplified(self, q_len: int, k_len: int) -> Mask | None:
        size = (q_len, k_len)
        if size not in self._simple:
            simple = self.mask.simplified(q_len, k_len)
            same = simple is self.mask
            self._simple[size] = self if same else None if simple is None else SharedMask(simple)
        return self._simple[size]


@dataclass(frozen=True, eq=False)
class SharedBias:
    """A bias of one forward pass; see `shared`."""

    bias: Bias
    memory: Memory = field(default_factory=Memory)

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.bias.block(queries, keys)

    def learned(self) -> tuple[Tensor, ...]:
        return self.bias.learned()


@overload
def shared(what: None) -> None: ...
@overload
def shared(what: Mask) -> Mask: ...
@overload
def shared(what: Bias) -> Bias: ...
def shared(what: Mask | Bias | None) -> Mask | Bias | None:
    """The same mask or bias, for all layers of one forward pass: what the kernel wants of it is made once.

    T5's layers have one relative bias, a decoder's one mask: without this each layer makes its own additive
    matrix of it. What is kept goes with the object: make a new one each pass, since neither the padding nor
    the learned table is looked at again. At most 64 MB are kept. A bias that wants a gradient is written out
    in every layer, shared or not.

    Example:
        >>> import torch
        >>> from regard.core import AttentionInputs, Causal, Padding, fused_attention
        >>> mask = shared(Causal() & Padding(torch.tensor([[True, True, False]])))
        >>> q = k = v = torch.randn(1, 2, 3, 5)
        >>> for layer in range(12):
        ...     context = fused_attention(AttentionInputs(q=q, k=k, v=v, mask=mask))
    """
    if what is None or isinstance(what, SharedMask | SharedBias):
        return what
    return SharedMask(what) if isinstance(what, Mask) else SharedBias(what)


@overload
def unshared(what: Mask) -> Mask: ...
@overload
def unshared(what: T) -> T: ...
def unshared(what: object) -> object:
    """The mask or bias that a shared one is of; anything else is itself.

    Example:
        >>> from regard.core import Causal
        >>> unshared(shared(Causal()))
        Causal(offset=0)
    """
    if isinstance(what, SharedMask):
        return what.mask
    return what.bias if isinstance(what, SharedBias) else what


def forget(*those: object) -> None:
    """End of the pass: what `shared` objects have kept goes, and they stay good as masks and biases.

    Whoever has recorded one, as a trace does, would hold its matrices otherwise.
    """
    for each in those:
        if isinstance(each, SharedMask):
            each.memory.forget()
            forget(*(simple for simple in each._simple.values() if simple is not each))
        elif isinstance(each, SharedBias):
            each.memory.forget()


def memory_of(mask: Mask | None, bias: object) -> Memory | None:
    """Where a layer finds what the layers before it made; None where nothing is shared.

    What is made of a mask and a bias together is kept with the mask, for that bias only, and only where
    the bias is shared too: another is made for its layer alone.
    """
    if isinstance(bias, SharedBias):
        return mask.memory if isinstance(mask, SharedMask) else bias.memory if mask is None else None
    return mask.memory if isinstance(mask, SharedMask) and bias is None else None
