"""A request to an embedder: level, layers, pooling, and how it is computed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.core.arguments import Count, check_fields, one_of, whole
from regard.core.errors import InputError
from regard.embedding._packs import BATCH_TOKENS
from regard.embedding._passages import Window, Windows
from regard.embedding._pooling import KINDS, WORD_KINDS, Kind, WordKind
from regard.embedding._steps import Storage

Level = Literal["sentence", "word", "token"]
"""What gets a vector."""

Precision = Literal["float32", "bfloat16", "int16", "int8", "fast"]
"""What a model computes in."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A weighted sum of several layers: sum over i of weights_i h_(layers_i).

    Args:
        layers: embedding layers.
        weights: a number for each; by default 1 / len(layers) each, their mean.

    Raises:
        InputError: no layers, or not as many weights.

    Example:
        >>> from regard import Mix
        >>> Mix([3, 4]).shares
        (0.5, 0.5)

    Source: Peters et al. 2018, arXiv 1802.05365, equation 1, with fixed weights.
    """

    layers: Sequence[int]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        _keep(self, "layers", "weights")
        if not self.layers:
            raise InputError("layers must name at least one layer; got none.")
        if self.weights is not None and len(self.weights) != len(self.layers):
            raise InputError(
                f"weights must be as many as the {len(self.layers)} layers; got {len(self.weights)}."
            )
        if not all(math.isfinite(share) for share in self.shares):
            raise InputError(f"weights must be finite numbers; got {list(self.shares)}.")

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights in force."""
        count = len(self.layers)
        return (1.0 / count,) * count if self.weights is None else tuple(self.weights)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which vectors are wanted.

    `regard.Model.embed` says what each field means.

    Raises:
        InputError: a value that is none of these.

    Example:
        >>> from regard.embedding import Request
        >>> Request(level="word", layer=[0, -1]).layers(6)
        (0, 6)
    """

    level: Level = "sentence"
    layer: int | Sequence[int] | Mix = -1
    pooling: Kind | WordKind | Sequence[Kind | WordKind] | None = None
    normalize: bool | None = None
    window: Window = field(default_factory=Windows)
    prompt: str | None = None
    prompt_name: str | None = None
    truncate_dim: Count | None = None
    precision: Precision = "float32"
    storage: Storage = "float32"
    batch_tokens: Count = BATCH_TOKENS
    threads: Count | None = None

    def __post_init__(self) -> None:
        _keep(self, "layer", "pooling")
        # Limits of single fields, then what must fit together.
        check_fields(self)
        if self.poolings == ():
            raise InputError("pooling must name at least one; got none.")
        for kind in self.poolings or ():
            one_of("pooling", kind, WORD_KINDS if self.level == "word" else KINDS)
        if not isinstance(self.window, Window):
            raise InputError(
                f"window must be regard.Windows(..) or regard.Truncate(..); got {self.window!r}."
            )
        # A token is one vector, and only sentences have prompts.
        no_pooling = ("pooling",) if self.level == "token" else ()
        for name in () if self.level == "sentence" else (*no_pooling, "prompt", "prompt_name"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} must be None with level={self.level!r}, which has none.")

    @property
    def poolings(self) -> tuple[Any, ...] | None:
        """The poolings asked for; None for the checkpoint's own."""
        if self.pooling is None:
            return ("mean",) if self.level != "sentence" else None
        return (self.pooling,) if isinstance(self.pooling, str) else tuple(self.pooling)

    @property
    def is_single(self) -> bool:
        """Whether vectors have no axis of layers."""
        return isinstance(self.layer, int | Mix)

    def layers(self, depth: int) -> tuple[int, ...]:
        """The embedding layers that are read, from 0 to the number of attention layers.

        Raises:
            InputError: a layer that the model does not have or that is named twice, or none.
        """
        asked = self.layer.layers if isinstance(self.layer, Mix) else self.layer
        chosen = (asked,) if isinstance(asked, int) else tuple(asked)
        if not chosen:
            raise InputError("layer must name at least one layer; got none.")
        # Negative ones count from the last.
        numbers = tuple(whole("layer", each, least=-depth - 1, most=depth) % (depth + 1) for each in chosen)
        if len(set(numbers)) < len(numbers):
            raise InputError(f"layer must name each layer once; got {', '.join(map(str, numbers))}.")
        return numbers


def _keep(holder: object, *names: str) -> None:
    """Lists and arrays as tuples, which nobody can write to later, and numpy's numbers as Python's."""
    for name in names:
        value = getattr(holder, name)
        value = value.tolist() if hasattr(value, "tolist") else value
        is_row = isinstance(value, Sequence) and not isinstance(value, str)
        object.__setattr__(holder, name, tuple(value) if is_row else value)
