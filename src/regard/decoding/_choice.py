"""Which token comes next: the likeliest, or one that is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.core.arguments import Count, Limited, Share, numbers, wholes


class Choice(Protocol):
    """How the next token is chosen from its log-probabilities, in every row by itself."""

    def __call__(self, scores: Tensor, keys: Sequence[int], length: int) -> Tensor:
        """Choose.

        Args:
            scores: (rows, vocab_size), log-probabilities; -inf for what a rule forbids.
            keys: a number for each row that its text alone decides, so that chance need not depend on who
                else is in the batch.
            length: how many new tokens there are.

        Returns:
            int64 (rows,).
        """
        ...


@dataclass(frozen=True)
class MostLikely:
    """The most likely token, the first of equals: greedy decoding."""

    def __call__(self, scores: Tensor, keys: Sequence[int], length: int) -> Tensor:
        """See `Choice`."""
        del keys, length
        return scores.argmax(dim=1)


_WAY_OUT = " Greedy decoding, without sampling, takes the likeliest token each time."


@dataclass(frozen=True, kw_only=True)
class Sampling(Limited):
    """Draw each token by its probability, after filters have removed unlikely tokens.

        p = softmax(log p / temperature), then in this order, each renormalised for the next:
        top_k           the k likeliest, and what equals the last of them
        top_p           the likeliest tokens until their sum is top_p: those before which the sum is below it
        min_p           those of at least min_p times the probability of the likeliest
        typical_p       those whose -log p is nearest to the entropy H, until their sum is typical_p
        epsilon_cutoff  those of at least that probability
        eta_cutoff      those of at least min(eta, sqrt(eta) exp(-H))

    The likeliest token (with typical_p the most typical) always stays.

    The random number of a token is a function of the seed, the text (its tokens), which of its returns it is,
    and how many tokens were written: the same on every run, in any batch, and on any machine. Two
    texts that are equal are therefore continued alike; for several of one text ask for several returns.

    Args:
        temperature: below 1 likely tokens become likelier, above 1 less so; towards 0 it is greedy.
        top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff: the filters; None for none. All but top_k
            are from 0 to 1; 1 is none for top_p and typical_p, and 0 or 1 for the cutoffs.
        seed: another one gives other texts; from 0 to 2^64 - 1.

    Raises:
        InputError: a number that is out of range.

    Example:
        >>> import torch
        >>> from regard import Sampling
        >>> scores = torch.tensor([[0.5, 0.3, 0.2]]).log()
        >>> Sampling(top_p=0.6).filtered(scores).exp()
        tensor([[0.6250, 0.3750, 0.0000]], dtype=torch.float64)
        >>> Sampling(seed=1)(scores, [7], 0)
        tensor([2])

    Source: Fan et al. 2018, arXiv 1805.04833, section 5 (top-k); Holtzman et al. 2020, arXiv 1904.09751,
    section 3.1 (top-p); Nguyen et al. 2024, arXiv 2407.01082, section 3 (min-p); Meister et al.
    2022, arXiv 2202.00666, section 3 (typical); Hewitt et al. 2022, arXiv 2210.15191, section 4 (epsilon and
    eta). Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox).
    """

    temperature: Annotated[float, numbers("above 0", lambda value: value > 0, _WAY_OUT)] = 1.0
    top_k: Count | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    typical_p: Annotated[float, numbers("above 0 and at most 1", lambda share: 0 < share <= 1)] | None = None
    epsilon_cutoff: Share | None = None
    eta_cutoff: Share | None = None
    seed: Annotated[int, wholes(0, 2**64 - 1)] = 0

    def filtered(self, scores: Tensor) -> Tensor:
        """Log-probabilities (rows, vocab_size) of what may be drawn, float64: -inf for what may not."""
        left = scores.double()
        left = (left - left.amax(dim=1, keepdim=True)) / self.temperature  # of 0 at most: none overflows
        # The filters in the order in which transformers applies them; each sees what the one before
        # left.
        kept = left.shape[1] if self.top_k is None else min(self.top_k, left.shape[1])
        # top_k: below the k-th highest
        if kept < left.shape[1]:
            left = _without(left, left < left.topk(kept, dim=1).values[:, -1:])
        # top_p: the fewest tokens that have this share
        if self.top_p is not None and self.top_p < 1:
            left = _without(left, left < _lowest(left, self.top_p))
        # min_p: a share of the likeliest token's probability
        if self.min_p:
            shares = left.softmax(dim=1)
            left = _without(left, shares < self.min_p * shares.amax(dim=1, keepdim=True))
        # typical_p: those whose surprise is near the entropy
        if self.typical_p is not None and self.typical_p < 1:
            left = _without(left, _untypical(left, self.typical_p))
        # epsilon and eta: a least probability; eta's falls as the entropy grows. The likeliest always
        # stays.
        for cutoff, of_entropy in ((self.epsilon_cutoff, False), (self.eta_cutoff, True)):
            if cutoff is not None and 0 < cutoff < 1:
                logs = left.log_softmax(dim=1)
                least = (cutoff**0.5 * (-_entropy(logs)).exp()).clamp(max=cutoff) if of_entropy else cutoff
                left = _without(left, (logs.exp() < least) & (logs < logs.amax(dim=1, keepdim=True)))
        # What is left sums to 1 again.
        return left.log_softmax(dim=1)

    def __call__(self, scores: Tensor, keys: Sequence[int], length: int) -> Tensor:
        """See `Choice`. The first token with which the sum of probabilities exceeds the random number."""
        # The distribution function of each row.
        sums = self.filtered(scores).exp().cumsum(dim=1)
        # A number by seed, text and position: the batch has no part in it.
        drawn = [_uniform(self.seed, key, length) for key in keys]
        most = sums[:, -1:].contiguous()  # 1, but for rounding
        places = torch.tensor(drawn, dtype=torch.float64, device=scores.device)[:, None] * most
        # Rounding may give the sum itself, beyond all tokens: then it is the one that reached it.
        last = torch.searchsorted(sums, most)
        chosen = torch.searchsorted(sums, places, right=True).minimum(last)
        return chosen.clamp(max=sums.shape[1] - 1)[:, 0]  # where there are no numbers, any


def _lowest(scores: Tensor, share: float) -> Tensor:
    """The lowest of the highest scores whose probabilities sum to a share, (rows, 1).

    A value, so that what equals it is in too: an order among equals would be by accident.
    """
    whole, size = scores.logsumexp(dim=1, keepdim=True), 128
    while True:  # a sort of all would take most of the time
        # Most often the first 1024 hold the share.
        size = min(8 * size, scores.shape[1])
        values = scores.topk(size, dim=1).values
        shares = (values - whole).exp()
        sums = shares.cumsum(dim=1)
        if size == scores.shape[1] or bool((sums[:, -1] >= share).all()):
            # How many tokens it takes: those before which the share was not reached.
            more = (sums - shares < share).sum(dim=1, keepdim=True)
            return values.gather(1, (more - 1).clamp(min=0))


def _entropy(logs: Tensor) -> Tensor:
    # 0 * -inf is NaN here and counts as 0.
    return -(logs.exp() * logs).nansum(dim=1, keepdim=True)


def _untypical(scores: Tensor, share: float) -> Tensor:
    """Which tokens are farther from the entropy than those that sum to a share, bool (rows, vocab_size)."""
    logs = scores.log_softmax(dim=1)
    # |surprise - entropy|, Meister et al. 2023
    far = (-logs - _entropy(logs)).abs()
    order = far.sort(dim=1)
    sums = logs.gather(1, order.indices).exp().cumsum(dim=1)
    # The last token that is needed for the share.
    last = (sums < share).sum(dim=1, keepdim=True).clamp(max=scores.shape[1] - 1)
    return far > order.values.gather(1, last)


def _without(scores: Tensor, those: Tensor) -> Tensor:
    return scores.masked_fill(those, -torch.inf)


def _uniform(seed: int, key: int, length: int) -> float:
    """From 0 to 1, 1 excluded: the first 53 bits of the block with this key and counter."""
    # Philox by counter: any number of the sequence without those before it.
    words = np.array([seed, key], dtype=np.uint64)
    block = np.random.Philox(key=words, counter=np.array([length, 0, 0, 0], dtype=np.uint64))
    return float(int(block.random_raw()) >> 11) * 2.0**-53


def key_of(ids: Sequence[int], place: int) -> int:
    """64 bits that stand for one of the returns of a text."""
    # The place keeps several returns of one text apart.
    return int.from_bytes(blake2b(repr([place, *ids]).encode(), digest_size=8).digest(), "little")
