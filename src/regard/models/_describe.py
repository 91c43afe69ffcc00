"""What a network is made of, in words: how it knows positions, and who may attend to whom."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from regard.blocks import Pattern, Stack
from regard.core import Causal, DilatedWindow, Mask, Window
from regard.models._network import Network
from regard.positions import (
    FourierPositions,
    LearnedPositions,
    NoScaling,
    RelativeBias,
    Rotary,
    SinusoidalPositions,
)


def positions_of(network: Network) -> str:
    """How each stack knows positions.

    Example:
        >>> from regard.models.families.bert import BertConfig, build
        >>> positions_of(build(BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)))
        'learned (512)'
    """
    return _of_stacks(network, _positions)


def masks_of(network: Network) -> str:
    """Who may attend to whom, by the architecture alone, in each stack.

    Example:
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> masks_of(build(Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)))
        'causal'
    """
    return _of_stacks(network, _masks)


def _of_stacks(network: Network, describe: Callable[[Stack], Iterable[str]]) -> str:
    # Stacks of another library are None: nothing is known of them.
    stacks = {kind: stack for kind in network.prefixes if (stack := network.stack(kind)) is not None}
    if not stacks:
        return "as its own code has it"
    said = {kind: "; ".join(describe(stack)) or "none" for kind, stack in stacks.items()}
    # Both stacks alike, or only one: said once.
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{kind}: {words}" for kind, words in said.items())


def _positions(stack: Stack) -> Iterator[str]:
    # First what is added to the embeddings, then what turns q and k, then what is added to scores.
    table = stack.embeddings.positions
    if isinstance(table, LearnedPositions):
        yield f"learned ({len(table.weight) - stack.numbering.first})"
    elif isinstance(table, SinusoidalPositions):
        yield f"sinusoidal ({table.max_seq_len})"
    elif isinstance(table, FourierPositions):
        yield f"Fourier features ({table.max_seq_len})"
    for rotary, count in _counted(pattern.rotary for pattern in stack.patterns):
        if rotary is not None:
            yield f"rotary ({_rotary(rotary)}{_share(count, stack)})"
    if isinstance(stack.bias, RelativeBias):
        yield f"relative bias ({stack.bias.num_buckets} buckets to {stack.bias.max_distance} tokens)"
    elif stack.bias is not None:
        yield "relative, in the scores"


def _rotary(rotary: Rotary) -> str:
    scaling = "" if isinstance(rotary.scaling, NoScaling) else f", {type(rotary.scaling).__name__}"
    return f"base {rotary.base:g}{scaling}"


def _masks(stack: Stack) -> Iterator[str]:
    # Kernels first: with one there are no weights to mask.
    kernels = (getattr(layer.attention, "kernel", None) for layer in stack.layers)
    for name, count in _counted(each.name for each in kernels if each is not None):
        yield f"{name} in place of softmax{_share(count, stack)}"
    counted = _counted(_mask(pattern) for pattern in stack.patterns)
    for words, count in counted:
        # "none" is said only beside layers that have a mask.
        if len(counted) > 1 or words != "none":
            yield f"{words}{_share(count, stack)}"


def _mask(pattern: Pattern) -> str:
    parts: tuple[Mask, ...] = () if pattern.mask is None else pattern.mask.parts()
    is_causal = any(isinstance(part, Causal) for part in parts)
    words = ["causal"] if is_causal else []
    for part in parts:
        if isinstance(part, DilatedWindow):
            # A causal mask leaves the left half of a window.
            before, after = part.left, 0 if is_causal else part.right
            gap = f", {part.dilation} apart" if part.dilation > 1 else ""
            words.append(f"window of {before} tokens before and {after} after{gap}")
        elif isinstance(part, Window) and is_causal and part.left is not None:
            # With the query itself, as papers count it.
            words.append(f"window of {part.left + 1} tokens")
        elif isinstance(part, Window):
            words.append(f"window of {part.left} tokens before and {part.right} after")
    return ", ".join(words) or "none"


_Value = TypeVar("_Value")


def _counted(values: Iterable[_Value]) -> list[tuple[_Value, int]]:
    # In the order of first appearance, which is that of the layers.
    counts: dict[_Value, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return list(counts.items())


def _share(count: int, stack: Stack) -> str:
    return "" if count == len(stack.layers) else f" in {count} of {len(stack.layers)} layers"
