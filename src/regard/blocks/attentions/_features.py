"""Attention whose weights are products of features, phi(q) . phi(k): linear in the length, with a state.

    context_i = sum_j phi(q_i).phi(k_j) v_j / sum_j phi(q_i).phi(k_j)
              = phi(q_i) S / (phi(q_i) z),      S = sum_j phi(k_j) v_j^T,  z = sum_j phi(k_j)

The sums are over the keys that a query may see: over all of them they are one matrix for all queries, and in
causal attention S and z grow from position to position, as the state of a recurrent network does. Here they
stand in one matrix, with ones as one more dimension of v.

Source: Katharopoulos et al. 2020, arXiv 2006.16236, equations 4 to 6, and 9 to 12 for the causal form.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import elu, pad

from regard.core import AttentionInputs, Causal, Kernel, KeyValueCache, Padding, ScaledDot, padding_of
from regard.core.arguments import Count, Limited
from regard.core.errors import InputError

# Queries that are worked on together in causal attention: within them weights are written out.
_CHUNK = 128


class Features(NamedTuple):
    """Features, none of them below 0, or sums of them, and the logarithm of a factor that was taken out.

    Each key has a factor of its own, so that what a query reads depends on no key that it may not see.

    Args:
        values: (batch, heads, positions, features); of sums (batch, heads, features, v_dim + 1).
        log_factor: (batch, heads, positions, 1), of sums (batch, heads, 1, 1): the features are
            values x exp(log_factor).
    """

    values: Tensor
    log_factor: Tensor


class FeatureKernel(Kernel):
    """A kernel with features; the family's subclasses say which.

    Masks may be `Causal` and `Padding`. Bias, soft cap, dropout of weights and sinks are refused: they belong
    to a softmax.
    """

    @abstractmethod
    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        """phi(q), (batch, heads, positions, features), each row up to a factor above 0."""

    @abstractmethod
    def of_keys(self, k: Tensor, scale: float) -> Features:
        """phi(k)."""

    def __call__(self, inputs: AttentionInputs) -> Tensor:
        return self._context(inputs, None)

    def weights(self, inputs: AttentionInputs, queries: Tensor) -> Tensor:
        """phi(q).phi(k), normalised over the keys that a query may see; see `Kernel.weights`."""
        offset = _causal_offset(inputs, self.name)
        q, k = inputs.q[:, :, queries].double(), inputs.k.double()
        q, (k, log_factor), _ = self._parts(inputs.changed(q=q, k=k), of_values=False)
        keys = torch.arange(inputs.k_len, device=q.device)
        hidden = keys < 0 if offset is None else ~Causal(offset).block(queries, keys)
        logs = log_factor.mT.masked_fill(hidden, _none(k))
        raw = q @ k.mT * (logs - logs.amax(dim=3, keepdim=True)).exp().masked_fill(hidden, 0.0)
        return _divided(raw, raw.sum(dim=3, keepdim=True))

    def new_cache(self, *, window: int | None = None, back: int = 0) -> "SumsCache":
        """A state whose size does not depend on what was read; see `SumsCache`."""
        if window is not None:
            raise InputError(f"a window cannot be kept by {self.name}, which sums all keys before.")
        return SumsCache(back=back)

    def after(self, cache: KeyValueCache) -> Kernel:
        """The kernel that goes on from a `SumsCache`; of a plain cache all keys are read again."""
        return Continued(self, cache) if isinstance(cache, SumsCache) else self

    def _context(self, inputs: AttentionInputs, cache: "SumsCache | None") -> Tensor:
        offset = _causal_offset(inputs, self.name)
        with torch.autocast(inputs.q.device.type, enabled=False):
            q, k, v = self._parts(inputs)
            before = None if cache is None else cache.sums
            if cache is not None:
                cache.fold(k, v)
            sums = q @ _summed(k, v, before).values if offset is None else _causal(q, k, v, offset, before)
            return _divided(sums[..., :-1], sums[..., -1:]).to(inputs.v.dtype)

    def _parts(self, inputs: AttentionInputs, *, of_values: bool = True) -> tuple[Tensor, Features, Tensor]:
        """phi(q), phi(k), and v with ones as one more dimension; zero at padding, in float32 or wider."""
        wide = torch.promote_types(inputs.q.dtype, torch.float32)
        real, group = padding_of(inputs.mask), inputs.num_heads // inputs.k.shape[1]
        k = inputs.k.to(wide)
        v = pad(inputs.v.to(wide), (0, 1), value=1.0) if of_values else k
        if real is not None:
            k, v = (torch.where(real[:, None, :, None], each, 0.0) for each in (k, v))
        values, log_factor = self.of_keys(k, inputs.factor)
        if real is not None:
            values = torch.where(real[:, None, :, None], values, 0.0)
            log_factor = torch.where(real[:, None, :, None], log_factor, _none(values))
        q = self.of_queries(inputs.q.to(wide), inputs.factor)
        if group > 1:
            values, log_factor, v = (x.repeat_interleave(group, dim=1) for x in (values, log_factor, v))
        return q, Features(values, log_factor), v


class SumsCache(KeyValueCache):
    """The sums S and z of what was read, in place of its keys and values: O(1) memory and time a token.

    Args:
        back: how many positions can be taken back by `cut`: so many keys are not summed yet.

    Attributes:
        sums: (batch, heads, features, v_dim + 1), S with z as its last column; None before the first.

    Source: Katharopoulos et al. 2020, arXiv 2006.16236, section 3.4, equations 16 to 20.
    """

    def __init__(self, *, back: int = 0) -> None:
        super().__init__(back=back)
        self.sums: Features | None = None
        self._summed = 0  # positions that are in the sums

    @property
    def first(self) -> int:
        """The position of the first key that is not summed yet."""
        return self._summed

    def fold(self, k: Features, v: Tensor) -> None:
        """Take the keys that need not be taken back into the sums.

        Args:
            k, v: features and values of the positions from `first` on, the new ones last.
        """
        count = max(0, self.length - self.back - self._summed)
        if not count:
            return
        self.sums = _summed(Features(*(each[:, :, :count] for each in k)), v[:, :, :count], self.sums)
        self._summed += count
        # What is summed is read no more.
        kept_k, kept_v = self.since(self._summed)
        self._held, self._base = (kept_k.clone(), kept_v.clone()), self._summed

    def pick(self, rows: Tensor) -> None:
        """Put other rows of the batch in the places of these, as `KeyValueCache.pick`."""
        super().pick(rows)
        if self.sums is not None:
            self.sums = Features(*(each.index_select(0, rows) for each in self.sums))

    def cut(self, length: int) -> None:
        """Forget the last positions, as `KeyValueCache.cut`: those that are not summed yet, or all."""
        if length == 0:
            self.sums, self._summed, self._base = None, 0, 0
        if not self._summed <= length <= self.length:
            raise InputError(
                f"length must be from {self._summed} to {self.length} (what was read before is summed), or "
                f"0; got {length}."
            )
        super().cut(length)


class Continued(Kernel):
    """A kernel after what a state has summed.

    Args:
        kernel: what it is without a state.
        state: what was read before; the call adds to it.
    """

    def __init__(self, kernel: FeatureKernel, state: SumsCache) -> None:
        self.kernel, self.state = kernel, state
        self.name = kernel.name  # type: ignore[misc]

    def __call__(self, inputs: AttentionInputs) -> Tensor:
        return self.kernel._context(inputs, self.state)

    def weights(self, inputs: AttentionInputs, queries: Tensor) -> Tensor:
        """Refused: of the keys that were read before only sums are left."""
        del inputs, queries
        raise InputError(
            f"this attention layer is {self.name} with a state, in which the keys that were read before are "
            "summed, so that their weights are lost; trace the whole text in one pass."
        )


def check_plain(inputs: AttentionInputs, name: str) -> None:
    """Refuse what belongs to a softmax alone."""
    for what in ("bias", "softcap", "dropout", "sinks"):
        if getattr(inputs, what) is not None:
            raise InputError(f"{what} must be None for {name}, which has no softmax over the keys.")
    if not isinstance(inputs.scorer, ScaledDot):
        raise InputError(f"scorer must be ScaledDot for {name}; got {type(inputs.scorer).__name__}.")


def _causal_offset(inputs: AttentionInputs, name: str) -> int | None:
    """The offset of the causal mask; None where every query sees all keys that are no padding."""
    check_plain(inputs, name)
    mask = None if inputs.mask is None else inputs.mask.simplified(inputs.q_len, inputs.k_len)
    offset = None
    for part in () if mask is None else mask.parts():
        if isinstance(part, Causal):
            offset = part.offset
        elif not isinstance(part, Padding):
            raise InputError(
                f"mask must be Causal, Padding or both for {name}; got {type(part).__name__}. Take softmax "
                "attention for other masks."
            )
    if offset is not None and offset != inputs.k_len - inputs.q_len:
        raise InputError(
            f"the causal mask of {name} must let the last of {inputs.q_len} queries see all of "
            f"{inputs.k_len} keys, offset {inputs.k_len - inputs.q_len}; got {offset}."
        )
    return offset


def _none(x: Tensor) -> float:
    """The logarithm of a factor of nothing: finite, so that differences are numbers."""
    return torch.finfo(x.dtype).min


def _summed(k: Features, v: Tensor, before: Features | None) -> Features:
    """before + sum over j of phi(k_j) v_j^T, by the largest of the factors."""
    most = k.log_factor.amax(dim=2, keepdim=True)
    if before is not None:
        most = torch.maximum(most, before.log_factor)
    sums = (k.values * (k.log_factor - most).exp()).mT @ v
    if before is not None:
        sums = sums + before.values * (before.log_factor - most).exp()
    return Features(sums, most)


def _causal(q: Tensor, k: Features, v: Tensor, offset: int, before: Features | None) -> Tensor:
    """phi(q_i) (before + sum over j <= i + offset of phi(k_j) v_j^T), a chunk of queries at a time.

    Each row is by the largest factor that its query sees.
    """
    if offset:
        before = _summed(Features(*(each[:, :, :offset] for each in k)), v[:, :, :offset], before)
    chunks = [torch.split(each, _CHUNK, dim=2) for each in (q, *(x[:, :, offset:] for x in (*k, v)))]
    chunk_sums = []
    for asking, own, log_factor, values in zip(*chunks, strict=True):
        most = log_factor.cummax(dim=2).values
        if before is not None:
            most = torch.maximum(most, before.log_factor)
        weights = (asking @ own.mT * (log_factor.mT - most).clamp(max=0.0).exp()).tril()
        chunk_sums.append(weights @ values)
        if before is not None:
            chunk_sums[-1] = chunk_sums[-1] + asking @ before.values * (before.log_factor - most).exp()
        if len(chunk_sums) < len(chunks[0]):
            before = _summed(Features(own, log_factor), values, before)
    return torch.cat(chunk_sums, dim=2)


def _divided(sums: Tensor, total: Tensor) -> Tensor:
    """sums / total; zero, with zero gradient, where a query may see nothing."""
    empty = total == 0
    return (sums / total.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


@dataclass(frozen=True)
class LinearAttention(FeatureKernel):
    """Weights in proportion to phi(q) . phi(k), with phi(x) = elu(x) + 1: as many features as dimensions.

        context_i = phi(q_i) S / (phi(q_i) z),    S = sum_j phi(k_j) v_j^T,  z = sum_j phi(k_j)

    Not the softmax, and no estimate of it: an attention of its own, to be trained with. Its weights are true
    weights, at least 0 with a sum of 1, and a trace shows them. O(N d^2) time; causal attention has a state
    of d x (d + 1) numbers a head, by which a token costs the same however many came before. The scale is not
    used.

    Example:
        >>> from regard.blocks.attentions import LinearAttention
        >>> import torch
        >>> from regard.blocks import MultiHeadAttention
        >>> attention = MultiHeadAttention(6, 2, kernel=LinearAttention())
        >>> attention(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Katharopoulos et al. 2020, arXiv 2006.16236, equations 5 and 7; causal: equations 9 to 12; as a
    recurrent network: equations 16 to 20.
    """

    name: ClassVar[str] = "linear attention"

    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        del scale
        return elu(q) + 1.0

    def of_keys(self, k: Tensor, scale: float) -> Features:
        del scale
        return Features(elu(k) + 1.0, k.new_zeros(*k.shape[:3], 1))


@dataclass(frozen=True)
class Performer(Limited, FeatureKernel):
    """An estimate of softmax attention in O(N m d) time, without a matrix of queries by keys.

        exp(q . k) = E[ phi(q) . phi(k) ],    phi(x) = exp(W x - |x|^2 / 2) / sqrt(m)

    where the m rows of W are normal, N(0, I), and orthogonal within each d of them, and q and k stand for
    q and k times sqrt(scale). Each estimate of exp(q . k) is unbiased, however many features there are; the
    weights and the context are ratios of such estimates. More features are more exact: the error falls as
    1 / sqrt(m), and grows with the size of q and k.

    In the authors' program each layer has a W of its own, which can be drawn anew while training. Here it is
    the same for all heads and layers, and stays. A feature below e^-70 of its vector's largest (in float32;
    in float64 e^-567) counts as that much.

    Args:
        features: m; None for the next whole number above d log d.
        seed: of W, which is no parameter.

    Raises:
        InputError: fewer features than one.

    Example:
        >>> import torch
        >>> from regard.blocks.attentions import Performer
        >>> from regard.blocks import MultiHeadAttention
        >>> attention = MultiHeadAttention(6, 2, kernel=Performer(features=64))
        >>> attention(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Choromanski et al. 2021, arXiv 2009.14794, Lemma 1 (positive features), section 2.4 (orthogonal
    ones), Theorem 4 (m of the order of d log d), Algorithm 1 (causal: prefix sums).
    """

    name: ClassVar[str] = "Performer"
    features: Count | None = None
    seed: int = 0

    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        return self._apart(q, scale).values  # a factor of a query's own cancels

    def of_keys(self, k: Tensor, scale: float) -> Features:
        return self._apart(k, scale)

    def _apart(self, x: Tensor, scale: float) -> Features:
        """Features over their vector's largest; those too small for a product with 1 count as the least."""
        logs = self._logs(x, scale)
        most = logs.amax(dim=3, keepdim=True).detach()
        least = 0.8 * math.log(torch.finfo(logs.dtype).tiny)
        return Features((logs - most).clamp(min=least).exp(), most)

    def _logs(self, x: Tensor, scale: float) -> Tensor:
        if scale <= 0:
            raise InputError(f"scale must be above 0 for {self.name}; got {scale}.")
        x = x * math.sqrt(scale)
        size = x.shape[3]
        count = max(1, math.ceil(size * math.log(size))) if self.features is None else self.features
        rows = random_rows(count, size, self.seed).to(x)
        return x @ rows.mT - x.square().sum(dim=3, keepdim=True) / 2


@lru_cache(maxsize=64)
def random_rows(count: int, size: int, seed: int) -> Tensor:
    """W, float64 (count, size): rows N(0, I), orthogonal within each `size` of them.

    The directions are those of the rows of a random rotation, the lengths those of other normal vectors.

    Example:
        >>> rows = random_rows(8, 4, seed=0)
        >>> bool((rows[0] @ rows[3]).abs() < 1e-12)
        True
    """
    draw = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(-(-count // size)):
        normal = torch.randn(size, size, generator=draw, dtype=torch.float64)
        q, r = torch.linalg.qr(normal)
        # The signs make the rotation uniform: Mezzadri 2007, arXiv math-ph/0609050.
        directions = q * r.diagonal().sign()
        lengths = torch.randn(size, size, generator=draw, dtype=torch.float64).norm(dim=1)
        blocks.append(lengths[:, None] * directions)
    return torch.cat(blocks)[:count]
