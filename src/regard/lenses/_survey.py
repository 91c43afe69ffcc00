"""Watching one run of a model on a few random tokens: which call is which, and where its tensors pass by.

Nothing is read from names that a model's author was free to choose: an attention call belongs to the encoder
or the decoder by the lengths of its queries and keys, to a layer by the order of calls, and a module's output
is "the stack's output" because it is that tensor.
"""

import inspect
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import AttentionInputs, Mask
from regard.lenses._arguments import Masks, read_inputs
from regard.lenses._implementations import Call, listening


@dataclass(frozen=True)
class Execution:
    """One call of a module: which module, and which of its calls."""

    module: nn.Module = field(repr=False)
    occurrence: int


@dataclass(eq=False)
class SeenCall:
    """One attention call."""

    execution: Execution
    around: tuple[Execution, ...]
    inputs: AttentionInputs
    context: Tensor
    projection: Execution | None = None


@dataclass(eq=False)
class Survey:
    """What was seen."""

    calls: list[SeenCall] = field(default_factory=list)  # the attention calls, in order
    inputs: dict[Execution, Tensor] = field(default_factory=dict)  # the main tensor that each took
    outputs: dict[Execution, Tensor] = field(default_factory=dict)  # the main tensor that each returned
    order: list[Execution] = field(default_factory=list)  # the executions as they began
    around: dict[Execution, frozenset[Execution]] = field(default_factory=dict)  # those it ran within
    listed: frozenset[int] = frozenset()  # the modules (by id) that stand in a list of modules: layers do
    result: Any = None  # what the model returned


class _Watcher:
    """Listens to attention and to every module of one run."""

    def __init__(self) -> None:
        self.survey = Survey()
        self.masks = Masks()
        self._running: list[Execution] = []
        self._counts: dict[nn.Module, int] = defaultdict(int)
        self._attention_counts: dict[nn.Module, int] = defaultdict(int)
        # Hooks stand on the model, whoever runs it.
        self._thread = threading.get_ident()

    def made(self, values: Tensor, mask: Mask | None) -> None:
        self.masks.made(values, mask)

    def attention(self, call: Call) -> tuple[Tensor, Tensor | None]:
        inputs = read_inputs(call, self.masks)
        context, weights = call.original()
        execution = Execution(call.module, self._attention_counts[call.module])
        self._attention_counts[call.module] += 1
        self.survey.calls.append(SeenCall(execution, tuple(self._running), inputs, context.transpose(1, 2)))
        return context, weights

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        # Somebody else's pass through the same model. It may meet the hook while torch registers it, before
        # torch knows that it takes keyword arguments, and then comes without.
        if threading.get_ident() != self._thread or kwargs is None:
            return
        execution = Execution(module, self._counts[module])
        self._counts[module] += 1
        self.survey.around[execution] = frozenset(self._running)
        self._running.append(execution)
        self.survey.order.append(execution)
        given = main_input(args, kwargs)
        if given is None:
            return
        self.survey.inputs[execution] = given
        last = self.survey.calls[-1] if self.survey.calls else None
        if last is None or last.projection is not None:
            return
        # The output projection is the first module with a weight that is given the joined heads, bit for bit.
        if isinstance(getattr(module, "weight", None), Tensor):
            joined = last.context.transpose(1, 2)
            if given.shape[:2] == joined.shape[:2] and torch.equal(given.flatten(2), joined.flatten(2)):
                last.projection = execution

    def leave(self, module: nn.Module, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        execution = self._running.pop()
        assert execution.module is module
        given = main_output(output)
        if given is not None:
            self.survey.outputs[execution] = given


def survey(model: nn.Module, configs: list[Any], arguments: dict[str, Any]) -> Survey:
    """Run a transformers model once, and watch."""
    watcher = _Watcher()
    with torch.no_grad(), listening(configs, watcher), _watched(model, watcher):
        watcher.survey.result = model(**arguments)
    watcher.survey.listed = frozenset(
        id(child)
        for container in model.modules()
        if isinstance(container, nn.ModuleList | nn.Sequential | nn.ModuleDict)
        for child in container.children()
    )
    return watcher.survey


@contextmanager
def _watched(model: nn.Module, watcher: _Watcher) -> Iterator[None]:
    handles = []
    try:
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(watcher.enter, with_kwargs=True))
            handles.append(module.register_forward_hook(lambda each, _, output: watcher.leave(each, output)))
        yield
    finally:
        for handle in handles:
            handle.remove()


_LOOKS_LIKE_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_WITHOUT_WEIGHTS = re.compile(
    # Recurrences and sums that have no softmax over keys, and so no weights to see.
    r"lightning|linear|exclusive|delta|mamba|recurrent|retention|rwkv|output|norm|pool|intermediate|dense|rotary|embedding|bias|mask|mlp",
    re.IGNORECASE,
)


def unseen(found: Survey, names: dict[int, str]) -> list[str]:
    """Modules that ran, look like attention, and made no call that was seen: 'name (class)', innermost."""
    seen = {execution for call in found.calls for execution in call.around}
    hidden: dict[str, str] = {}
    for execution in found.order:
        kind = type(execution.module).__name__
        if (
            execution not in seen
            and _LOOKS_LIKE_ATTENTION.search(kind)
            and not _WITHOUT_WEIGHTS.search(kind)
            and any(True for _ in execution.module.parameters())
        ):
            hidden[names.get(id(execution.module), "?")] = kind
    return [
        f"{name} ({kind})"
        for name, kind in hidden.items()
        if not any(other.startswith(f"{name}.") for other in hidden)
    ]


def accepted(model: nn.Module) -> frozenset[str]:
    """The names of what a model's forward takes."""
    return frozenset(inspect.signature(model.forward).parameters)


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
