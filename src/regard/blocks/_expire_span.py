"""Attention that forgets: every position says how long it is to be remembered."""

from typing import Any

import torch
from torch import Tensor

from regard.blocks._embeddings import Linear
from regard.blocks._multi_head import MultiHeadAttention
from regard.core import Bias, ForgettingCache, KeyValueCache, Mask, Ramp, Taps, Unexpired, of_keys
from regard.core.errors import InputError
from regard.positions import Rotation


class ExpireSpanAttention(MultiHeadAttention):
    """Causal self-attention in which each position has a span, after which it is forgotten.

        e_i = L sigmoid(w . x_i + b)                           the span, one for all heads
        m_ti = max(0, min(1, 1 + (e_i - (t - i)) / R))
        context_t = sum_i m_ti a_ti v_i / sum_j m_tj a_tj      a: the softmax's weights

    Nothing is approximated within a span. The cost is that of what is remembered: O(N (L + R)) at most, and a
    cache holds no more than that.

    Args:
        d_model, num_heads: as in `MultiHeadAttention`, as are all other arguments.
        max_span: L, the longest span, in positions.
        ramp: R, over how many positions a key fades after its span; within it e has a gradient.

    Raises:
        InputError: an L or R that is not above 0.

    Taps:
        spans (batch, positions): e; then those of `MultiHeadAttention`.

    Example:
        >>> import torch
        >>> from regard.blocks import ExpireSpanAttention
        >>> from regard.core import Causal
        >>> attention = ExpireSpanAttention(6, 2, max_span=32, ramp=4)
        >>> attention(torch.randn(1, 5, 6), mask=Causal()).shape
        torch.Size([1, 5, 6])

    Source: Sukhbaatar et al. 2021, arXiv 2105.06548, section 4.1.
    """

    # The spans are computed from x, before the queries and keys.
    TAPS = ("spans", *MultiHeadAttention.TAPS)

    def __init__(self, d_model: int, num_heads: int, *, max_span: float, ramp: float, **others: Any) -> None:
        super().__init__(d_model, num_heads, **others)
        for name, value in (("max_span", max_span), ("ramp", ramp)):
            if not 0 < value < float("inf"):
                raise InputError(f"{name} must be a number of positions above 0; got {value}.")
        self.max_span, self.ramp = max_span, ramp
        # w and b of e_i = L sigmoid(w^T h_i + b).
        self.span = Linear(d_model, 1)

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        rotation: Rotation | None = None,
        cache: KeyValueCache | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """Attend from x to itself and to what is remembered; arguments as of `MultiHeadAttention`.

        Raises:
            InputError: another sequence, a bias, or a cache that is not from `new_cache`.
        """
        if source is not None or bias is not None:
            raise InputError("source and bias must be None: spans are of one sequence, and are the bias.")
        # (batch, positions)
        logits = self.span(x).squeeze(-1)
        # In float32 or wider: half precision cannot tell neighbouring positions of a long span apart.
        spans = self.max_span * torch.sigmoid(logits.to(torch.promote_types(logits.dtype, torch.float32)))
        if taps is not None:
            spans = taps.offer("spans", spans)
        # Without a cache, key n stands at position n.
        first, positions = 0, None
        if cache is not None:
            if not isinstance(cache, ForgettingCache):
                raise InputError(f"cache must be from new_cache; got a {type(cache).__name__}.")
            # The queries follow what was read before.
            first = cache.length
            # The cache has let expired keys go: `positions` says where those left stand.
            spans, positions = cache.remember(spans)
            # The caller's mask is of all positions; only the columns of the keys left are used.
            mask = of_keys(mask, positions)
        # The mask hides what has expired; the bias fades out a key over the last `ramp` positions.
        unexpired = Unexpired(spans, self.ramp, first, positions)
        return super().forward(
            x,
            mask=unexpired if mask is None else mask & unexpired,
            bias=Ramp(spans, self.ramp, first, positions),
            rotation=rotation,
            cache=cache,
            taps=taps,
        )

    def new_cache(self, *, window: int | None = None, back: int = 0) -> ForgettingCache:
        """A cache that forgets expired keys; a `window` hides keys, but does not let them go earlier."""
        # A window alone lets no key go here: the span decides.
        del window
        return ForgettingCache(ramp=self.ramp, back=back)
