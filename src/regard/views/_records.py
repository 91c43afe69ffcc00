"""What the views are given: tokens, and what the weights of every layer are a function of.

Plain values and numpy arrays, for any model: an encoder, a decoder, and the attention from the one to the
other, each layer with shapes, scale, mask and bias of its own. The weights of query head h are

    softmax over keys and sink of cap(scale * q[h] @ k[h // group].T) + bias[h], where the mask allows

with group = heads // kv_heads, and cap(s) = softcap * tanh(s / softcap) where there is one. A query that may
attend to nothing has weights of zero. Weights that somebody else computed are given as they are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._measure_records import MeasureRecord
from regard.views._position_records import PositionsRecord, RotaryRecord

RecordKind = Literal["encoder", "decoder", "cross"]
"""Which attention: the encoder's, the decoder's own, or from the decoder to the encoder."""

# What bfloat16 may make of a row's sum.
_ROUNDED = 5e-3

HeadStatistics = Mapping[str, npt.NDArray[np.float32]]
"""Means over a text's queries, by the names of `regard.tracing.Statistics`: (layers, heads), NaN for none."""

KINDS: tuple[RecordKind, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True, kw_only=True, slots=True)
class PageToken:
    """One token, as it is to be read.

    Attributes:
        text: The token's text. Any string: it is shown as text and never as markup.
        special: Whether the model added it (`[CLS]`, `[SEP]`), so that a reader may hide it.
        sequence: 0 in the first text, 1 in the second, None for a special token that is in neither.
        word: Index of the word it is a piece of; neighbours with the same index are drawn joined.
        surface: The characters that it stands for ("bank" for "Ġbank"); by default its text.
    """

    text: str
    special: bool = False
    sequence: int | None = None
    word: int | None = None
    surface: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"text: wanted a str, got {type(self.text).__name__}; decode the token first")
        if self.sequence not in (None, 0, 1):
            raise InputError(
                f"sequence: wanted 0 (first text), 1 (second) or None, got {self.sequence!r}; "
                "a view shows one text or a pair"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one stack reads.

    Attributes:
        text: The text, as it was typed; None where only token ids were given.
        pair: The second text, or None.
        tokens: The tokens in order, specials included.
        words: The text of each word, by the index that tokens name; () joins the pieces instead.
        positions: How it knows positions; None where that is not to be shown.
    """

    text: str | None
    pair: str | None = None
    tokens: tuple[PageToken, ...]
    words: tuple[str, ...] = ()
    positions: PositionsRecord | None = None

    def __post_init__(self) -> None:
        if not self.tokens:
            raise InputError("tokens: wanted at least one, got none; give a text that has tokens")
        if self.pair is None and any(token.sequence == 1 for token in self.tokens):
            raise InputError(
                "pair: wanted the second text, got None though a token has sequence=1; "
                "give pair=, or mark every token sequence=0"
            )
        unnamed = [token.word for token in self.tokens if token.word is not None and self.words]
        if any(not 0 <= word < len(self.words) for word in unnamed):
            raise InputError(
                f"words: wanted a text for every word that a token names, got {len(self.words)}; "
                "give words=() to join the pieces"
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MaskRecord:
    """Which queries may attend to which keys: where everything that is given allows it.

    Attributes:
        low, high: key - query lies from low to high, both included; None is no limit. Causal is high=0, a
            causal window of w keys low=1 - w, high=0.
        keys: bool (keys,), False where a key is padding.
        segments: Two integer arrays, (queries,) and (keys,): attention within a segment only.
        bits: bool (heads or 1, queries, keys), True = may attend: what nothing smaller says.
    """

    low: int | None = None
    high: int | None = None
    keys: npt.NDArray[np.bool_] | None = None
    segments: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
    bits: npt.NDArray[np.bool_] | None = None

    def rows(self, head: int, queries: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.bool_]:
        """Which of `size` keys some queries of a head may attend to: bool (len(queries), size).

        Example:
            >>> MaskRecord(low=-1, high=0).rows(0, np.arange(3), 3).astype(int).tolist()
            [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
        """
        allowed = np.ones((len(queries), size), dtype=bool)
        distance = np.arange(size)[None, :] - queries[:, None]
        if self.low is not None:
            allowed &= distance >= self.low
        if self.high is not None:
            allowed &= distance <= self.high
        if self.keys is not None:
            allowed &= self.keys
        if self.segments is not None:
            allowed &= self.segments[0][queries, None] == self.segments[1]
        if self.bits is not None:
            allowed &= self.bits[head if len(self.bits) > 1 else 0, queries]
        return allowed


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerRecord:
    """One attention layer.

    Attributes:
        layer: Its number in its stack, from 0: of cross-attention, some layers may be missing.
        q: float32 (heads, queries, head_dim), as they enter the kernel.
        k: float32 (kv_heads, keys, head_dim); kv_heads divides heads.
        scale: What the products are multiplied by, `head_dim ** -0.5` for most models.
        softcap: The bound of the scaled scores, or None.
        mask: Who may attend to whom, or None.
        bias: float32, what is added to the scores: by distance, (heads or 1, queries + keys - 1), at
            key - query + queries - 1; or dense, (heads or 1, queries, keys).
        sinks: float32 (heads,), the score of one more column of the softmax, which has no value; or None.
        v: float32 (kv_heads, keys, v_dim), what the weights weigh; None where results are not to be shown.
        rotary: How q and k were turned by their positions; None for not at all, or not known.
        weights: float32 (heads, queries, keys), where they are given and not computed; then q and k have a
            head_dim of 0, and there is nothing else: see `LayerRecord.given`.

    Raises:
        InputError: A shape, a type or a number that cannot be drawn; the message names the argument.

    Example:
        >>> q, k = np.random.default_rng(0).standard_normal((2, 3, 7, 5), dtype=np.float32)
        >>> layer = LayerRecord(layer=0, q=q, k=k, scale=5**-0.5, mask=MaskRecord(high=0))
        >>> (layer.heads, layer.queries, layer.keys)
        (3, 7, 7)
    """

    layer: int
    q: npt.NDArray[np.float32]
    k: npt.NDArray[np.float32]
    scale: float
    softcap: float | None = None
    mask: MaskRecord | None = None
    bias: npt.NDArray[np.float32] | None = None
    sinks: npt.NDArray[np.float32] | None = None
    v: npt.NDArray[np.float32] | None = None
    rotary: RotaryRecord | None = None
    weights: npt.NDArray[np.float32] | None = None

    @classmethod
    def given(cls, layer: int, weights: npt.NDArray[np.float32]) -> "LayerRecord":
        """A layer of weights that regard did not compute.

        Args:
            layer: Its number.
            weights: float32 (heads, queries, keys), each at least 0; a row sums to 1 or less.

        Returns:
            The layer.

        Raises:
            InputError: A shape, a type or a number that is no attention; the message says where.

        Example:
            >>> layer = LayerRecord.given(0, np.full((2, 3, 5), 0.2, np.float32))
            >>> (layer.heads, layer.queries, layer.keys)
            (2, 3, 5)
        """
        _check_array("weights", weights)
        if weights.ndim != 3 or 0 in weights.shape:
            raise InputError(
                f"weights: wanted shape (heads, queries, keys), all at least 1, got {weights.shape}; "
                "one layer and one text at a time, without a batch axis"
            )
        heads, queries, keys = weights.shape
        empty = np.empty((heads, queries, 0), np.float32), np.empty((heads, keys, 0), np.float32)
        return cls(layer=layer, q=empty[0], k=empty[1], scale=1.0, weights=weights)

    def __post_init__(self) -> None:
        if self.weights is not None:
            self._check_weights(self.weights)
            return
        for name, array, axes in (("q", self.q, "heads, queries"), ("k", self.k, "kv_heads, keys")):
            _check_array(name, array)
            if array.ndim != 3 or 0 in array.shape:
                raise InputError(
                    f"{name}: wanted shape ({axes}, head_dim), all at least 1, got {array.shape}; "
                    "one layer and one text at a time, without a batch axis"
                )
        if self.heads % len(self.k):
            raise InputError(
                f"k: wanted a number of heads that divides q's {self.heads}, got {len(self.k)}; "
                "q and k must come from the same layer"
            )
        if self.k.shape[2] != self.q.shape[2]:
            raise InputError(
                f"k: wanted q's head_dim {self.q.shape[2]}, got {self.k.shape[2]}; "
                "q and k must come from the same layer"
            )
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(
                f"scale: wanted a finite number above 0, got {self.scale!r}; head_dim ** -0.5 is usual"
            )
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise InputError(f"softcap: wanted a finite number above 0, got {self.softcap!r}; None is no cap")
        self._check_mask()
        if self.bias is not None:
            _check_array("bias", self.bias)
            some = (self.queries + self.keys - 1,) if self.bias.ndim == 2 else (self.queries, self.keys)
            _check_heads("bias", self.bias, self.heads, some)
        if self.sinks is not None:
            _check_array("sinks", self.sinks)
            if self.sinks.shape != (self.heads,):
                raise InputError(
                    f"sinks: wanted shape ({self.heads},), one a head, got {self.sinks.shape}; "
                    "None is no sink"
                )

        if self.v is not None:
            _check_array("v", self.v)
            if self.v.ndim != 3 or self.v.shape[:2] != self.k.shape[:2] or not self.v.shape[2]:
                raise InputError(
                    f"v: wanted shape {(*self.k.shape[:2], 'v_dim')}, got {self.v.shape}; "
                    "k and v must come from the same layer"
                )

    def _check_weights(self, weights: npt.NDArray[np.float32]) -> None:
        _check_array("weights", weights)
        heads, queries, keys = (len(self.q), *self.q.shape[1:2], *self.k.shape[1:2])
        if (self.q.size, self.k.size) != (0, 0) or weights.shape != (heads, queries, keys):
            raise InputError(
                "weights: wanted q and k of head_dim 0 beside them, of their sizes, got weights "
                f"{weights.shape}, q {self.q.shape} and k {self.k.shape}; use LayerRecord.given"
            )
        for name in ("softcap", "mask", "bias", "sinks", "v", "rotary"):
            if getattr(self, name) is not None:
                raise InputError(f"{name}: wanted None beside weights that are given: it is in them already")
        if (weights < 0).any():
            where = tuple(int(i) for i in np.argwhere(weights < 0)[0])
            raise InputError(
                f"weights: wanted numbers from 0 to 1, got {weights[where]:.4g} at (head, query, key) "
                f"{where} of layer {self.layer}; these may be scores: take the softmax over the keys first"
            )
        sums = weights.sum(axis=-1, dtype=np.float64)
        if sums.max() > 1 + _ROUNDED:
            where = tuple(int(i) for i in np.argwhere(sums > 1 + _ROUNDED)[0])
            raise InputError(
                f"weights: wanted rows that sum to 1 or less, got {sums[where]:.4g} at (head, query) {where} "
                f"of layer {self.layer}; the last axis must be the keys"
            )

    def _check_mask(self) -> None:
        if self.mask is None:
            return
        if self.mask.bits is not None:
            _check_heads("mask.bits", self.mask.bits, self.heads, (self.queries, self.keys))
        parts: list[tuple[str, tuple[int, ...], int]] = []
        if self.mask.keys is not None:
            parts.append(("mask.keys", self.mask.keys.shape, self.keys))
        if self.mask.segments is not None:
            of_queries, of_keys = self.mask.segments
            parts.append(("mask.segments", of_queries.shape, self.queries))
            parts.append(("mask.segments", of_keys.shape, self.keys))
        for name, shape, wanted in parts:
            if shape != (wanted,):
                raise InputError(
                    f"{name}: wanted shape ({wanted},), got {shape}; a mask must fit its layer's q and k"
                )

    @property
    def heads(self) -> int:
        """Query heads."""
        return len(self.q)

    @property
    def group(self) -> int:
        """Query heads that share a head of k and v."""
        return self.heads // len(self.k)

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self.q[0])

    @property
    def keys(self) -> int:
        """Number of keys; the sink is none of them."""
        return len(self.k[0])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionRecord:
    """Everything that a page shows of one run.

    Attributes:
        model: The model's name.
        encoder, decoder: What each stack reads; None where the model has none.
        layers: The layers of each kind of attention that there is, in order.
        statistics: Of each head, for the kinds where they are known; the page works out those of the others.
        measures: What can be drawn in the place of the weights.
        left_out: Measures that it does not have, each with the reason.

    Raises:
        InputError: Layers that do not fit their tokens; the message names the argument.
    """

    model: str
    encoder: Side | None = None
    decoder: Side | None = None
    layers: Mapping[RecordKind, tuple[LayerRecord, ...]] = field(default_factory=dict)
    statistics: Mapping[RecordKind, HeadStatistics] = field(default_factory=dict)
    measures: Mapping[RecordKind, tuple[MeasureRecord, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("layers: wanted the layers of at least one kind, got none; give the encoder's")
        for kind, layers in self.layers.items():
            if kind not in KINDS:
                raise InputError(f"layers: wanted kinds of {', '.join(KINDS)}, got {kind!r}; choose one")
            of_queries, of_keys = self.sides(kind)
            if not layers:
                raise InputError(f"layers: wanted at least one {kind} layer, got none; leave the kind out")
            numbers = [each.layer for each in layers]
            if numbers != sorted(set(numbers)) or numbers[0] < 0:
                raise InputError(f"layers: wanted numbers from 0 that grow, got {numbers}; sort them")
            for each in layers:
                for name, found, tokens in (
                    ("q", each.queries, len(of_queries.tokens)),
                    ("k", each.keys, len(of_keys.tokens)),
                ):
                    if found != tokens:
                        raise InputError(
                            f"{name}: wanted {tokens} tokens in {kind} layer {each.layer}, got {found}; "
                            "q, k and tokens must come from the same run on one text"
                        )
            for measure in self.measures.get(kind, ()):
                measure.check(layers)
            heads = max(each.heads for each in layers)
            for name, values in self.statistics.get(kind, {}).items():
                if values.shape != (len(layers), heads):
                    raise InputError(
                        f"statistics: wanted {name} of {kind} attention in shape {(len(layers), heads)}, "
                        f"layers and heads, got {values.shape}; NaN stands for a head that is not there"
                    )

    @property
    def kinds(self) -> tuple[RecordKind, ...]:
        """The kinds of attention that there are, in a fixed order."""
        return tuple(kind for kind in KINDS if kind in self.layers)

    def sides(self, kind: RecordKind) -> tuple[Side, Side]:
        """Whose tokens the queries are, and whose the keys.

        Raises:
            InputError: The record has layers of this kind, and no tokens for them.
        """
        of_queries = self.encoder if kind == "encoder" else self.decoder
        of_keys = self.decoder if kind == "decoder" else self.encoder
        if of_queries is None or of_keys is None:
            missing = "encoder" if kind == "encoder" or of_queries is not None else "decoder"
            raise InputError(f"{missing}: wanted the tokens that {kind} attention reads, got None; give them")
        return of_queries, of_keys


def encoder_record(
    *,
    text: str,
    pair: str | None = None,
    model: str,
    tokens: tuple[PageToken, ...],
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.float32],
    scale: float,
) -> AttentionRecord:
    """The record of a plain encoder, whose layers are alike and have neither mask nor bias.

    Args:
        text, pair, tokens: As in `Side`.
        model: The model's name.
        q: float32 (layers, heads, tokens, head_dim).
        k: float32 (layers, kv_heads, tokens, head_dim).
        scale: As in `LayerRecord`.

    Returns:
        The record.

    Raises:
        InputError: As `LayerRecord` and `AttentionRecord`.

    Example:
        >>> q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 3, 5), dtype=np.float32)
        >>> tokens = tuple(PageToken(text=text, sequence=0) for text in ("a", "river", "bank"))
        >>> record = encoder_record(text="a river bank", model="tiny", tokens=tokens, q=q, k=k, scale=5**-0.5)
        >>> record.kinds, record.layers["encoder"][0].heads
        (('encoder',), 2)
    """
    for name, array in (("q", q), ("k", k)):
        _check_array(name, array)
        if array.ndim != 4 or 0 in array.shape:
            raise InputError(
                f"{name}: wanted shape (layers, heads, tokens, head_dim), all at least 1, got {array.shape}; "
                "one text at a time, without a batch axis"
            )
    if len(q) != len(k):
        raise InputError(f"k: wanted {len(q)} layers as q has, got {len(k)}; take both from the same run")
    layers = tuple(LayerRecord(layer=layer, q=q[layer], k=k[layer], scale=scale) for layer in range(len(q)))
    side = Side(text=text, pair=pair, tokens=tokens)
    return AttentionRecord(model=model, encoder=side, layers={"encoder": layers})


def _check_array(name: str, array: npt.NDArray[np.float32]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        got = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"{name}: wanted a float32 numpy array, got {got}; convert with astype(np.float32)")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(
            f"{name}: wanted finite numbers, got {array[where]} at {where}; "
            "the model overflowed: run it in float32"
        )


def _check_heads(
    name: str, array: npt.NDArray[np.float32] | npt.NDArray[np.bool_], heads: int, sizes: tuple[int, ...]
) -> None:
    if array.ndim != len(sizes) + 1 or array.shape[1:] != sizes or array.shape[0] not in (1, heads):
        raise InputError(
            f"{name}: wanted shape {(heads, *sizes)}, or 1 in place of {heads}, got {array.shape}; "
            "it must fit its layer's q and k"
        )
