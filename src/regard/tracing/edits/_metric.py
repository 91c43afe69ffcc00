"""What is measured of a run: one number, for gradients one that can be differentiated."""

import math
from collections.abc import Callable

from torch import Tensor

from regard.core.errors import InputError
from regard.models import Output

Metric = Callable[[Output], "Tensor | float"]
"""From what a network returns (of one text: batch 1, with logits) to one number."""

Progress = Callable[[int, int], None]
"""Called as long work goes on, with what is done and what there is."""


def number_of(value: object, *, differentiable: bool = False) -> float:
    """A metric as a number."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise InputError(f"metric must return one number; got {_shown(value)}.")
    try:
        number = float(value.detach() if isinstance(value, Tensor) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(f"metric must return one number; got {_shown(value)}.") from error
    if not math.isfinite(number):
        raise InputError(f"metric must be finite; got {number}.")
    if differentiable and not (isinstance(value, Tensor) and value.requires_grad):
        raise InputError(
            "metric must be a tensor with a gradient, a differentiable function of the output; got "
            f"{_shown(value)}."
        )
    return number


def _shown(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"a tensor of shape {tuple(value.shape)}{'' if value.requires_grad else ' without a gradient'}"
