"""One layer of regard's own, run again on what its attention is known to have given."""

from copy import copy, deepcopy
from typing import TypeVar

from torch import Tensor, nn


class Given(nn.Module):
    """In the place of an attention: its output, which is known.

    Args:
        output: (.., positions, d_model).
    """

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor, *arguments: object, **options: object) -> Tensor:
        """The known output, in the type of x."""
        del arguments, options
        return self.output.to(x.dtype)


def with_given(layer: nn.Module, **outputs: Tensor) -> nn.Module:
    """The same layer, with the same parameters, whose attentions of these names give these outputs."""
    other = copy(layer)
    other._modules = dict(layer._modules)
    for name, output in outputs.items():
        other._modules[name] = Given(output)
    return other


M = TypeVar("M", bound=nn.Module)


def widened(module: M) -> M:
    """A copy in float64."""
    return deepcopy(module).double().requires_grad_(False)
