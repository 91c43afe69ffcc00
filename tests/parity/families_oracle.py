"""transformers as the oracle: weights that hide nothing, and double precision that is double."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_SMALL, _LARGE = 0.05, 0.3
GAIN = 1.3
"""How much a linear layer stretches what comes in: enough for attention far from uniform, and no more."""


def build(
    cls: type,
    config: Any,
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    gain: float = GAIN,
    untie: bool = False,
) -> Any:
    """A transformers model in evaluation mode, eager attention, every parameter drawn anew.

    Its own initialisation has zero biases, norms of one and weights so small that attention is uniform: it
    would hide most faults. The embeddings stay small instead, so that the norms' epsilon shows.

    It is made in its type, as `from_pretrained` does, not converted: `model.to(bfloat16)` would also round
    RoPE's frequencies, and `model.double()` keep Gemma's factor of the embeddings in single precision.
    """
    config._attn_implementation = "eager"
    config.use_cache = False
    with _default_dtype(dtype):
        model = cls(config).eval()
    if untie:
        head = model.get_output_embeddings()
        head.weight = nn.Parameter(head.weight.detach().clone())
    owners = {id(value): owner for owner in model.modules() for value in owner.parameters(recurse=False)}
    torch.manual_seed(seed)  # only now: the numbers drawn so far depend on the type
    with torch.no_grad():
        for parameter in model.parameters():
            owner = owners[id(parameter)]
            if "Sinusoidal" not in type(owner).__name__:  # Marian's constants, which it does not store
                parameter.copy_(_drawn(owner, parameter, gain))
        stored = model.state_dict()
        for name, buffer in model.named_buffers():
            if name in stored and buffer.is_floating_point():  # BART's final_logits_bias
                buffer.copy_(torch.randn(buffer.shape))
    return model


def _drawn(owner: nn.Module, parameter: Tensor, gain: float) -> Tensor:
    # Drawn in single precision whatever the type: a model has the same weights in each.
    noise = torch.randn(parameter.shape, dtype=torch.float32)
    kind = type(owner).__name__
    if "Norm" in kind and parameter is getattr(owner, "weight", None):
        return noise * _LARGE if kind.startswith("Gemma") else 1.0 + noise * _LARGE
    if isinstance(owner, nn.Embedding):
        return noise if parameter.shape[1] <= 3 else noise * _SMALL  # T5's biases are numbers, one a head
    if parameter.ndim == 1:
        return noise * _LARGE
    inputs = parameter.shape[0] if kind == "Conv1D" else parameter[0].numel()
    return noise * gain / inputs**0.5


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Wide(TorchFunctionMode):
    """Leaves numbers in double precision where a model would compute in single.

    Llama's and T5's norms, and most softmaxes, go to float32 by name, whatever comes in; so a model in
    double precision is no better than 1e-7. What is meant by it is "at least". RoPE's angles stay in single
    precision: they are part of the model.
    """

    gc_paused = 0

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if self.gc_paused:
            return func(*args, **kwargs)
        if func is torch.tensor and kwargs.get("dtype") is torch.float32:  # DeBERTa's scale
            return func(*args, **(kwargs | {"dtype": torch.float64}))
        if not args or not isinstance(args[0], Tensor) or args[0].dtype != torch.float64:
            return func(*args, **kwargs)
        if func is Tensor.float or (func is Tensor.to and torch.float32 in (*args[1:], kwargs.get("dtype"))):
            return args[0]
        if func in _SOFTMAXES and kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


_SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax)


@contextlib.contextmanager
def at_full_width(model: nn.Module) -> Iterator[None]:
    """Within it, a model in double precision computes in double precision; any other as it always does."""
    if next(model.parameters()).dtype != torch.float64:
        yield
        return
    mode = _Wide()

    def pause(*_: Any) -> None:
        mode.gc_paused += 1

    def resume(*_: Any) -> None:
        mode.gc_paused -= 1

    hooks = []
    for module in model.modules():
        if "Rotary" in type(module).__name__:
            hooks += [module.register_forward_pre_hook(pause), module.register_forward_hook(resume)]
    try:
        with mode:
            yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def as_new(model: nn.Module) -> Iterator[None]:
    """Within it, dynamic RoPE may change; afterwards it is as before.

    transformers' modules remember the longest text so far, and give a shorter one the angles of that.
    """
    rotary = [module for module in model.modules() if "Rotary" in type(module).__name__]
    before = [(dict(module.__dict__), dict(module._buffers)) for module in rotary]
    try:
        yield
    finally:
        for module, (fields, buffers) in zip(rotary, before, strict=True):
            module.__dict__.update(fields)
            module._buffers.clear()
            module._buffers.update(buffers)
