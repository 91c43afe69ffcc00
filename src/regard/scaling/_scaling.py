"""What attentions cost at growing lengths: measured, with exponents, crossings and a picture."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from regard.core.displayable import Tabular
from regard.views import CurvePicture, Panel, Series


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One attention at the lengths.

    Args:
        name: the attention.
        seconds: median time of a forward pass, at each length.
        peak: bytes at the peak beside q, k and v; () where the system cannot tell.
        error: of its context, on a model's own q, k and v; see `closeness`.
        exponent, memory_exponent: the slope of log time and of log peak over log length; None of fewer than
            two lengths, and where the peak is no more than pages; see `Exponent`.
        crossing: from which length on it is faster than the fused kernel, between two that were measured;
            None where it is slower at the longest, 0 where it is faster at all of them. None of the kernel.
    """

    name: str
    seconds: tuple[float, ...]
    peak: tuple[int, ...]
    error: float
    exponent: "Exponent | None"
    memory_exponent: "Exponent | None"
    crossing: float | None


class Exponent(NamedTuple):
    """A slope by least squares over the longer half of the lengths, three at least, and how far to trust it.

    Args:
        value: the slope.
        spread: how far the slope between two neighbours of these lengths is from it at most, which is large
            on a busy machine; None of two lengths alone.
    """

    value: float
    spread: float | None


@dataclass(frozen=True, kw_only=True)
class Scaling(Tabular):
    """What `scaling` found.

    Args:
        lengths: tokens.
        heads, head_dim, causal: what was measured.
        threads: of the processor that were used.
        tokens: of the text that errors are of.
        costs: of each attention, the fused kernel first.
    """

    lengths: tuple[int, ...]
    heads: int
    head_dim: int
    causal: bool
    threads: int
    tokens: int
    costs: tuple[Cost, ...]

    @property
    def on_threads(self) -> str:
        """On how many, in words."""
        return f"{self.threads} thread{'s' if self.threads > 1 else ''}"

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)

    @property
    def axes(self) -> tuple[str, ...]:
        return ("attention", "tokens")

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each attention and length: seconds, and bytes at the peak where the system can tell."""
        return [
            {"attention": cost.name, "tokens": length, "seconds": seconds, "peak": peak}
            for cost in self.costs
            for length, seconds, peak in zip(
                self.lengths, cost.seconds, cost.peak or (None,) * len(self.lengths), strict=True
            )
        ]

    def picture(self) -> CurvePicture:
        """Time and memory over length, both axes logarithmic, with the crossings."""
        panels = [Panel(title="milliseconds", series=[*self._series(1e3, "seconds"), *self._crossings()])]
        if all(cost.peak for cost in self.costs):
            panels.append(
                Panel(title="MiB at the peak, beside q, k and v", series=self._series(2**-20, "peak"))
            )
        title = f"Attention of {self.heads} heads of {self.head_dim}, {'causal, ' if self.causal else ''}"
        return CurvePicture(
            title=f"{title}{self.on_threads}", along="tokens", panels=panels, is_logarithmic=True
        )

    def _series(self, unit: float, field: str) -> list[Series]:
        return [
            Series(
                name=cost.name,
                points=[
                    (length, unit * value)
                    for length, value in zip(self.lengths, getattr(cost, field), strict=True)
                    # Logarithmic axes have no 0.
                    if value > 0
                ],
                is_marked=True,
            )
            for cost in self.costs
        ]

    def _crossings(self) -> list[Series]:
        fused = self.costs[0]
        return [
            Series(
                name=CROSSING,
                points=[(cost.crossing, 1e3 * between(self.lengths, fused.seconds, cost.crossing))],
                is_marked=True,
            )
            for cost in self.costs[1:]
            if cost.crossing
        ]


CROSSING = "crosses softmax"
"""What the picture calls the lengths from which on an attention is faster."""


def exponent(lengths: Sequence[int], values: Sequence[float], least: float = 0.0) -> Exponent | None:
    """The slope of log value over log length; see `Exponent`.

    Args:
        lengths: rising.
        values: at each.
        least: those at or below count for nothing.

    Example:
        >>> [round(each, 6) for each in exponent([64, 128, 256, 512], [9.0, 1.0, 2.0, 16.0])]
        [2.0, 1.0]
    """
    # The longer half, but three lengths at least: short ones show what a call costs, not its growth.
    half = slice(max(0, min(len(lengths) // 2, len(lengths) - 3)), None)
    pairs = [
        (math.log(n), math.log(value))
        for n, value in zip(lengths[half], values[half], strict=True)
        if value > least
    ]
    if len(pairs) < 2:
        return None
    # Least squares on logarithms: the slope is the exponent.
    slope = statistics.linear_regression(*zip(*pairs, strict=True)).slope
    apart = [abs((y - b) / (x - a) - slope) for (a, b), (x, y) in pairwise(pairs)]
    return Exponent(slope, max(apart) if len(apart) > 1 else None)


def between(lengths: Sequence[int], values: Sequence[float], length: float) -> float:
    """The value at a length between two, on the straight line of logarithms."""
    right = next(place for place, each in enumerate(lengths) if each >= length)
    left = max(0, right - 1)
    # The first length: nothing lies before it.
    if left == right:
        return values[right]
    # Linear in the logarithms.
    share = math.log(length / lengths[left]) / math.log(lengths[right] / lengths[left])
    return math.exp((1 - share) * math.log(values[left]) + share * math.log(values[right]))


def crossing(lengths: Sequence[int], ours: Sequence[float], fused: Sequence[float]) -> float | None:
    """From which length on ours stays faster; see `Cost`.

    Example:
        >>> round(crossing([100, 200, 400], [3.0, 4.0, 5.0], [1.0, 4.0, 16.0]))
        200
        >>> crossing([100, 200], [2.0, 2.0], [1.0, 1.0]), crossing([100, 200], [1.0, 1.0], [2.0, 2.0])
        (None, 0)
    """
    # Above 0 where ours is slower.
    gains = [math.log(a / b) for a, b in zip(ours, fused, strict=True)]
    if gains[-1] > 0:
        return None
    place = len(gains)
    # From the longest down, as long as ours is faster.
    while place and gains[place - 1] <= 0:
        place -= 1
    if not place:
        return 0
    # Where the line between two gains meets 0.
    share = gains[place - 1] / (gains[place - 1] - gains[place])
    return float(lengths[place - 1] * (lengths[place] / lengths[place - 1]) ** share)


def costs_of(
    lengths: Sequence[int],
    seconds: Mapping[str, Sequence[float]],
    peak: Mapping[str, Sequence[int | None]],
    errors: Mapping[str, float],
    fused: str,
) -> tuple[Cost, ...]:
    """Everything that follows from what was measured."""
    costs = []
    for name, times in seconds.items():
        bytes_of = [each for each in peak[name] if each is not None]
        costs.append(
            Cost(
                name=name,
                seconds=tuple(times),
                peak=tuple(bytes_of),
                error=errors[name],
                exponent=exponent(lengths, times),
                memory_exponent=exponent(lengths, bytes_of, PAGES) if bytes_of else None,
                crossing=None if name == fused else crossing(lengths, times, seconds[fused]),
            )
        )
    return tuple(costs)


PAGES = 2**18
"""Peaks up to this are what the C library rounds up to, not what an attention takes."""
