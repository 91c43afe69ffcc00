"""Who wrote a part of the residual stream, and which models' scores are sums over such parts."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from regard.blocks import DecoderLayer, MultiHeadAttention, SelfAttentionLayer
from regard.core import Dot, ScaledDot
from regard.core.errors import InputError
from regard.models import Kind, Reader, StackKind, attention_name, stack_of
from regard.tracing.record import Trace

WriterName = Literal["word", "position", "token_type", "embedding", "head", "ffn", "biases"]

_IN_WORDS = {
    "word": "the word itself",
    "position": "its position",
    "token_type": "its token type",
    "embedding": "its embedding",
    "biases": "biases",
}


@dataclass(frozen=True)
class Writer:
    """What wrote a part of the residual stream; `str` says it in words.

    Args:
        name: "word", the row of the table; "position" and "token_type", what is added to it; "embedding",
            where what enters layer 0 is no sum of these; "head"; "ffn"; "biases", the same for every text.
        layer, head: of a head or a feed-forward network, else None.
        kind: of its attention, or of its stack.

    Example:
        >>> from regard.tracing import Writer
        >>> print(Writer("head", 1, 4), Writer("ffn", 0), Writer("word"), sep=", ")
        head 1.4, feed-forward 0, the word itself
    """

    name: WriterName
    layer: int | None = None
    head: int | None = None
    kind: Kind = "encoder"

    def __str__(self) -> str:
        if self.name == "head":
            return f"{'cross-attention ' if self.kind == 'cross' else ''}head {self.layer}.{self.head}"
        return f"feed-forward {self.layer}" if self.name == "ffn" else _IN_WORDS[self.name]

    def columns(self, before: str = "") -> dict[str, Any]:
        """As columns of a table, whose names begin so."""
        return {
            f"{before}{name}": getattr(self, "name" if name == "part" else name)
            for name in ("part", "layer", "head", "kind")
        }


def layer_of(trace: Trace, kind: StackKind, index: int) -> SelfAttentionLayer | DecoderLayer:
    """A layer that hands on the sum of what it was given and what its parts gave; others are refused."""
    layer = trace.require_model().network.layer(kind, index)
    # Exactly these classes: a subclass may add something.
    if isinstance(layer, SelfAttentionLayer | DecoderLayer) and type(layer) in (
        SelfAttentionLayer,
        DecoderLayer,
    ):
        return layer
    raise _refused(trace, f"{kind} layer {index}", layer)


def attention_of(trace: Trace, kind: Kind, index: int) -> MultiHeadAttention:
    """An attention whose scores are products of queries and keys, which are read from sums.

    Raises:
        InputError: an edit of the residual stream, or a layer that does more.
    """
    check_edits(trace)
    attention = getattr(layer_of(trace, stack_of(kind), index), attention_name(kind))
    # Scores that are plain products of queries and keys.
    if type(attention) is not MultiHeadAttention or not isinstance(attention.scorer, ScaledDot | Dot):
        raise _refused(trace, f"{kind} layer {index}", attention)
    return attention


def readers_of(trace: Trace, kind: Kind, index: int) -> tuple[Reader, ...]:
    """How queries and keys of a model that is seen through the lens read its residual stream.

    Raises:
        InputError: where that is not seen, or an edit of the residual stream.
    """
    check_edits(trace)
    readers = trace.require_model().network.plain.readers(kind, index)
    if readers is None:
        raise InputError(
            f"the way from the residual stream to queries and keys of {kind} layer {index} is not seen "
            f"through the lens, so no score of it is split; where regard has the family of "
            f"{trace.model}, load the checkpoint's folder with regard.load."
        )
    return readers


def check_edits(trace: Trace) -> None:
    """Refuse edits that wrote into the residual stream."""
    for name in sorted(trace.require_model().network.written):
        # Edits of scores, weights and contexts leave the sum what it is.
        if not _HARMLESS.search(name):
            raise InputError(
                f"an edit wrote at {name}, which no part of {trace.model} did: ask a trace without it, or "
                "edit weights, scores or context."
            )


_HARMLESS = re.compile(r"attention\.(q|k|v|scores|weights|context)$")
"""Where an edit leaves the residual stream the sum of what its heads and networks gave."""


def _refused(trace: Trace, where: str, what: object) -> InputError:
    return InputError(
        f"a score is split where layers add up and scores are products; {where} of {trace.model} does more: "
        f"{type(what).__name__}."
    )
