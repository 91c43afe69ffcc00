"""One layer of regard's own, run again on what its attention is known to have given."""

from collections.abc import Iterator
from copy import copy, deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.blocks import DecoderLayer, SelfAttentionLayer
from regard.models import Kind, StackKind
from regard.tracing.measures._needed import hidden_of, output_of
from regard.tracing.record import Trace

_ROWS = 1024
"""Rows of a layer that are worked out at a time, where rows do not see each other."""


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


def sublayers_of(layer: nn.Module) -> tuple[str, ...]:
    """The names of a layer's sublayers, in order."""
    crossed = isinstance(layer, DecoderLayer)
    return ("attention", "cross_attention", "ffn") if crossed else ("attention", "ffn")


def attentions_of(layer: nn.Module) -> tuple[tuple[str, bool], ...]:
    """The names of a layer's attentions, and whether each is cross-attention."""
    return tuple((name, name == "cross_attention") for name in sublayers_of(layer) if name != "ffn")


def recorded_outputs(trace: Trace, kind: "StackKind", layer: nn.Module, index: int) -> dict[str, Tensor]:
    """What a layer's attentions gave, (1, positions, d_model) by name."""
    kinds: dict[bool, Kind] = {True: "cross", False: kind}
    return {name: output_of(trace, kinds[is_cross], index)[None] for name, is_cross in attentions_of(layer)}


def outputs_again(
    trace: Trace, kind: "StackKind", layer: nn.Module, index: int, norm: nn.Module | None
) -> Iterator[tuple[slice, Tensor]]:
    """What a layer hands on, worked out again in float64 from its recorded input and attention outputs.

    Args:
        trace, kind: of which stack.
        layer: the layer, number `index`.
        norm: what follows, where what a trace keeps of it went through that.

    Yields:
        Some rows, and (rows, d_model) of them.
    """
    x = hidden_of(trace, kind)[index]
    known = recorded_outputs(trace, kind, layer, index)
    norm = None if norm is None else widened(norm)
    size = _ROWS if is_row_wise(layer) else len(x)
    bare = widened(with_given(layer, **{name: torch.empty(0) for name in known}))
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        part = with_given(bare, **{name: output[:, rows].double() for name, output in known.items()})
        made = run_layer(part, x[None, rows].double())
        yield rows, (made if norm is None else norm(made))[0]


def run_layer(layer: nn.Module, x: Tensor) -> Tensor:
    """A layer whose attentions are given: (batch, positions, d_model) -> the same shape."""
    arguments = (x, x) if isinstance(layer, DecoderLayer) else (x,)  # what it would attend to is not read
    with torch.no_grad():
        output: Tensor = layer(*arguments)
    return output
