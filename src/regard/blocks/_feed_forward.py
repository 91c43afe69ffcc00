"""The position-wise feed-forward network, and the activations by the names that checkpoints use."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.blocks._embeddings import Linear
from regard.core import Taps
from regard.core.arguments import one_of


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _fast_gelu(x: Tensor) -> Tensor:
    # The tanh approximation again, with sqrt(2 / pi) cut off where the code behind the name cuts it off.
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def _squared_relu(x: Tensor) -> Tensor:
    return functional.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_python": functional.gelu,
    # The tanh approximation of Hendrycks and Gimpel 2016, arXiv 1606.08415, under its two names.
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "gelu_fast": _fast_gelu,
    # The sigmoid approximation, of the same paper.
    "quick_gelu": _quick_gelu,
    "relu": functional.relu,
    # So et al. 2021, arXiv 2109.08668.
    "relu2": _squared_relu,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "swish": functional.silu,
    # Misra 2019, arXiv 1908.08681.
    "mish": functional.mish,
}
"""Activation functions by the names that checkpoints use."""


def activation_named(name: str) -> Callable[[Tensor], Tensor]:
    """The activation function of that name.

    Raises:
        InputError: there is none.

    Example:
        >>> import torch
        >>> activation_named("relu")(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    hint = " regard.lens(model, tokenizer) traces the model of transformers, whatever its activation."
    return ACTIVATIONS[one_of("activation", name, sorted(ACTIVATIONS), hint=hint)]


MANY_ROWS = 2048
"""Positions beyond which a feed-forward network works by rows where nobody looks inside."""

ROWS_AT_ONCE = 256
"""So many rows at a time.

What is between the two projections is the largest tensor of a forward pass, several times the residual
stream. So many rows of it are as fast as all, and small enough that the C library uses the same memory again:
with 2048 rows, of 25 MB, a trace of GPT-2 small over 16,384 positions held 1.2 GB more than was alive.
"""


# x has (batch, positions, d_model), hidden (batch, positions, d_ff).
class _FeedForward(nn.Module):
    """What the two forms share: all but the way to what is between."""

    TAPS = ("hidden", "output")

    output: Linear

    def __init__(self, activation: str, dropout_p: float) -> None:
        super().__init__()
        self.activation = activation_named(activation)
        # Most models have none here, and to call a module costs time even where it does nothing.
        self.dropout = nn.Dropout(dropout_p) if dropout_p else None

    def forward(self, x: Tensor, *, taps: Taps | None = None) -> Tensor:
        """(batch, positions, d_model) -> the same shape."""
        # The point "output" is offered once, whichever way it was computed.
        output = self._by_rows(x) if self._is_long(x, taps) else self._whole(x, taps)
        return output if taps is None else taps.offer("output", output)

    def _between(self, x: Tensor) -> Tensor:
        """(batch, positions, d_ff), after the activation."""
        raise NotImplementedError

    def _whole(self, x: Tensor, taps: Taps | None = None) -> Tensor:
        # (batch, positions, d_ff)
        hidden = self._between(x)
        if taps is not None:
            hidden = taps.offer("hidden", hidden)
        if self.dropout is not None:
            hidden = self.dropout(hidden)
        output: Tensor = self.output(hidden)
        return output

    def _is_long(self, x: Tensor, taps: Taps | None) -> bool:
        """Whether to work by rows: on the CPU, without gradients, dropout, or a listener in between."""
        return (
            # numel / d_model is the number of positions of all rows of the batch.
            x.numel() > MANY_ROWS * x.shape[-1]
            and x.is_cpu
            and not self.training
            and not torch.is_grad_enabled()
            and (taps is None or not taps.wants("hidden"))
        )

    def _by_rows(self, x: Tensor) -> Tensor:
        # Contiguous, so that view(-1, d_model) below is of the same memory.
        output = torch.empty_like(x, memory_format=torch.contiguous_format)
        rows, out = x.flatten(0, -2), output.view(-1, x.shape[-1])
        # Positions do not see each other here, so that any cut gives the same numbers.
        for start in range(0, len(rows), ROWS_AT_ONCE):
            out[start : start + ROWS_AT_ONCE] = self._whole(rows[start : start + ROWS_AT_ONCE])
        return output


class FeedForward(_FeedForward):
    """FFN(x) = W_2 activation(W_1 x + b_1) + b_2, applied to every position alone.

    Args:
        d_model: size of the input and of the output.
        d_ff: size between.
        activation: a name in `ACTIVATIONS`.
        use_bias: whether the two projections have a bias.
        dropout_p: probability of dropping an entry between them in training.

    Raises:
        InputError: an unknown activation.

    Taps:
        hidden (batch, positions, d_ff), after the activation; output (batch, positions, d_model).

    Example:
        >>> from regard.blocks import FeedForward
        >>> import torch
        >>> FeedForward(6, 11, activation="relu")(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.3, equation 2 (there with ReLU).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str = "gelu",
        use_bias: bool = True,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__(activation, dropout_p)
        # W_1, b_1 and W_2, b_2 of the formula (Vaswani et al. 2017, eq. 2).
        self.hidden = Linear(d_model, d_ff, bias=use_bias)
        self.output = Linear(d_ff, d_model, bias=use_bias)

    def _between(self, x: Tensor) -> Tensor:
        return self.activation(self.hidden(x))


class GatedFeedForward(_FeedForward):
    """FFN(x) = W_o (activation(W_g x) * W_u x), applied to every position alone: GeGLU, SwiGLU.

    Args:
        d_model: size of the input and of the output.
        d_ff: size between.
        activation: a name in `ACTIVATIONS`; "silu" makes it SwiGLU, "gelu" GeGLU.
        use_bias: whether the three projections have a bias.
        dropout_p: as in `FeedForward`.

    Raises:
        InputError: an unknown activation.

    Taps:
        hidden (batch, positions, d_ff), the gated product; output (batch, positions, d_model).

    Example:
        >>> from regard.blocks import GatedFeedForward
        >>> import torch
        >>> GatedFeedForward(6, 11, activation="silu")(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Shazeer 2020, arXiv 2002.05202, equation 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str = "gelu",
        use_bias: bool = False,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__(activation, dropout_p)
        # W_g, W_u and W_o of the formula.
        self.gate = Linear(d_model, d_ff, bias=use_bias)
        self.up = Linear(d_model, d_ff, bias=use_bias)
        self.output = Linear(d_ff, d_model, bias=use_bias)

    def _between(self, x: Tensor) -> Tensor:
        activated, up = self.activation(self.gate(x)), self.up(x)
        # Nobody else has seen the first, and where no gradient needs it, it has room for the product.
        return activated * up if torch.is_grad_enabled() else activated.mul_(up)
