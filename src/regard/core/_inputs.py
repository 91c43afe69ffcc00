"""The record of what a head's attention is a function of, and the same record for one head alone."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from regard.core._cache import KeyValueCache
from regard.core._dropout import Dropout
from regard.core._masks import Causal, Conjunction, DilatedWindow, Mask, Padding, Segments, Window
from regard.core._scorers import Bias, BiasOfHeads, DenseBias, Dot, ScaledDot, Scorer
from regard.core.arguments import index_of
from regard.core.errors import InputError

_SCALED_DOT = ScaledDot()


class Kernel(ABC):
    """What makes contexts of a record in another way than softmax(scores) v: cheaper attention.

    Those that regard has are in `regard.blocks.attentions`. One of your own has a `name` and `__call__`, and
    the other methods where they say something else.
    """

    name: ClassVar[str]
    """What messages call it."""

    @abstractmethod
    def __call__(self, inputs: "AttentionInputs") -> Tensor:
        """The context, (batch, heads, queries, v_dim), in the dtype of v.

        Raises:
            InputError: a mask, bias, soft cap, dropout or sinks that it cannot take.
        """

    def weights(self, inputs: "AttentionInputs", queries: Tensor) -> Tensor:
        """The weights by which it sums the values: float64 (batch, heads, queries, keys), of some queries.

        Raises:
            InputError: it has no weight for each query and key, as here.
        """
        del inputs, queries
        raise InputError(
            f"this attention layer is {self.name}, which has no weight for each query and key; ask for "
            "context, q, k or v, or for a model with softmax attention."
        )

    def new_cache(self, *, window: int | None = None, back: int = 0) -> KeyValueCache:
        """What a layer with it keeps of the positions that it reads, empty; as of `KeyValueCache`."""
        return KeyValueCache(window=window, back=back)

    def after(self, cache: KeyValueCache) -> "Kernel":
        """The kernel for what comes after the positions in a cache, to which the new ones are added."""
        # Most kernels count from the first key that they are handed.
        del cache
        return self


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AttentionInputs:
    """Everything that a head's attention is a function of; O(N) numbers stand for the N x N weights.

    Args:
        q: (batch, heads, queries, head_dim), floating point.
        k: (batch, kv_heads, keys, head_dim); query head h reads head h // (heads // kv_heads).
        v: (batch, kv_heads, keys, v_dim); v_dim may differ from head_dim.
        mask: who may attend to whom; None lets every query attend to every key.
        bias: added to the scaled scores: a tensor with four axes that broadcast to
            (batch, heads, queries, keys), or an object with a `block` method.
        scorer: what makes the scores of queries and keys: the dot product, or `Additive`, `Bilinear`,
            `Cosine`.
        scale: factor of the scores; by default the scorer's, 1 / sqrt(head_dim) for the dot product.
        softcap: bound c of the scaled scores, c * tanh(score / c).
        dropout: which weights survive; None keeps all.
        sinks: (heads,), a score that every query of the head gives to nothing (gpt-oss, arXiv 2508.10925,
            section 2.2): one more column in the softmax, after the keys and without a value. What is told
            of the softmax (masked scores, weights) has it, at position `keys`.
        weights: (batch, written heads, queries, columns), what an edit put in the place of the softmax's, or
            made of it: these heads' contexts are these weights times v, and q and k tell them no scores.
            Whatever would compute their scores from q and k raises then; `attention_weights` gives these.
        written: which heads these are, in order; None for all.
        kernel: what made the context, where it was no softmax of scores; None where it was. It may still have
            weights, which `attention_weights` gives; whatever would compute scores from q and k raises.

    Raises:
        InputError: shapes, dtypes or devices that do not fit together.

    Example:
        >>> from regard.core import AttentionInputs
        >>> import torch
        >>> from regard.core import reference_attention
        >>> inputs = AttentionInputs(q=torch.randn(1, 2, 3, 5), k=torch.randn(1, 2, 7, 5),
        ...                          v=torch.randn(1, 2, 7, 11))
        >>> reference_attention(inputs).context.shape
        torch.Size([1, 2, 3, 11])
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask | None = None
    bias: Bias | Tensor | None = None
    scorer: Scorer = _SCALED_DOT
    scale: float | None = None
    softcap: float | None = None
    dropout: Dropout | None = None
    sinks: Tensor | None = None
    weights: Tensor | None = None
    written: tuple[int, ...] | None = None
    kernel: Kernel | None = None

    def __post_init__(self) -> None:
        # One comparison where all is well: this runs in every layer of every forward pass.
        # All conditions on q, k and v at once; only a failure asks which it was.
        q, k, v = self.q, self.k, self.v
        fits = (
            q.ndim == k.ndim == v.ndim == 4
            and q.dtype == k.dtype == v.dtype
            and q.is_floating_point()
            and q.device == k.device == v.device
        )
        if fits:
            batch, heads, q_len, head_dim = q.shape
            kv_batch, kv_heads, k_len, k_dim = k.shape
            fits = (
                kv_batch == batch
                and k_dim == head_dim
                and v.shape[:3] == k.shape[:3]
                and kv_heads > 0
                and heads % kv_heads == 0
                # No axis is empty.
                and batch * heads * q_len * head_dim * k_len * v.shape[3] > 0
            )
        if not fits:
            # It always raises: below, the sizes are bound.
            _refuse(q, k, v)
        # The rest costs nothing where it is None, as it mostly is.
        self.scorer.check(heads, head_dim)
        if self.kernel is not None and self.scorer != _SCALED_DOT:
            raise InputError(
                f"scorer must be left out beside a kernel: {self.kernel.name} makes contexts by itself, and "
                f"does not ask {type(self.scorer).__name__}."
            )
        if self.scale is not None and not math.isfinite(self.scale):
            raise InputError(f"scale must be a finite number; got {self.scale}.")
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise InputError(
                f"softcap must be finite and greater than 0, or None for no cap; got {self.softcap}."
            )
        if self.mask is not None:
            self.mask.check(batch=batch, q_len=q_len, k_len=k_len)
        if isinstance(self.bias, Tensor):
            dense = DenseBias(self.bias)
            dense.check(batch=batch, heads=heads, q_len=q_len, k_len=k_len)
            # The class is frozen; from here on a bias is always an object.
            object.__setattr__(self, "bias", dense)
        sinks = self.sinks
        if sinks is not None and (
            sinks.shape != (heads,) or not sinks.is_floating_point() or sinks.device != q.device
        ):
            raise InputError(
                f"sinks must be floating point of shape (heads,) = ({heads},) on {q.device}; "
                f"got {sinks.dtype} of shape {tuple(sinks.shape)} on {sinks.device}."
            )
        wanted = (batch, len(self.written_heads), q_len, self.num_columns)
        if self.weights is not None and self.weights.shape != wanted:
            raise InputError(
                f"weights must have shape (batch, written heads, queries, columns) = {wanted}; "
                f"got {tuple(self.weights.shape)}."
            )

    def __repr__(self) -> str:
        names = ("mask", "bias", "softcap", "dropout", "sinks", "weights")
        given = [name for name in names if getattr(self, name) is not None]
        if self.scorer != _SCALED_DOT:
            given.append(f"scorer {type(self.scorer).__name__}")
        shapes = ", ".join(f"{name} {tuple(getattr(self, name).shape)}" for name in "qkv")
        return f"AttentionInputs({', '.join([shapes, f'scale {self.factor:.6g}', *given])})"

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.q.shape[1]

    @property
    def q_len(self) -> int:
        """Number of queries."""
        return self.q.shape[2]

    @property
    def k_len(self) -> int:
        """Number of keys."""
        return self.k.shape[2]

    @property
    def num_columns(self) -> int:
        """Columns of the softmax: one for each key, and one for the sink where there is one."""
        return self.k_len + (self.sinks is not None)

    @property
    def factor(self) -> float:
        """The scale in force: the given one, or the scorer's."""
        return self.scorer.scale(self.q.shape[3]) if self.scale is None else self.scale

    def as_dot_product(self) -> "AttentionInputs | None":
        """The record whose scores are dot products, the same numbers; None where no dot product gives them.

        Its q and k are in float32 or wider where the scorer had to make them of the record's own.
        """
        # For a cosine, say, the vectors of length 1.
        operands = self.scorer.operands(self.q, self.k)
        if operands is None:
            return None
        q, k = operands
        if q is self.q and k is self.k:
            return self
        # The scorer's own scale is kept: `factor` is asked of the old scorer.
        return self.changed(q=q, k=k, scorer=Dot(), scale=self.factor)

    @property
    def written_heads(self) -> tuple[int, ...]:
        """The heads whose weights an edit wrote; () where none did."""
        if self.weights is None:
            return ()
        return tuple(range(self.num_heads)) if self.written is None else self.written

    def unwritten(self) -> "AttentionInputs":
        """The record as q and k tell it, without what an edit wrote."""
        return self if self.weights is None else self.changed(weights=None, written=None)

    def require_scores(self) -> None:
        """What every function asks that computes scores or weights of all heads from q and k.

        Raises:
            InputError: some weights were written, and are no function of q and k; or no softmax made them.
        """
        if self.kernel is not None:
            raise InputError(
                f"this attention layer is {self.kernel.name}, whose context is no softmax of scores, so that "
                "it has none to show; ask for context, q, k or v, or for a model with softmax attention."
            )
        if self.weights is not None:
            heads = ", ".join(map(str, self.written_heads))
            others = "for another head or layer" if self.written else "for another layer"
            raise InputError(
                f"an edit wrote the weights of this attention layer, of head {heads}, so q and k do not "
                f"give them; ask for weights or context, {others}, or for a trace of the model without the "
                "edit."
            )

    def changed(self, **fields: object) -> "AttentionInputs":
        """The record with other fields that are known to fit: `replace` would check them all again."""
        # Without `__init__`, so that nothing is checked.
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.__dict__.update(fields)
        return copy

    def head(self, index: int) -> "AttentionInputs":
        """The same attention with one query head only: q, k and v are views, mask and bias are narrowed."""
        index = index_of("head", index, self.num_heads)
        # The key head that this query head reads.
        kv = index // (self.num_heads // self.k.shape[1])
        written = None
        # `weights` has a place for each written head, in their order.
        if self.weights is not None and index in self.written_heads:
            written = self.weights[:, [self.written_heads.index(index)]]
        return replace(
            self,
            q=self.q[:, index : index + 1],
            k=self.k[:, kv : kv + 1],
            v=self.v[:, kv : kv + 1],
            mask=None if self.mask is None else _mask_of_head(self.mask, index),
            bias=None if self.bias is None else BiasOfHeads(as_object(self.bias), (index,)),
            scorer=self.scorer.of_heads((index,)),
            dropout=None if self.dropout is None else _DropoutOfHead(self.dropout, self.num_heads, index),
            sinks=None if self.sinks is None else self.sinks[index : index + 1],
            weights=written,
            written=None,
        )


def _refuse(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise the InputError that says what does not fit."""
    # From the roughest fault to the finest, so that the first message helps.
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim != 4 or not tensor.is_floating_point():
            raise InputError(
                f"{name} must be floating point of shape (batch, heads, positions, dim); "
                f"got {tensor.dtype} of shape {tuple(tensor.shape)}."
            )
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise InputError(
                f"q, k and v must share dtype and device; q is {q.dtype} on {q.device}, "
                f"{name} is {tensor.dtype} on {tensor.device}."
            )
    batch, kv_heads, keys = q.shape[0], k.shape[1], k.shape[2]
    if k.shape != (batch, kv_heads, keys, q.shape[3]):
        raise InputError(
            "k must have q's batch and head_dim, (batch, kv_heads, keys, head_dim) = "
            f"({batch}, {kv_heads}, {keys}, {q.shape[3]}); got {tuple(k.shape)}."
        )
    if v.shape[:3] != k.shape[:3]:
        raise InputError(
            f"v must have k's batch, heads and positions {tuple(k.shape[:3])}; got {tuple(v.shape[:3])}."
        )
    if kv_heads == 0 or q.shape[1] % kv_heads:
        raise InputError(f"the heads of k and v must divide those of q; got {kv_heads} and {q.shape[1]}.")
    raise InputError(
        "q, k and v must hold at least one position, head and dimension; "
        f"got q {tuple(q.shape)}, v {tuple(v.shape)}."
    )


def as_object(bias: Bias | Tensor) -> Bias:
    """A bias that came as a tensor, as an object."""
    return DenseBias(bias) if isinstance(bias, Tensor) else bias


def padding_of(mask: Mask | None) -> Tensor | None:
    """bool (batch or 1, keys), the conjunction of the mask's padding parts; None where there is none."""
    real: Tensor | None = None
    for part in () if mask is None else mask.parts():
        if isinstance(part, Padding):
            real = part.real if real is None else real & part.real
    return real


def silence_padding(mask: Mask | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Set keys and values that padding excludes to zero, so that a NaN or 1e30 left there reaches nothing.

    Their weight is zero, but 0 * NaN is NaN, forward and backward; `where` cuts both.
    """
    real = padding_of(mask)
    return (k, v) if real is None else (_silenced(k, real), _silenced(v, real))


def silence_keys(mask: Mask | None, k: Tensor) -> Tensor:
    """The same of the keys alone, of which scores are made: a record may come without values."""
    real = padding_of(mask)
    return k if real is None else _silenced(k, real)


def _silenced(tensor: Tensor, real: Tensor) -> Tensor:
    return torch.where(real[:, None, :, None], tensor, 0.0)


def _of_head(block: Tensor, index: int) -> Tensor:
    return block if block.shape[1] == 1 else block[:, index : index + 1]


def _mask_of_head(mask: Mask, index: int) -> Mask:
    # Masks that are the same for all heads stay themselves: padding must still be found, and silenced.
    # A mask by head becomes the mask of this head.
    parts = [
        part if isinstance(part, _SAME_FOR_ALL_HEADS) else _MaskOfHead(part, index) for part in mask.parts()
    ]
    return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))


_SAME_FOR_ALL_HEADS = (Padding, Causal, Window, DilatedWindow, Segments)


@dataclass(frozen=True, eq=False)
class _MaskOfHead(Mask):
    mask: Mask
    index: int

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return _of_head(self.mask.block(queries, keys), self.index)

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        return self.mask.key_range(first_query, last_query, k_len)


@dataclass(frozen=True, eq=False)
class _DropoutOfHead:
    dropout: Dropout
    num_heads: int
    index: int

    @property
    def p(self) -> float:
        return self.dropout.p

    def keep(self, *, batch: int, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        return _of_head(
            self.dropout.keep(batch=batch, heads=self.num_heads, queries=queries, keys=keys), self.index
        )
