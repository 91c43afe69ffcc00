"""One layer of regard's own, run again on what its attention is known to have given."""

from copy import copy, deepcopy
from typing import TypeVar

from torch import Tensor, nn

from regard.blocks import DecoderLayer, SelfAttentionLayer
from regard.models import Kind, StackKind, attention_name
from regard.tracing.measures._needed import output_of
from regard.tracing.record import Trace


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


def is_row_wise(layer: nn.Module) -> bool:
    """Whether all but a layer's attention treats every position by itself; DeBERTa's convolution does not."""
    return type(layer) in (SelfAttentionLayer, DecoderLayer)


def recorded_outputs(trace: Trace, kind: StackKind, layer: nn.Module, index: int) -> dict[str, Tensor]:
    """What a layer's attentions gave, (1, positions, d_model) by name."""
    kinds: tuple[Kind, ...] = (kind, "cross") if isinstance(layer, DecoderLayer) else (kind,)
    return {attention_name(each): output_of(trace, each, index)[None] for each in kinds}
