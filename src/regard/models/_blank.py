"""Building a network whose parameters hold nothing yet."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _NoInit(TorchFunctionMode):
    """Skips `torch.nn.init`, whose random fills of a meta tensor make torch import its compiler: seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


@contextmanager
def without_values() -> Iterator[None]:
    """Within it, modules have memory for their parameters, whatever that holds."""
    with _NoInit():
        yield


@contextmanager
def blank() -> Iterator[None]:
    """Within it, modules are made on the meta device: no memory, no initial values, only shapes."""
    with torch.device("meta"), _NoInit():
        yield
