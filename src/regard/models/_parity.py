"""How exactly a record gives back what the model computed: the numbers behind "exact or refused"."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_errors
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import RegardError
from regard.models._heads import Projection
from regard.models._network import Kind

if TYPE_CHECKING:
    from rich.console import RenderableType

Identity = Literal["weights", "context", "heads"]

# By the digits of each type; larger errors mean another formula, not rounding.
_BOUNDS = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
"""The largest error, relative to the largest entry, that rounding in a kernel of this type explains."""

_BROKEN: dict[Identity, str] = {
    "weights": "rows of weights differ from a sum of 1, or from the softmax of their scores, by {error}.",
    "context": (
        "weights x values differ from the model's own context by {error} of its largest entry (rounding "
        "explains {bound}): the recorded scale, mask or bias is not what the model used, so no trace is "
        "given."
    ),
    "heads": (
        "the heads do not sum to the recorded attention output, which differs by {error} of its largest "
        "entry (rounding explains {bound}): the projection, its bias or the layout of the heads is another."
    ),
}
"""What it means that an identity does not hold."""

_IDENTITIES: tuple[Identity, ...] = get_args(Identity)


@dataclass(frozen=True, kw_only=True)
class LayerParity:
    """The largest errors of one attention layer; None is "not checked".

    Args:
        kind: "encoder", "decoder" or "cross".
        layer: counts from 0.
        weights: the most that a row of weights (with its sink) differs from a sum of 1, or a weight from
            exp(score - logsumexp(row of scores)), two forms of the softmax of the same scores, which are
            worked out again; that they are the model's is what `context` says. Rows that may attend to
            nothing are zero, and are left out. None where an edit wrote the weights.
        context: the most that weights x values, in float64, differs from the context that the model computed,
            relative to the largest entry of it; None where no contexts were kept, or an edit wrote them.
        heads: the same of the sum over heads of context_h W_O^h, plus the bias, from the layer's recorded
            attention output; None where no output projection can be seen.
    """

    kind: Kind
    layer: int
    weights: float | None
    context: float | None
    heads: float | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Parity(Displayable):
    """The largest errors of a model or a trace, in total and layer by layer.

    Args:
        layers: one for each attention layer that was looked at.
        output: the most that a model's output differs from that of the untouched model, relative to the
            largest entry; 0.0 is bit for bit, None where there is no other model.
        bound: what rounding in the model's type explains.

    Example:
        >>> from regard.models import LayerParity, Parity
        >>> exact = LayerParity(kind="encoder", layer=0, weights=1e-9, context=2e-7, heads=1e-7)
        >>> Parity(layers=(exact,), output=0.0, bound=2e-5)
        Parity(largest 2.0e-07 of 2.0e-05: weights 1.0e-09, context 2.0e-07, heads 1.0e-07,
        output 0.0e+00; 1 layer)
    """

    layers: tuple[LayerParity, ...]
    output: float | None
    bound: float

    @property
    def weights(self) -> float | None:
        """The largest of the layers' `weights`; None where none was checked."""
        return self._largest("weights")

    @property
    def context(self) -> float | None:
        """The largest of the layers' `context`; None where none was checked."""
        return self._largest("context")

    @property
    def heads(self) -> float | None:
        """The largest of the layers' `heads`; None where none was checked."""
        return self._largest("heads")

    @property
    def largest(self) -> float:
        """The largest error of all that was checked."""
        # None is left out: what was not checked has no error.
        found = (self.weights, self.context, self.heads, self.output)
        return max((each for each in found if each is not None), default=0.0)

    def __repr__(self) -> str:
        told = ", ".join(self._told(name) for name in _IDENTITIES)
        output = "" if self.output is None else f", output {self.output:.1e}"
        return (
            f"Parity(largest {self.largest:.1e} of {self.bound:.1e}: {told}"
            f"{output}; {len(self.layers)} layer{'s' * (len(self.layers) != 1)})"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a layer: its kind and number, and the error of each identity; None where none was checked."""
        return [asdict(each) for each in self.layers]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        output = "" if self.output is None else f"; output {self.output:.1e}"
        largest = f"Largest error {self.largest:.1e}, of {self.bound:.1e} that rounding explains{output}"
        yield Text(largest, style="dim")
        yield ""
        cells = (
            [each.kind, str(each.layer), *(_cell(getattr(each, name)) for name in _IDENTITIES)]
            for each in self.layers
        )
        yield plain_table(["kind", "layer", *_IDENTITIES], cells)

    def check(self, name: str) -> None:
        """Raise where an error is larger than rounding explains; what was not checked is passed over.

        Args:
            name: the model's, for the message.

        Raises:
            RegardError: which identity does not hold, in which layer, and by how much.
        """
        # The first layer that fails is named: what follows reads its output.
        for layer in self.layers:
            where = f"{name}: {layer.kind} attention layer {layer.layer}"
            # Not "larger than": a NaN is no small error.
            for identity, broken in _BROKEN.items():
                error = getattr(layer, identity)
                if error is not None and not error <= self.bound:
                    raise RegardError(
                        f"{where}: {broken.format(error=f'{error:.3g}', bound=f'{self.bound:g}')}"
                    )
        if self.output is not None and not self.output <= self.bound:
            raise RegardError(
                f"{name}: the output differs from the untouched model's by {self.output:.3g} of its largest "
                f"entry (rounding explains {self.bound:g})."
            )

    def _largest(self, name: Identity) -> float | None:
        found = [value for each in self.layers if (value := getattr(each, name)) is not None]
        return max(found, default=None)

    def _told(self, name: Identity) -> str:
        value = self._largest(name)
        if value is None:
            return f"{name} not checked"
        missing = sum(getattr(each, name) is None for each in self.layers)
        some = f" ({missing} of {len(self.layers)} layers not checked)" if missing else ""
        return f"{name} {value:.1e}{some}"


def bound_of(dtype: torch.dtype) -> float:
    """The largest error, relative to the largest entry, that rounding explains in this type."""
    return _BOUNDS.get(dtype, _BOUNDS[torch.float16])


def layer_parity(
    kind: Kind,
    layer: int,
    inputs: AttentionInputs,
    context: Tensor | None,
    *,
    projection: Projection | None = None,
    output: Tensor | None = None,
) -> LayerParity:
    """Compare a record with what the model computed from it.

    Args:
        kind, layer: which layer, for the result.
        inputs: the record.
        context: (batch, heads, queries, v_dim), as the model computed it; None where it is not to be checked.
        projection: from the heads to the layer's output; None where it cannot be seen.
        output: (batch, queries, d_model), what the model made of the heads; None where it is not known.
    """
    # In float64 from the record.
    errors = attention_errors(inputs, context)
    apart, largest = errors.context, 0.0 if context is None else float(context.detach().abs().max())
    heads = None
    if projection is not None and output is not None and context is not None:
        # The heads' contexts through W_O against the recorded output.
        heads = projection.error(context, output)
    return LayerParity(
        kind=kind,
        layer=layer,
        # Written weights need not sum to 1.
        weights=None if inputs.weights is not None else max(errors.row_sum, errors.softmax),
        # No context, or one with a NaN, has no largest entry to relate to.
        context=apart / largest if apart is not None and 0.0 < largest < math.inf else apart,
        heads=heads,
    )


def output_error(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest difference between two outputs, relative to the largest entry; 0.0 is bit for bit."""
    error = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            return math.inf
        # Bit for bit: nothing to measure.
        if torch.equal(one, other) or not one.numel():
            continue
        # Infinite or NaN in both is agreement, and would be NaN in the difference.
        alike = (one == other) | (one.isnan() & other.isnan())
        apart = torch.where(alike, 0.0, (one.double() - other.double()).abs()).max()
        scale = float(other.double()[other.isfinite()].abs().max())
        relative = float(apart / scale if scale else apart)
        error = math.inf if math.isnan(relative) else max(error, relative)
    return error


def _cell(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"
