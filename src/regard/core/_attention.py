"""Scaled dot-product attention, step by step: the record of its inputs and every quantity between.

Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, Vaswani et al. 2017 (arXiv 1706.03762), equation 1; with,
where given, a soft cap (Gemma 2, arXiv 2408.00118, section 2), an additive bias, a mask and dropout:

    scores        = q k^T
    scaled_scores = scale * scores;  softcap * tanh(scaled / softcap);  + bias
    masked_scores = scaled_scores, -inf where the mask forbids
    weights       = softmax(masked_scores), in float32 or wider; all zero in a row that may attend to nothing
    context       = dropout(weights) v
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.core._bias import Bias, DenseBias
from regard.core._dropout import Dropout
from regard.core._masks import Causal, Conjunction, Mask, Padding, Segments, Window
from regard.core._taps import Taps
from regard.core.errors import InputError


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
        scale: factor of q k^T; by default 1 / sqrt(head_dim).
        softcap: bound c of the scaled scores, c * tanh(score / c).
        dropout: which weights survive; None keeps all.

    Raises:
        InputError: shapes, dtypes or devices that do not fit together.

    Example:
        >>> import torch
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
    scale: float | None = None
    softcap: float | None = None
    dropout: Dropout | None = None

    def __post_init__(self) -> None:
        for name, tensor in (("q", self.q), ("k", self.k), ("v", self.v)):
            if tensor.ndim != 4 or not tensor.is_floating_point():
                raise InputError(
                    f"{name} must be floating point of shape (batch, heads, positions, dim); "
                    f"got {tensor.dtype} of shape {tuple(tensor.shape)}."
                )
            if tensor.dtype != self.q.dtype or tensor.device != self.q.device:
                raise InputError(
                    f"q, k and v must share dtype and device; q is {self.q.dtype} on {self.q.device}, "
                    f"{name} is {tensor.dtype} on {tensor.device}."
                )
        batch, kv_heads, keys = self.q.shape[0], self.k.shape[1], self.k.shape[2]
        if self.k.shape != (batch, kv_heads, keys, self.q.shape[3]):
            raise InputError(
                "k must have q's batch and head_dim, (batch, kv_heads, keys, head_dim) = "
                f"({batch}, {kv_heads}, {keys}, {self.q.shape[3]}); got {tuple(self.k.shape)}."
            )
        if self.v.shape[:3] != self.k.shape[:3]:
            raise InputError(
                f"v must have k's batch, heads and positions {tuple(self.k.shape[:3])}; "
                f"got {tuple(self.v.shape[:3])}."
            )
        if kv_heads == 0 or self.num_heads % kv_heads:
            raise InputError(
                f"the heads of k and v must divide those of q; got {kv_heads} and {self.num_heads}."
            )
        if 0 in self.q.shape or 0 in self.v.shape:
            raise InputError(
                "q, k and v must hold at least one position, head and dimension; "
                f"got q {tuple(self.q.shape)}, v {tuple(self.v.shape)}."
            )
        if self.scale is not None and not math.isfinite(self.scale):
            raise InputError(f"scale must be a finite number; got {self.scale}.")
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise InputError(
                f"softcap must be finite and greater than 0, or None for no cap; got {self.softcap}."
            )
        if self.mask is not None:
            self.mask.check(batch=batch, q_len=self.q_len, k_len=keys)
        if isinstance(self.bias, Tensor):
            dense = DenseBias(self.bias)
            dense.check(batch=batch, heads=self.num_heads, q_len=self.q_len, k_len=keys)
            object.__setattr__(self, "bias", dense)

    def __repr__(self) -> str:
        given = [name for name in ("mask", "bias", "softcap", "dropout") if getattr(self, name) is not None]
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
    def factor(self) -> float:
        """The scale in force: the given one, or 1 / sqrt(head_dim)."""
        return 1.0 / math.sqrt(self.q.shape[3]) if self.scale is None else self.scale

    def head(self, index: int) -> "AttentionInputs":
        """The same attention with one query head only: q, k and v are views, mask and bias are narrowed."""
        if not -self.num_heads <= index < self.num_heads:
            raise InputError(
                f"head must be from 0 to {self.num_heads - 1}, or negative to count from the end; "
                f"got {index}."
            )
        index %= self.num_heads
        kv = index // (self.num_heads // self.k.shape[1])
        return replace(
            self,
            q=self.q[:, index : index + 1],
            k=self.k[:, kv : kv + 1],
            v=self.v[:, kv : kv + 1],
            mask=None if self.mask is None else _mask_of_head(self.mask, index),
            bias=None if self.bias is None else _BiasOfHead(_as_object(self.bias), index),
            dropout=None if self.dropout is None else _DropoutOfHead(self.dropout, self.num_heads, index),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Attention:
    """Every quantity of attention by name; the matrices are (batch, heads, queries, keys).

    Args:
        scores: q k^T.
        scaled_scores: scaled, capped, biased.
        masked_scores: the softmax's exact argument, -inf where the mask forbids.
        weights: the softmax; a row sums to 1, or is all zero where the query may attend to nothing.
        context: (batch, heads, queries, v_dim), the weighted values, after dropout on the weights.
    """

    scores: Tensor
    scaled_scores: Tensor
    masked_scores: Tensor
    weights: Tensor
    context: Tensor


Positions = range | Tensor
"""Some positions: a range, read without a copy where its step is 1, or an int64 tensor (n,) in any order."""


def reference_attention(
    inputs: AttentionInputs, taps: Taps | None = None, *, queries: Positions | None = None
) -> Attention:
    """Attention with all intermediates, in float32 or wider; O(N^2) memory.

    Args:
        inputs: the record; see `AttentionInputs`.
        taps: listeners at `scores` (the masked scores) and `weights`, who may change them.
        queries: only these rows; by default all.

    Returns:
        The five quantities; `context` has the dtype of v.

    Example:
        >>> import torch
        >>> one_head = torch.eye(2)[None, None]
        >>> reference_attention(AttentionInputs(q=one_head, k=one_head, v=one_head, scale=0.0)).weights
        tensor([[[[0.5000, 0.5000],
                  [0.5000, 0.5000]]]])
    """
    inputs = silence_padding(inputs)
    device = inputs.q.device
    rows = check_positions("queries", queries, inputs.q_len)
    return attend_rows(
        inputs,
        take(inputs.q, rows, dim=2),
        inputs.k,
        inputs.v,
        as_tensor(rows, device),
        torch.arange(inputs.k_len, device=device),
        taps,
    )


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The type that scores and weights of such a tensor are given in."""
    return torch.promote_types(tensor.dtype, torch.float32)


def attend_rows(
    inputs: AttentionInputs,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    columns: Tensor,
    taps: Taps | None = None,
) -> Attention:
    """The arithmetic of attention for some queries over some keys: all that any of them may see.

    Args:
        inputs: the record, for everything but its q, k and v.
        q, k, v: what the record has at these positions, padding silenced.
        rows, columns: int64, the positions of q and of k and v.
        taps: listeners at `scores` (the masked scores) and `weights`, who may change them.
    """
    scores, scaled, masked = score_rows(inputs, q, k, rows, columns)
    if taps is not None:
        masked = taps.offer("scores", masked)
    weights = softmax_or_zero(masked)
    if taps is not None:
        weights = taps.offer("weights", weights)
    kept = weights
    if inputs.dropout is not None:
        keep = inputs.dropout.keep(batch=q.shape[0], heads=inputs.num_heads, queries=rows, keys=columns)
        kept = weights * keep / (1.0 - inputs.dropout.p)
    context = kept @ expand_heads(v, inputs.num_heads).to(weights.dtype)
    return Attention(
        scores=scores,
        scaled_scores=scaled,
        masked_scores=masked,
        weights=weights,
        context=context.to(v.dtype),
    )


def silence_padding(inputs: AttentionInputs) -> AttentionInputs:
    """Set keys and values that padding excludes to zero, so that a NaN or 1e30 left there reaches nothing.

    Their weight is zero, but 0 * NaN is NaN, forward and backward; `where` cuts both.
    """
    real = padding_of(inputs)
    if real is None:
        return inputs
    keep = real[:, None, :, None]
    return replace(inputs, k=torch.where(keep, inputs.k, 0.0), v=torch.where(keep, inputs.v, 0.0))


def padding_of(inputs: AttentionInputs) -> Tensor | None:
    """bool (batch or 1, keys), the conjunction of the mask's padding parts; None where there is none."""
    real: Tensor | None = None
    for part in () if inputs.mask is None else inputs.mask.parts():
        if isinstance(part, Padding):
            real = part.real if real is None else real & part.real
    return real


def expand_heads(tensor: Tensor, num_heads: int) -> Tensor:
    """Repeat key or value heads so that query head h finds its own at h (grouped heads, arXiv 2305.13245)."""
    return (
        tensor
        if tensor.shape[1] == num_heads
        else tensor.repeat_interleave(num_heads // tensor.shape[1], dim=1)
    )


def mask_block(inputs: AttentionInputs, rows: Tensor, columns: Tensor) -> Tensor | None:
    """The mask of some rows and columns, bool, its last two axes (rows, columns); None without a mask."""
    if inputs.mask is None:
        return None
    block = _checked_block("mask", inputs.mask.block(rows, columns), inputs, rows, columns)
    return block.expand(-1, -1, len(rows), len(columns))


def _checked_block(
    name: str, block: Tensor, inputs: AttentionInputs, rows: Tensor, columns: Tensor
) -> Tensor:
    wanted = (inputs.q.shape[0], inputs.num_heads, len(rows), len(columns))
    if block.ndim != 4 or any(size not in (1, full) for size, full in zip(block.shape, wanted, strict=True)):
        raise InputError(
            f"the {name} must give blocks that broadcast to (batch, heads, rows, columns) = {wanted}; "
            f"got shape {tuple(block.shape)}."
        )
    return block


def score_rows(
    inputs: AttentionInputs, q: Tensor, k: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, scaled scores and masked scores of q over k, which stand at `rows` and `columns`."""
    # float32 or wider: half precision would round the scores before the softmax magnifies the rounding.
    wide = at_least_float32(q)
    scores = q.to(wide) @ expand_heads(k, inputs.num_heads).to(wide).mT
    scaled = scores * inputs.factor
    if inputs.softcap is not None:
        scaled = inputs.softcap * torch.tanh(scaled / inputs.softcap)
    if inputs.bias is not None:
        bias = _as_object(inputs.bias).block(rows, columns)
        scaled = scaled + _checked_block("bias", bias, inputs, rows, columns)
    allowed = mask_block(inputs, rows, columns)
    if allowed is None:
        return scores, scaled, scaled
    return scores, scaled, scaled.masked_fill(~allowed, float("-inf"))


def softmax_or_zero(masked_scores: Tensor) -> Tensor:
    """Softmax over the last axis; a row of -inf gives zeros, with zero gradient, where softmax gives NaN."""
    empty = (masked_scores == float("-inf")).all(dim=-1, keepdim=True)
    weights = torch.softmax(masked_scores.masked_fill(empty, 0.0), dim=-1)
    return weights.masked_fill(empty, 0.0)


def check_positions(name: str, positions: Positions | None, length: int) -> Positions:
    """The positions asked for, all of them by default; InputError where one is not there."""
    if positions is None:
        return range(length)
    if isinstance(positions, Tensor):
        if positions.ndim != 1 or positions.dtype != torch.int64:
            raise InputError(
                f"{name} must be a range or an int64 tensor of shape (n,); "
                f"got {positions.dtype} of shape {tuple(positions.shape)}."
            )
        ends = [] if not len(positions) else [int(positions.min()), int(positions.max())]
    else:
        ends = [] if not positions else [positions[0], positions[-1]]
    for end in ends:
        if not 0 <= end < length:
            raise InputError(f"{name} must be from 0 to {length - 1}; got {end}.")
    return positions


def take(tensor: Tensor, positions: Positions, dim: int) -> Tensor:
    """Some positions of an axis: a view where they are a plain range."""
    if isinstance(positions, range) and positions.step == 1 and positions:
        return tensor.narrow(dim, positions.start, len(positions))
    return tensor.index_select(dim, as_tensor(positions, tensor.device))


def as_tensor(positions: Positions, device: torch.device) -> Tensor:
    """The positions as int64 (n,)."""
    if isinstance(positions, range):
        return torch.arange(positions.start, positions.stop, positions.step, device=device)
    return positions


def _as_object(bias: Bias | Tensor) -> Bias:
    return DenseBias(bias) if isinstance(bias, Tensor) else bias


def learned_by(bias: Bias | Tensor, device: torch.device) -> tuple[Tensor, ...]:
    """What the bias says that it learns; refused where it has a gradient for what it does not name."""
    bias = _as_object(bias)
    learned = bias.learned()
    origin = torch.zeros(1, dtype=torch.int64, device=device)
    if bias.block(origin, origin).requires_grad and not any(tensor.requires_grad for tensor in learned):
        raise InputError(
            "the bias must name in `learned` the tensors that its blocks have gradients for; "
            f"{type(bias).__name__} names none."
        )
    return learned


def _of_head(block: Tensor, index: int) -> Tensor:
    return block if block.shape[1] == 1 else block[:, index : index + 1]


def _mask_of_head(mask: Mask, index: int) -> Mask:
    # Masks that are the same for all heads stay themselves: padding must still be found, and silenced.
    parts = [
        part if isinstance(part, _SAME_FOR_ALL_HEADS) else _MaskOfHead(part, index) for part in mask.parts()
    ]
    return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))


_SAME_FOR_ALL_HEADS = (Padding, Causal, Window, Segments)


@dataclass(frozen=True, eq=False)
class _MaskOfHead(Mask):
    mask: Mask
    index: int

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return _of_head(self.mask.block(queries, keys), self.index)

    def key_range(self, first_query: int, last_query: int, k_len: int) -> tuple[int, int]:
        return self.mask.key_range(first_query, last_query, k_len)


@dataclass(frozen=True, eq=False)
class _BiasOfHead:
    bias: Bias
    index: int

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        return _of_head(self.bias.block(queries, keys), self.index)

    def learned(self) -> tuple[Tensor, ...]:
        return self.bias.learned()


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
