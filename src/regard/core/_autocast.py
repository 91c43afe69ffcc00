"""Arithmetic that autocast leaves alone."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch

from regard.core._inputs import AttentionInputs

_P = ParamSpec("_P")
_R = TypeVar("_R")


def without_autocast(
    function: Callable[Concatenate[AttentionInputs, _P], _R],
) -> Callable[Concatenate[AttentionInputs, _P], _R]:
    """The function with autocast switched off on the device of its record.

    Attention has types of its own: scores in float32 or wider, of q and k in the type in which they come.
    Autocast would round every product to half precision.
    """

    @wraps(function)
    def inside(inputs: AttentionInputs, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        device = inputs.q.device.type
        if not torch.is_autocast_enabled(device):
            return function(inputs, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(inputs, *args, **kwargs)

    return inside
