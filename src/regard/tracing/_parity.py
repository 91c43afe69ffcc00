"""How exactly a record gives back what the model computed: the numbers behind "exact or refused"."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_errors
from regard.core.errors import RegardError

AttentionKind = Literal["encoder", "decoder", "cross"]

_BOUNDS = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
"""The largest error, relative to the largest entry, that rounding in a kernel of this type explains."""


@dataclass(frozen=True, kw_only=True)
class LayerParity:
    """The largest errors of one attention layer.

    Args:
        kind: "encoder", "decoder" or "cross".
        layer: counts from 0.
        weights: the most that a row of weights (with its sink) differs from a sum of 1; rows that may attend
            to nothing are zero, and are left out.
        context: the most that weights x values, in float64, differs from the context that the model computed,
            relative to the largest entry of it.
    """

    kind: AttentionKind
    layer: int
    weights: float
    context: float


@dataclass(frozen=True, kw_only=True)
class Parity:
    """The largest errors of a model or a trace, in total and layer by layer.

    Args:
        layers: one for each attention layer that was looked at.
        output: the most that a model's output differs from that of the untouched model, relative to the
            largest entry; 0.0 is bit for bit, None where there is no other model.
        bound: what rounding in the model's type explains.

    Example:
        >>> exact = LayerParity(kind="encoder", layer=0, weights=1e-9, context=2e-7)
        >>> Parity(layers=(exact,), output=0.0, bound=2e-5)
        Parity(largest 2.0e-07 of 2.0e-05: weights 1.0e-09, context 2.0e-07, output 0.0e+00; 1 layer)
    """

    layers: tuple[LayerParity, ...]
    output: float | None
    bound: float

    @property
    def weights(self) -> float:
        """The largest of the layers' `weights`."""
        return max((each.weights for each in self.layers), default=0.0)

    @property
    def context(self) -> float:
        """The largest of the layers' `context`."""
        return max((each.context for each in self.layers), default=0.0)

    @property
    def largest(self) -> float:
        """The largest error of all."""
        return max(self.weights, self.context, self.output or 0.0)

    def __repr__(self) -> str:
        output = "" if self.output is None else f", output {self.output:.1e}"
        return (
            f"Parity(largest {self.largest:.1e} of {self.bound:.1e}: weights {self.weights:.1e}, "
            f"context {self.context:.1e}{output}; {len(self.layers)} layer{'s' * (len(self.layers) != 1)})"
        )

    def check(self, name: str) -> None:
        """Raise where an error is larger than rounding explains.

        Args:
            name: the model's, for the message.

        Raises:
            RegardError: which identity does not hold, in which layer, and by how much.
        """
        for each in self.layers:
            where = f"{name}: {each.kind} attention layer {each.layer}"
            # Not "larger than": a NaN is no small error.
            if not each.weights <= self.bound:
                raise RegardError(f"{where}: rows of weights differ from a sum of 1 by {each.weights:.3g}.")
            if not each.context <= self.bound:
                raise RegardError(
                    f"{where}: weights x values differ from the model's own context by {each.context:.3g} of "
                    f"its largest entry (rounding explains {self.bound:g}): the recorded scale, mask or bias "
                    "is not what the model used, so no trace is given."
                )
        if self.output is not None and not self.output <= self.bound:
            raise RegardError(
                f"{name}: the output differs from the untouched model's by {self.output:.3g} of its largest "
                f"entry (rounding explains {self.bound:g})."
            )


def bound_of(dtype: torch.dtype) -> float:
    """The largest error, relative to the largest entry, that rounding explains in this type."""
    return _BOUNDS.get(dtype, _BOUNDS[torch.float16])


def layer_parity(kind: AttentionKind, layer: int, inputs: AttentionInputs, context: Tensor) -> LayerParity:
    """Compare a record with what the model computed from it.

    Args:
        kind, layer: which layer, for the result.
        inputs: the record.
        context: (batch, heads, queries, v_dim), as the model computed it.
    """
    errors = attention_errors(inputs, context)
    largest = float(context.detach().abs().max())
    return LayerParity(
        kind=kind,
        layer=layer,
        weights=errors.row_sum,
        # Of no context, or one with a NaN, there is no largest entry to relate to.
        context=errors.context / largest if 0.0 < largest < math.inf else errors.context,
    )


def output_error(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest difference between two outputs, relative to the largest entry; 0.0 is bit for bit."""
    error = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            return math.inf
        if torch.equal(one, other) or not one.numel():
            continue
        alike = (one == other) | (one.isnan() & other.isnan())
        apart = torch.where(alike, 0.0, (one.double() - other.double()).abs()).max()
        scale = float(other.double()[other.isfinite()].abs().max())
        error = _larger(error, apart / scale if scale else apart)
    return error


def _larger(error: float, found: Tensor) -> float:
    value = float(found)
    return math.inf if math.isnan(value) else max(error, value)
