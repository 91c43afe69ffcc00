"""The kinds of attention, and where each stands in a network."""

from typing import Literal

StackKind = Literal["encoder", "decoder"]
"""The two kinds of stack."""

Kind = Literal["encoder", "decoder", "cross"]
"""Which attention: the encoder's, the decoder's own, or from the decoder to the encoder."""


def stack_of(kind: Kind) -> StackKind:
    """The stack whose layers hold the attention of a kind, and whose tokens are its queries."""
    return "decoder" if kind == "cross" else kind


def keys_of(kind: Kind) -> StackKind:
    """The stack whose tokens are the keys of a kind of attention."""
    return "encoder" if kind == "cross" else kind


def attention_name(kind: Kind) -> str:
    """What the attention of a kind is called within its layer, as a module and in the names of taps."""
    return "cross_attention" if kind == "cross" else "attention"
