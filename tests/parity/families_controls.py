"""Ways to break a network that the comparison with transformers must notice: one fault each.

A fault is a function of a fresh network that breaks one thing and says what; `faults_of` lists those that a
network can have. What the entry claims to have ("rotary", "window", ...) must give some.
"""

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.blocks import MultiHeadAttention, Pattern
from regard.core import Causal, Conjunction, Mask, Window

Fault = Callable[[Any], None]


@dataclass(frozen=True)
class Numbers:
    """Another numbering of the positions."""

    original: Any

    @property
    def first(self) -> int:
        return int(self.original.first)

    def __call__(self, token_ids: Tensor) -> Tensor:
        return self.original(token_ids).flip(-1)


def attention_names(network: Any) -> list[str]:
    """The names of all attention modules."""
    return [name for name, module in network.named_modules() if isinstance(module, MultiHeadAttention)]


def stacks(network: Any) -> list[Any]:
    """The stacks, the encoder's first."""
    return [network.stack(kind) for kind in network.prefixes]


def faults_of(network: Any) -> dict[str, dict[str, Fault]]:
    """By subject, and there by name, every fault that this network can have."""
    found: dict[str, dict[str, Fault]] = {}
    for subject, maker in _MAKERS.items():
        if faults := dict(maker(network)):
            found[subject] = faults
    return found


def _heads(network: Any) -> Iterator[tuple[str, Fault]]:
    for name in attention_names(network):
        for which in ("q", "k", "v"):
            yield (
                f"{name}.{which}",
                lambda net, name=name, which=which: roll_heads(net.get_submodule(name), which),
            )


def roll_heads(attention: Any, which: str) -> None:
    """Give head h the rows of head h + 1."""
    linear = getattr(attention, which)
    heads = attention.num_heads if which == "q" else attention.num_kv_heads
    assert heads > 1
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(parameter.roll(len(parameter) // heads, dims=0).clone())


def _gqa(network: Any) -> Iterator[tuple[str, Fault]]:
    for name in attention_names(network):
        attention = network.get_submodule(name)
        if attention.num_kv_heads < attention.num_heads:
            yield name, lambda net, name=name: spread_heads(net.get_submodule(name), interleave=False)


def spread_heads(attention: Any, *, interleave: bool) -> None:
    """A key and a value head for every query head: 0 0 0 1 1 1, which changes nothing, or 0 1 0 1 0 1."""
    groups = attention.num_heads // attention.num_kv_heads
    for linear in (attention.k, attention.v):
        for name, parameter in list(linear.named_parameters()):
            split = parameter.detach().unflatten(0, (attention.num_kv_heads, -1))
            spread = split.repeat_interleave(groups, 0) if interleave else torch.cat([split] * groups)
            setattr(linear, name, nn.Parameter(spread.flatten(0, 1)))
        linear.out_features *= groups
    attention.num_kv_heads = attention.num_heads


def _scale(network: Any) -> Iterator[tuple[str, Fault]]:
    def stretch(attention: Any) -> None:
        scale = attention.scale
        if scale is None:
            scale = (attention.q.weight.shape[0] // attention.num_heads) ** -0.5
        attention.scale = 1.01 * scale

    for name in attention_names(network):
        yield name, lambda net, name=name: stretch(net.get_submodule(name))


def _without(mask: Mask | None, kind: type) -> Mask | None:
    parts = () if mask is None else tuple(part for part in mask.parts() if not isinstance(part, kind))
    return None if not parts else parts[0] if len(parts) == 1 else Conjunction(parts)


def _each_pattern(network: Any, change: Callable[[Pattern], Pattern]) -> None:
    for stack in stacks(network):
        stack.patterns = tuple(change(pattern) for pattern in stack.patterns)


def _mask(kind: type) -> Callable[[Any], Iterator[tuple[str, Fault]]]:
    def makers(network: Any) -> Iterator[tuple[str, Fault]]:
        for number, stack in enumerate(stacks(network)):
            for layer, pattern in enumerate(stack.patterns):
                if pattern.mask is not None and any(isinstance(part, kind) for part in pattern.mask.parts()):
                    yield f"stack {number}, layer {layer}", _drop(number, layer, kind)

    return makers


def _drop(number: int, layer: int, kind: type) -> Fault:
    def fault(network: Any) -> None:
        stack = stacks(network)[number]
        patterns = list(stack.patterns)
        patterns[layer] = replace(patterns[layer], mask=_without(patterns[layer].mask, kind))
        stack.patterns = tuple(patterns)

    return fault


def _rotary(network: Any) -> Iterator[tuple[str, Fault]]:
    if not any(pattern.rotary is not None for stack in stacks(network) for pattern in stack.patterns):
        return

    def turned(**changes: Any) -> Fault:
        def change(pattern: Pattern) -> Pattern:
            return replace(pattern, rotary=None if not changes else replace(pattern.rotary, **changes))

        return lambda net: _each_pattern(net, change)

    yield "interleaved", turned(layout="interleaved")
    yield "another base", turned(base=103.0)
    yield "none", turned()


def _positions(network: Any) -> Iterator[tuple[str, Fault]]:
    for number, stack in enumerate(stacks(network)):
        if stack.embeddings.positions is None and all(pattern.rotary is None for pattern in stack.patterns):
            continue

        def backwards(net: Any, number: int = number) -> None:
            stack = stacks(net)[number]
            stack.numbering = Numbers(stack.numbering)

        yield f"stack {number}", backwards


def _relative_bias(network: Any) -> Iterator[tuple[str, Fault]]:
    for number, stack in enumerate(stacks(network)):
        if stack.bias is not None:
            yield f"stack {number}", lambda net, number=number: setattr(stacks(net)[number], "bias", None)
    for name in attention_names(network):
        if type(network.get_submodule(name)).bias_of is not MultiHeadAttention.bias_of:

            def plain(net: Any, name: str = name) -> None:
                attention = net.get_submodule(name)
                attention.bias_of = types.MethodType(lambda self, *args, **kwargs: None, attention)

            yield name, plain


def _norm_eps(network: Any) -> Iterator[tuple[str, Fault]]:
    for name, module in network.named_modules():
        if isinstance(getattr(module, "eps", None), float) and not name.startswith("head"):

            def other(net: Any, name: str = name) -> None:
                net.get_submodule(name).eps += 0.03

            yield name, other


def _norms(network: Any) -> Iterator[tuple[str, Fault]]:
    for number, stack in enumerate(stacks(network)):
        if stack.norm is not None:
            yield (
                f"last of stack {number}",
                lambda net, number=number: setattr(stacks(net)[number], "norm", None),
            )
    for name in attention_names(network):
        for which in ("q_norm", "k_norm"):
            if getattr(network.get_submodule(name), which, None) is not None:
                yield (
                    f"{name}.{which}",
                    lambda net, name=name, which=which: setattr(net.get_submodule(name), which, None),
                )


def _embedding_scale(network: Any) -> Iterator[tuple[str, Fault]]:
    for number, stack in enumerate(stacks(network)):
        if stack.embeddings.scale != 1.0:
            yield (
                f"stack {number}",
                lambda net, number=number: setattr(stacks(net)[number].embeddings, "scale", 1.0),
            )


def _softcap(network: Any) -> Iterator[tuple[str, Fault]]:
    for name in attention_names(network):
        if network.get_submodule(name).softcap is not None:
            for cap in (None, 3.1):
                yield (
                    f"{name}, {cap}",
                    lambda net, name=name, cap=cap: setattr(net.get_submodule(name), "softcap", cap),
                )


def head_faults(network: Any) -> dict[str, Fault]:
    """Faults of a language model's head, for as much as it has."""
    head, found = network.head, {}
    if getattr(head, "softcap", None) is not None:
        found["softcap"] = lambda net: setattr(net.head, "softcap", None)
    if getattr(head, "scale", 1.0) != 1.0:
        found["scale"] = lambda net: setattr(net.head, "scale", 1.0)
    if isinstance(getattr(head, "bias", None), Tensor):
        found["bias"] = lambda net: net.head.bias.zero_()
    return found


_MAKERS: dict[str, Callable[[Any], Iterator[tuple[str, Fault]]]] = {
    "heads": _heads,
    "gqa": _gqa,
    "scale": _scale,
    "causal": _mask(Causal),
    "window": _mask(Window),
    "rotary": _rotary,
    "positions": _positions,
    "relative-bias": _relative_bias,
    "norm-eps": _norm_eps,
    "norms": _norms,
    "embedding-scale": _embedding_scale,
    "softcap": _softcap,
}
