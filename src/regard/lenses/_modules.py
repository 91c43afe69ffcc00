"""The tensor that matters among what a module of transformers takes or returns, and how to replace it."""

from typing import Any

from torch import Tensor

_NAMES = ("hidden_states", "input", "x", "inputs_embeds", "input_ids")


def main_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first positional tensor, or the keyword argument that stands for it."""
    if args:
        return args[0] if isinstance(args[0], Tensor) else None
    return next((kwargs[name] for name in _NAMES if isinstance(kwargs.get(name), Tensor)), None)


def with_main_input(
    args: tuple[Any, ...], kwargs: dict[str, Any], value: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with another main input."""
    if args:
        return (value, *args[1:]), kwargs
    name = next(name for name in _NAMES if isinstance(kwargs.get(name), Tensor))
    return args, {**kwargs, name: value}


def main_output(output: Any) -> Tensor | None:
    """The tensor itself, the first of a tuple, or `last_hidden_state`."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, dict):
        value = output.get("last_hidden_state")
        return value if isinstance(value, Tensor) else None
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    return None


def with_main_output(output: Any, value: Tensor) -> Any:
    """The same output with another main tensor."""
    if isinstance(output, Tensor):
        return value
    if isinstance(output, dict):
        return type(output)(**{**output, "last_hidden_state": value})
    return type(output)((value, *output[1:]))
