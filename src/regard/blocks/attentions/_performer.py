"""Performer: the softmax's weights, estimated by positive orthogonal random features (FAVOR+)."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from regard.blocks.attentions._features import FeatureKernel, Features
from regard.core.errors import InputError


@dataclass(frozen=True)
class Performer(FeatureKernel):
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
        >>> from regard.blocks import MultiHeadAttention
        >>> attention = MultiHeadAttention(6, 2, kernel=Performer(features=64))
        >>> attention(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Choromanski et al. 2021, arXiv 2009.14794, Lemma 1 (positive features), section 2.4 (orthogonal
    ones), Theorem 4 (m of the order of d log d), Algorithm 1 (causal: prefix sums).
    """

    name: ClassVar[str] = "Performer"
    features: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.features is not None and self.features < 1:
            raise InputError(f"features must be at least 1, or None for d log d; got {self.features}.")

    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        return self._apart(q, scale).values  # a factor of a query's own cancels

    def of_keys(self, k: Tensor, scale: float) -> Features:
        return self._apart(k, scale)

    def _apart(self, x: Tensor, scale: float) -> Features:
        """By the largest feature of each vector; those too small for a product with 1 count as the least."""
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
