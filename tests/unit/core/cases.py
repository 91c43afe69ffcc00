"""What the tests of attention run over: masks with their rules, biases, dropout, and a record of any mixture.

A mask comes twice, as the object under test and as a rule in plain Python over lists of its own; the two
share numbers, never code.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.core import AttentionInputs, Causal, Conjunction, Mask, Padding, Predicate, Segments, Window
from unit.core import oracle
from unit.core.oracle import Rule

BATCH, HEADS = 2, 6

Form = Callable[[AttentionInputs], Tensor]


@dataclass(frozen=True)
class Sizes:
    """Lengths and widths; primes that differ, so that no axis can stand in for another."""

    queries: int
    keys: int


def _real(sizes: Sizes, batch: int = BATCH) -> list[list[bool]]:
    """Some padding on either side and in between, another in each item; key 1 is always real."""
    return [[j == 1 or (3 * j + b) % 4 != 0 for j in range(sizes.keys)] for b in range(batch)]


def _segments(length: int) -> list[list[int]]:
    return [[(j + b) // 3 for j in range(length)] for b in range(BATCH)]


def _bool(values: list[list[bool]]) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def _nothing(s: Sizes) -> tuple[Mask | None, Rule]:
    return None, lambda b, h, i, j: True


def _padding(s: Sizes) -> tuple[Mask | None, Rule]:
    real = _real(s)
    return Padding(_bool(real)), lambda b, h, i, j: real[b][j]


def _padding_for_all(s: Sizes) -> tuple[Mask | None, Rule]:
    real = _real(s, batch=1)
    return Padding(_bool(real)), lambda b, h, i, j: real[0][j]


def _padded_item(s: Sizes) -> tuple[Mask | None, Rule]:
    real = [[False] * s.keys, *_real(s)[1:]]
    return Padding(_bool(real)), lambda b, h, i, j: real[b][j]


def _causal(s: Sizes) -> tuple[Mask | None, Rule]:
    return Causal(), lambda b, h, i, j: j <= i


def _causal_cache(s: Sizes) -> tuple[Mask | None, Rule]:
    past = s.keys - s.queries + 1
    return Causal(offset=past), lambda b, h, i, j: j - past <= i


def _causal_empty(s: Sizes) -> tuple[Mask | None, Rule]:
    return Causal(offset=-2), lambda b, h, i, j: j + 2 <= i


def _window(s: Sizes) -> tuple[Mask | None, Rule]:
    return Window(left=2, right=1), lambda b, h, i, j: i - 2 <= j <= i + 1


def _window_left(s: Sizes) -> tuple[Mask | None, Rule]:
    return Window(left=1), lambda b, h, i, j: j >= i - 1


def _window_right(s: Sizes) -> tuple[Mask | None, Rule]:
    return Window(None, right=2, offset=-1), lambda b, h, i, j: j <= i + 1


def _window_offset(s: Sizes) -> tuple[Mask | None, Rule]:
    return Window(left=1, right=2, offset=3), lambda b, h, i, j: j in (i + 2, i + 3, i + 4, i + 5)


def _segmented(s: Sizes) -> tuple[Mask | None, Rule]:
    queries, keys = _segments(s.queries), _segments(s.keys)
    mask = Segments(torch.tensor(queries)) if s.queries == s.keys else _cross_segments(queries, keys)
    return mask, lambda b, h, i, j: queries[b][i] == keys[b][j]


def _cross_segments(queries: list[list[int]], keys: list[list[int]]) -> Mask:
    return Segments(torch.tensor(queries), torch.tensor(keys))


def _predicate(s: Sizes) -> tuple[Mask | None, Rule]:
    return Predicate(lambda i, j: (2 * i + j) % 3 != 1), lambda b, h, i, j: (2 * i + j) % 3 in (0, 2)


def _predicate_empty(s: Sizes) -> tuple[Mask | None, Rule]:
    return Predicate(lambda i, j: (i % 3 != 1) & (j > 1)), lambda b, h, i, j: i % 3 in (0, 2) and j >= 2


def _predicate_heads(s: Sizes) -> tuple[Mask | None, Rule]:
    heads = torch.arange(HEADS)[None, :, None, None]
    return Predicate(lambda i, j: (i + j + heads) % 4 != 0), lambda b, h, i, j: (h + i + j) % 4 > 0


def _predicate_items(s: Sizes) -> tuple[Mask | None, Rule]:
    item = torch.arange(BATCH)[:, None, None, None]
    heads = torch.arange(HEADS)[None, :, None, None]
    return (
        Predicate(lambda i, j: (i + 2 * j + 3 * heads + 5 * item) % 7 != 0),
        lambda b, h, i, j: (5 * b + 3 * h + i + 2 * j) % 7 > 0,
    )


def _nested(s: Sizes) -> tuple[Mask | None, Rule]:
    padding, is_real = _padding(s)
    predicate, holds = _predicate_heads(s)
    assert padding is not None
    assert predicate is not None
    mask = Conjunction((Conjunction((padding, Causal(offset=1))), predicate))
    return mask, lambda b, h, i, j: is_real(b, h, i, j) and j <= i + 1 and holds(b, h, i, j)


_Maker = Callable[[Sizes], tuple[Mask | None, Rule]]


def _both(first: _Maker, second: _Maker) -> _Maker:
    def make(s: Sizes) -> tuple[Mask | None, Rule]:
        (one, holds), (two, holds_too) = first(s), second(s)
        assert one is not None
        assert two is not None
        return one & two, lambda b, h, i, j: holds(b, h, i, j) and holds_too(b, h, i, j)

    return make


MASKS: dict[str, _Maker] = {
    "none": _nothing,
    "padding": _padding,
    "padding for all": _padding_for_all,
    "padded item": _padded_item,
    "causal": _causal,
    "causal cache": _causal_cache,
    "causal empty": _causal_empty,
    "window": _window,
    "window left": _window_left,
    "window right": _window_right,
    "window offset": _window_offset,
    "segments": _segmented,
    "predicate": _predicate,
    "predicate empty": _predicate_empty,
    "predicate heads": _predicate_heads,
    "predicate items": _predicate_items,
    "causal & padding": _both(_causal, _padding),
    "causal & padded item": _both(_causal, _padded_item),
    "window & causal": _both(_window_left, _causal),
    "segments & padding": _both(_segmented, _padding),
    "padding & padding": _both(_padding, _padding_for_all),
    "nested": _nested,
}


class Distance:
    """A bias that is computed: minus a learned slope of the head times the distance (arXiv 2108.12409)."""

    def __init__(self, slopes: Tensor) -> None:
        self.slopes = slopes

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries[:, None] - keys[None, :]).abs()
        return -self.slopes[None, :, None, None] * distance

    def learned(self) -> tuple[Tensor, ...]:
        return (self.slopes,)


BIASES = {
    "none": None,
    "dense": (BATCH, HEADS, "queries", "keys"),
    "of keys": (1, HEADS, 1, "keys"),
    "of items": (BATCH, 1, "queries", "keys"),
    "minus infinity": (1, 1, "queries", "keys"),
    "computed": (HEADS,),
}


@dataclass(frozen=True, eq=False)
class GivenDropout:
    """Keeps exactly what `kept`, bool (batch, heads, queries, keys), keeps."""

    p: float
    kept: Tensor

    def keep(self, *, batch: int, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        assert self.kept.shape[:2] == (batch, heads)
        return self.kept.index_select(2, queries).index_select(3, keys)


@dataclass(frozen=True)
class Case:
    """One mixture. Numbers are drawn as float32, so that one oracle serves every precision."""

    mask: str = "none"
    bias: str = "none"
    softcap: float | None = None
    dropped: bool = False
    scale: float | None = None
    kv_heads: int = HEADS
    queries: int = 7
    keys: int = 11
    d_k: int = 3
    d_v: int = 5
    layout: str = "plain"
    sinks: bool = False

    def __str__(self) -> str:
        parts = {"softcap": self.softcap, "dropout": self.dropped, "sinks": self.sinks}
        return "-".join([self.mask, self.bias, *(name for name, there in parts.items() if there)])


class Made:
    """A case's numbers, its oracle, and the record in any precision."""

    P = 0.3

    def __init__(self, case: Case) -> None:
        self.case = case
        self.sizes = Sizes(case.queries, case.keys)
        draw = torch.Generator().manual_seed(sum(map(ord, repr(case))))
        lengths = {"queries": case.queries, "keys": case.keys}
        self.q = torch.randn(BATCH, HEADS, case.queries, case.d_k, generator=draw)
        self.k = torch.randn(BATCH, case.kv_heads, case.keys, case.d_k, generator=draw)
        self.v = torch.randn(BATCH, case.kv_heads, case.keys, case.d_v, generator=draw)
        self.upstream = torch.randn(BATCH, HEADS, case.queries, case.d_v, generator=draw)
        self.mask, self.rule = MASKS[case.mask](self.sizes)
        shape = BIASES[case.bias]
        self.bias: Tensor | None = None
        if shape is not None:
            self.bias = torch.randn([lengths.get(str(n), n) for n in shape], generator=draw)
        if case.bias == "minus infinity":
            assert self.bias is not None
            self.bias[..., 2, :] = float("-inf")
            self.bias[..., 3, ::2] = float("-inf")
        self.sinks = torch.randn(HEADS, generator=draw) if case.sinks else None
        flip = random.Random(case.queries * case.keys)
        self.kept = [
            [
                [[flip.random() >= self.P for _ in range(case.keys)] for _ in range(case.queries)]
                for _ in range(HEADS)
            ]
            for _ in range(BATCH)
        ]

    def rounded(self, dtype: torch.dtype) -> "Made":
        """The same with numbers that `dtype` holds exactly."""
        made = Made(self.case)
        made.q, made.k, made.v, made.upstream = (
            x.to(dtype).float() for x in (self.q, self.k, self.v, self.upstream)
        )
        made.bias = None if self.bias is None else self.bias.to(dtype).float()
        made.sinks = None if self.sinks is None else self.sinks.to(dtype).float()
        return made

    def expected(self) -> oracle.Result:
        """What plain Python makes of it."""
        return oracle.attention(
            self.q.tolist(),
            self.k.tolist(),
            self.v.tolist(),
            self.upstream.tolist(),
            allowed=self.rule,
            bias=self._bias_in_full(),
            scale=self.case.scale,
            softcap=self.case.softcap,
            keep=self.kept if self.case.dropped else None,
            p=self.P if self.case.dropped else 0.0,
            sinks=None if self.sinks is None else self.sinks.tolist(),
        )

    def expected_bias_gradient(self, result: oracle.Result) -> Tensor:
        """The oracle's gradient, summed over the axes along which the bias is the same."""
        assert self.bias is not None
        shares = torch.tensor(result.d_bias, dtype=torch.float64)
        if self.case.bias == "computed":
            keys = range(self.case.keys)
            distances = [[abs(i - j) for j in keys] for i in range(self.case.queries)]
            return -(shares * torch.tensor(distances)).sum((0, 2, 3))
        return shares.sum_to_size(self.bias.shape)

    def record(self, dtype: torch.dtype, *, learns: bool = True) -> tuple[AttentionInputs, dict[str, Tensor]]:
        """The record, and the leaves whose gradients are asked for; bias and sinks only if they learn."""
        leaves = {
            name: tensor.detach().to(dtype).requires_grad_()
            for name, tensor in (("q", self.q), ("k", self.k), ("v", self.v))
        }
        bias: Distance | Tensor | None = None
        if self.bias is not None:
            leaves["bias"] = self.bias.detach().to(dtype).requires_grad_(learns)
            bias = Distance(leaves["bias"]) if self.case.bias == "computed" else leaves["bias"]
        if self.sinks is not None:
            leaves["sinks"] = self.sinks.detach().to(dtype).requires_grad_(learns)
        inputs = AttentionInputs(
            **{name: lay_out(leaves[name], self.case.layout) for name in "qkv"},
            mask=self.mask,
            bias=bias,
            scale=self.case.scale,
            softcap=self.case.softcap,
            dropout=GivenDropout(self.P, torch.tensor(self.kept)) if self.case.dropped else None,
            sinks=leaves.get("sinks"),
        )
        return inputs, leaves

    def _bias_in_full(self) -> list[Any] | None:
        if self.bias is None:
            return None
        values = self.bias.tolist()

        def entry(b: int, h: int, i: int, j: int) -> float:
            if self.case.bias == "computed":
                return float(-values[h] * abs(i - j))
            inner: Any = values
            for x in (b, h, i, j):
                inner = inner[0 if len(inner) == 1 else x]
            return float(inner)

        return [
            [
                [[entry(b, h, i, j) for j in range(self.case.keys)] for i in range(self.case.queries)]
                for h in range(HEADS)
            ]
            for b in range(BATCH)
        ]


def lay_out(tensor: Tensor, layout: str) -> Tensor:
    """The same numbers, otherwise in memory: as projections leave them, or with the last axis far apart."""
    if layout == "projected":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "transposed":
        return tensor.mT.contiguous().mT
    return tensor
