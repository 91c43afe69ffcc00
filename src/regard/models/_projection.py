"""Linear layers that a measure reads: from heads to the attention's output, from hidden states to logits."""

import math
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """output = sum over heads of context_h W_O^h, plus the bias.

    Args:
        weight: float64 (heads, v_dim, d_model), W_O^h of each head.
        bias: float64 (d_model,), or None where there is none.
    """

    weight: Tensor
    bias: Tensor | None

    def of_contexts(self, context: Tensor) -> Tensor:
        """(.., heads, positions, v_dim) -> (.., positions, d_model), in float64."""
        output = context.double().transpose(-3, -2).flatten(-2) @ self.weight.flatten(0, 1)
        return output if self.bias is None else output + self.bias

    def error(self, context: Tensor, output: Tensor) -> float:
        """How far the heads are from summing to a recorded output: see `relative_error`.

        Args:
            context: (.., heads, queries, v_dim).
            output: (.., queries, d_model).
        """
        return relative_error(self.of_contexts(context.detach()), output.detach().double())

    def of_values(self, v: Tensor, head: int) -> Tensor:
        """What a head makes of values, f_h(x) = v W_O^h: (kv_heads, keys, v_dim) -> (keys, d_model)."""
        return v[head // (len(self.weight) // len(v))].double() @ self.weight[head]


@dataclass(frozen=True, kw_only=True, eq=False)
class Unembedding:
    """logits = W (scale h) + b: a head that is linear in the last hidden state, before any soft cap.

    Args:
        weight: (vocab_size, d_model).
        bias: (vocab_size,), or None where there is none.
        scale: of the hidden state.
    """

    weight: Tensor
    bias: Tensor | None
    scale: float = 1.0

    def rows(self, ids: list[int]) -> tuple[Tensor, Tensor]:
        """The directions of some tokens, float64 (ids, d_model), and their biases, (ids,)."""
        bias = self.weight.new_zeros(len(ids)) if self.bias is None else self.bias[ids]
        return self.scale * self.weight[ids].double(), bias.double()

    def logits(self, state: Tensor) -> Tensor:
        """(.., d_model) -> (.., vocab_size), in the head's own type."""
        state = state.to(self.weight.dtype)
        return nn.functional.linear(
            state * self.scale if self.scale != 1.0 else state, self.weight, self.bias
        )


def read_projection(module: nn.Module, num_heads: int) -> Projection | None:
    """The projection that a module on the joined heads is; None where it is no plain linear layer."""
    matrix = _matrix(module)
    if matrix is None or matrix.shape[1] % num_heads:
        return None
    bias = getattr(module, "bias", None)
    return Projection(
        weight=matrix.detach().double().reshape(len(matrix), num_heads, -1).permute(1, 2, 0),
        bias=bias.detach().double() if isinstance(bias, Tensor) else None,
    )


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a plain linear layer: a matrix, perhaps with a bias, and nothing else."""
    return _matrix(module) is not None


def _matrix(module: nn.Module) -> Tensor | None:
    """W of y = W x + b: (d_out, d_in)."""
    weight, kind = getattr(module, "weight", None), type(module)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    if kind is nn.Linear or (issubclass(kind, nn.Linear) and kind.__module__.startswith("regard.")):
        return weight
    # transformers' own, for GPT-2: y = x W + b. Other classes may do more than multiply (quantised, adapted).
    if kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers."):
        return weight.mT
    return None


def relative_error(actual: Tensor, wanted: Tensor) -> float:
    """The largest difference relative to the largest entry wanted; infinite where one is not finite."""
    apart, largest = float((actual - wanted).abs().max()), float(wanted.abs().max())
    if not (math.isfinite(apart) and math.isfinite(largest)):
        return math.inf
    return apart / largest if largest else apart
