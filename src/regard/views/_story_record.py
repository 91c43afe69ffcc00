"""One word's way through a stack: every vector from the learned embedding to the contextual one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SHOWN = 32
"""Numbers of each vector that a page has: as many as a head of the default model has dimensions."""

StoryPart = Literal["embedding", "attention", "cross-attention", "feed-forward", "final", "output"]

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoryRow:
    """One vector of each token.

    Attributes:
        name: What it is: "learned", "x + attention", "LayerNorm".
        part: Where on the way.
        layer: Its layer; None for the embedding.
        values: float32 (tokens, at most `SHOWN`), the first numbers.
        lengths: float32 (tokens,), of the whole vectors.
        dim: Numbers of the whole vector.
        total: The places of the rows whose sum it is; () for none.
        hidden: The layer that reads it, or the number of layers for the contextual embedding; None for what
            is not the residual stream between layers.
    """

    name: str
    part: StoryPart
    layer: int | None
    values: _Floats
    lengths: _Floats
    dim: int
    total: tuple[int, ...] = ()
    hidden: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoryNeurons:
    """What is inside the feed-forward networks, after the activation.

    Attributes:
        layers: The layers.
        count: Neurons of a layer.
        places: int32 (layers, tokens, some), those with the largest values, whatever their sign.
        values: float32, of the same shape.
        active: int32 (layers, tokens), how many are above 0.
    """

    layers: tuple[int, ...]
    count: int
    places: _Integers
    values: _Floats
    active: _Integers


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoryRecord:
    """The way of some tokens through one stack.

    Attributes:
        tokens: Their places.
        ids: Their rows in the table of learned embeddings.
        vocabulary: Rows of that table; None where it is not known.
        rows: All vectors, in order.
        moved: float32 (2, 3, states, tokens): cosine and distance, of each row with `hidden`, to the learned
            embedding (NaN where its size differs), to what enters layer 0, and to the state before.
        neurons: Of the feed-forward networks; None where they cannot be seen.
        heads: Of each attention, by (kind, layer), float32 (tokens, heads): the length of what each head adds
            to its output.
        ending: What the contextual embeddings are for, as plain values: the likeliest `next` tokens, or the
            `movement` of a word that stands in another sentence too; None for nothing.
    """

    tokens: tuple[int, ...]
    ids: tuple[int, ...]
    vocabulary: int | None
    rows: tuple[StoryRow, ...]
    moved: _Floats
    neurons: StoryNeurons | None
    heads: dict[tuple[str, int], _Floats]
    ending: Mapping[str, Any] | None = None
