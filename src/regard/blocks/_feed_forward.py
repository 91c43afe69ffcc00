"""The position-wise feed-forward network, and the activations by the names that checkpoints use."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from regard.core import Taps
from regard.core.errors import InputError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    # The tanh approximation of Hendrycks and Gimpel 2016, arXiv 1606.08415, under its two names.
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
}
"""Activation functions by the names that checkpoints use."""


class FeedForward(nn.Module):
    """FFN(x) = W_2 activation(W_1 x + b_1) + b_2, applied to every position alone.

    Args:
        d_model: size of the input and of the output.
        d_ff: size between.
        activation: a name in `ACTIVATIONS`.

    Raises:
        InputError: an unknown activation.

    Taps:
        hidden (batch, positions, d_ff), after the activation; output (batch, positions, d_model).

    Example:
        >>> import torch
        >>> FeedForward(6, 11, activation="relu")(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.3, equation 2 (there with ReLU).
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: str = "gelu") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise InputError(
                f"activation must be one of {', '.join(sorted(ACTIVATIONS))}; got {activation!r}."
            )
        self.hidden = nn.Linear(d_model, d_ff)
        self.output = nn.Linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor, *, taps: Taps | None = None) -> Tensor:
        """(batch, positions, d_model) -> the same shape."""
        hidden = self.activation(self.hidden(x))
        if taps is not None:
            hidden = taps.offer("hidden", hidden)
        output: Tensor = self.output(hidden)
        return output if taps is None else taps.offer("output", output)
