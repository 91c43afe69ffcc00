"""Dropout on attention weights, by a rule that gives the same answer for any block of rows.

torch draws a dropout mask of the whole (queries, keys) matrix. Here a weight is kept or dropped by a hash of
(seed, batch, head, query, key): every block of rows can be drawn alone, drawn again in the backward pass, and
compared between the two forms of attention.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.core.errors import InputError


class Dropout(Protocol):
    """Which weights survive, and the probability that one is dropped; `SeededDropout` is one."""

    @property
    def p(self) -> float:
        """Probability of dropping a weight, 0 <= p < 1; survivors are multiplied by 1 / (1 - p)."""
        ...

    def keep(self, *, batch: int, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        """bool, broadcastable to (batch, heads, rows, columns): True where the weight is kept."""
        ...


@dataclass(frozen=True)
class SeededDropout:
    """Keeps a weight where a hash of (seed, batch, head, query, key) falls above p.

    The hash is rounds of splitmix64's finaliser (Steele, Lea and Flood 2014, "Fast splittable
    pseudorandom number generators", section 5), which passes the avalanche tests that a counter needs.

    Args:
        p: probability of dropping, 0 <= p < 1.
        seed: 0 <= seed < 2^63; a new one each step, drawn from torch's generator by the blocks.

    Example:
        >>> from regard.core import SeededDropout
        >>> import torch
        >>> rows = torch.arange(1000)
        >>> kept = SeededDropout(0.25, seed=1).keep(batch=1, heads=1, queries=rows, keys=rows)
        >>> abs(kept.float().mean().item() - 0.75) < 0.002
        True
    """

    p: float
    seed: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.p < 1.0:
            raise InputError(f"p must be a probability with 0 <= p < 1; got {self.p}.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be an integer with 0 <= seed < 2^63; got {self.seed}.")

    def keep(self, *, batch: int, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        device = queries.device
        # Numbers by axis, which broadcast to (batch, heads, rows, columns).
        of_batch = torch.arange(batch, device=device)[:, None, None, None]
        of_head = torch.arange(heads, device=device)[None, :, None, None]
        # 20 bits each for batch and head, 24 for the query: one number a row, then mixed with the key. The
        # seed is mixed first: as it stands, seed 1 would give query 0 what seed 0 gives query 1.
        seed = int(_mix(torch.tensor(self.seed, device="cpu") + _GOLDEN))
        row = ((of_batch << 44) | (of_head << 24) | queries[None, None, :, None]) ^ seed
        # A product for each weight in 64 bits would cost more than the attention: 32 of a row's are enough.
        bits = _low_bits(_mix(row)) ^ _low_bits(_mix(keys * _GOLDEN))
        # 24 bits as a number from 0 to 2^24 - 1: below p * 2^24 a weight is dropped.
        return _mix_in_place(bits).bitwise_and_(0xFFFFFF) >= round(self.p * 2**24)


_GOLDEN = -0x61C8864680B583EB  # splitmix64's increment 0x9E3779B97F4A7C15 as a signed number


def _low_bits(x: Tensor) -> Tensor:
    # 31 bits: int32 then never has its sign set, which shifts would copy.
    return (x & 0x7FFFFFFF).to(torch.int32)


def _mix_in_place(x: Tensor) -> Tensor:
    """The finaliser of MurmurHash3 (Appleby 2011) on int32, of numbers that are not negative."""
    x ^= x >> 16
    x *= -0x7A143595  # 0x85EBCA6B as a signed number
    # Products may be negative: the copies of the sign are masked away, as in `_mix`.
    x ^= (x >> 13).bitwise_and_(0x7FFFF)
    x *= -0x3D4D51CB  # 0xC2B2AE35
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def _mix(x: Tensor) -> Tensor:
    # torch shifts int64 arithmetically; masking the sign's copies away makes it the logical shift meant here.
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9 as a signed number
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
    return x ^ ((x >> 31) & 0x1FFFFFFFF)
