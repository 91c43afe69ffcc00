"""One attention layer as the views are given it: q, k, scale, mask, bias, in plain arrays, checked."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._position_records import RotaryRecord

# What bfloat16 may make of a row's sum.
_ROUNDED = 5e-3


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
        check_array("weights", weights)
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
            check_array(name, array)
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
            check_array("bias", self.bias)
            some = (self.queries + self.keys - 1,) if self.bias.ndim == 2 else (self.queries, self.keys)
            _check_heads("bias", self.bias, self.heads, some)
        if self.sinks is not None:
            check_array("sinks", self.sinks)
            if self.sinks.shape != (self.heads,):
                raise InputError(
                    f"sinks: wanted shape ({self.heads},), one a head, got {self.sinks.shape}; "
                    "None is no sink"
                )

        if self.v is not None:
            check_array("v", self.v)
            if self.v.ndim != 3 or self.v.shape[:2] != self.k.shape[:2] or not self.v.shape[2]:
                raise InputError(
                    f"v: wanted shape {(*self.k.shape[:2], 'v_dim')}, got {self.v.shape}; "
                    "k and v must come from the same layer"
                )

    def _check_weights(self, weights: npt.NDArray[np.float32]) -> None:
        check_array("weights", weights)
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


def check_array(name: str, array: npt.NDArray[np.float32]) -> None:
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
