"""What layers, stacks and traces ask of an attention, whatever stands inside it."""

from typing import Protocol

from torch import Tensor

from regard.core import Bias, KeyValueCache, Mask, Taps
from regard.positions import Rotation


class Attention(Protocol):
    """An attention sublayer, an `nn.Module`: `MultiHeadAttention`, or another with these.

    A layer takes any. Heads can be cut out of a `MultiHeadAttention` alone, with whatever kernel: surgery and
    pruning refuse others.

    """

    @property
    def TAPS(self) -> tuple[str, ...]:
        """The points at which it offers values, in the order of the forward pass.

        A trace is made of `inputs`, an `AttentionInputs`, with `context` and `output`; without `inputs` it
        shows nothing of this attention.
        """
        ...

    def __call__(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        rotation: Rotation | None = None,
        cache: KeyValueCache | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """(batch, queries, d_model) -> the same shape; see `MultiHeadAttention.forward`."""
        ...

    def new_cache(self, *, window: int | None = None, back: int = 0) -> KeyValueCache:
        """A cache of nothing read, for `cache`; the arguments as of `KeyValueCache`.

        Raises:
            InputError: what it reads cannot be kept.
        """
        ...
