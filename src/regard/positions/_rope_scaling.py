"""How the frequencies of rotary embeddings are stretched to reach beyond the lengths of training.

The frequencies of a head that rotates `dim` of its entries are, unscaled,

    f_i = base^(-2i / dim),    i = 0 .. dim/2 - 1

in radians a position (Su et al. 2021, arXiv 2104.09864, section 3.2.2). A scaling is an object that gives
others. All arithmetic is in float32, in the order of `transformers`' `modeling_rope_utils`, so that a
checkpoint gets the angles it was evaluated with, bit for bit.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from regard.core.arguments import Count, Limited, Positive, check_fields, wholes
from regard.core.errors import InputError


class RotaryScaling(Limited, ABC):
    """A rule for the frequencies; frozen and hashable, as the `Rotary` that holds it.

    There are `LinearScaling`, `DynamicNTKScaling`, `YaRNScaling`, `LongRoPEScaling` and `Llama3Scaling`.

    Attributes:
        by_length: whether the frequencies depend on how long the text is.
    """

    by_length: ClassVar[bool] = False

    @property
    def amplitude(self) -> float:
        """The factor of cosine and sine; 1 where the lengths of q and k are kept."""
        return 1.0

    @abstractmethod
    def frequencies(self, base: float, dim: int, position_ids: Tensor) -> Tensor:
        """Radians a position.

        Args:
            base: the base of the unscaled frequencies.
            dim: how many entries of a head are rotated, even.
            position_ids: int64, the positions of this call; read only where the length matters.

        Returns:
            float32 (dim // 2,), on the CPU.
        """


@dataclass(frozen=True)
class NoScaling(RotaryScaling):
    """f_i = base^(-2i / dim), as in the paper.

    Example:
        >>> NoScaling().frequencies(100.0, 4, torch.arange(3))
        tensor([1.0000, 0.1000])

    Source: Su et al. 2021, arXiv 2104.09864, section 3.2.2.
    """

    def frequencies(self, base: float, dim: int, position_ids: Tensor) -> Tensor:
        """See `RotaryScaling`."""
        return _plain(base, dim)


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """f_i / factor: position `factor * n` turns as far as position n did in training.

    Args:
        factor: how many times longer the texts may become.

    Raises:
        InputError: a factor that is not positive.

    Example:
        >>> import torch
        >>> from regard.positions import LinearScaling
        >>> LinearScaling(2.0).frequencies(100.0, 4, torch.arange(3))
        tensor([0.5000, 0.0500])

    Source: Chen et al. 2023, arXiv 2306.15595, section 2.3 ("position interpolation").
    """

    factor: Positive

    def frequencies(self, base: float, dim: int, position_ids: Tensor) -> Tensor:
        """See `RotaryScaling`."""
        return _plain(base, dim) / self.factor


@dataclass(frozen=True)
class DynamicNTKScaling(RotaryScaling):
    """A base that grows with the text, once it is longer than those of training.

        n = max(largest position + 1, max_seq_len)
        base' = base * (factor * n / max_seq_len - (factor - 1))^(dim / (dim - 2))
        f_i = base'^(-2i / dim)

    The length is that of each call. (`transformers` remembers the longest text that a model has seen, and
    keeps its base until a text is shorter than `max_seq_len`; a fresh model of theirs gives these numbers.)

    Args:
        factor: how many times longer the texts may become.
        max_seq_len: the longest of training.

    Raises:
        InputError: a number that is not positive.

    Example:
        >>> import torch
        >>> from regard.positions import DynamicNTKScaling
        >>> scaling = DynamicNTKScaling(2.0, max_seq_len=4)
        >>> scaling.frequencies(100.0, 4, torch.arange(4)), scaling.frequencies(100.0, 4, torch.arange(6))
        (tensor([1.0000, 0.1000]), tensor([1.0000, 0.0500]))

    Source: Peng et al. 2023, arXiv 2309.00071, section 3.1 and appendix B.2 ("dynamic NTK").
    """

    by_length = True
    factor: Positive
    max_seq_len: Count

    def frequencies(self, base: float, dim: int, position_ids: Tensor) -> Tensor:
        """See `RotaryScaling`."""
        if dim < 4:
            raise InputError(f"dynamic NTK scaling must rotate at least 4 entries of a head; got {dim}.")
        # Only here and in LongRoPE does the length of the text count.
        length = _length(position_ids)
        power = dim / (dim - 2)
        if length <= self.max_seq_len:
            # As theirs writes it, which is 1 but for rounding.
            stretch = (self.factor * self.max_seq_len / self.max_seq_len) - (self.factor - 1)
            return _plain(base * stretch**power, dim)
        # float32 from here on, as theirs: the length comes to them as a tensor.
        longer = torch.tensor(length, device="cpu")
        # base' of the docstring.
        grown = base * ((self.factor * longer / self.max_seq_len) - (self.factor - 1)) ** power
        return 1.0 / (grown ** (_even(dim) / dim))


@dataclass(frozen=True)
class YaRNScaling(RotaryScaling):
    """Slow frequencies are divided by the factor, fast ones kept, those between blended ("NTK by parts").

        d(r) = dim * ln(original_max_seq_len / (2 pi r)) / (2 ln base)        which frequency turns r times
        low, high = d(beta_fast), d(beta_slow), rounded outwards, within 0 .. dim - 1
        keep_i = 1 - clip((i - low) / (high - low), 0, 1)
        f'_i = keep_i * f_i + (1 - keep_i) * f_i / factor

    and cosine and sine are multiplied by an amplitude, by default 0.1 ln(factor) + 1.

    Args:
        factor: how many times longer the texts may become.
        original_max_seq_len: the longest of training.
        beta_fast, beta_slow: turns within `original_max_seq_len` above which a frequency is kept, and below
            which it is divided.
        attention_factor: the amplitude; None computes it.

    Raises:
        InputError: a number that is not positive.

    Example:
        >>> import torch
        >>> from regard.positions import YaRNScaling
        >>> scaling = YaRNScaling(4.0, original_max_seq_len=64)
        >>> scaling.frequencies(100.0, 8, torch.arange(3))
        tensor([1.0000, 0.2372, 0.0500, 0.0079])
        >>> round(scaling.amplitude, 4)
        1.1386

    Source: Peng et al. 2023, arXiv 2309.00071, sections 3.2 to 3.4.
    """

    factor: Positive
    original_max_seq_len: Count
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    attention_factor: float | None = None

    @property
    def amplitude(self) -> float:
        """`attention_factor`, or what follows from `factor`."""
        if self.attention_factor is not None:
            return self.attention_factor
        return yarn_amplitude(self.factor)

    def frequencies(self, base: float, dim: int, position_ids: Tensor) -> Tensor:
        """See `RotaryScaling`."""
        # low and high are numbers of pairs: below low a frequency turns often and stays, above high it
        # is divided.
        low = max(math.floor(self._index(self.beta_fast, base, dim)), 0)
        high: float = min(math.ceil(self._index(self.beta_slow, base, dim)), dim - 1)
        if low == high:
            high += 0.001  # a step, without dividing by zero
        powers = base ** (_even(dim) / dim)
        # keep_i falls from 1 to 0 between the two.
        index = torch.arange(dim // 2, dtype=torch.float32, device="cpu")
        keep = 1 - ((index - low) / (high - low)).clamp(0, 1)
        # (1 - keep) f / factor + keep f, with f = 1 / powers
        return 1.0 / (self.factor * powers) * (1 - keep) + 1.0 / powers * keep

    def _index(self, turns: float, base: float, dim: int) -> float:
        length = self.original_max_seq_len
        # The pair whose wave goes round `turns` times within the lengths of training.
        return (dim * math.log(length / (turns * 2 * math.pi))) / (2 * math.log(base))


def yarn_amplitude(factor: float, mscale: float = 1.0) -> float:
    # DeepSeek's files have mscale and mscale_all_dim.
    """0.1 mscale ln(factor) + 1; 1 where nothing is stretched. Files with two of them mean the quotient."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True)
class LongRoPEScaling(RotaryScaling):
    """Each frequency has a divisor of its own, and another one in texts longer than those of training.

        f_i / short_factor_i       where the largest position + 1 <= original_max_seq_len
        f_i / long_factor_i        else, at all positions

    and cosine and sine are multiplied by an amplitude, by default
    sqrt(1 + ln(factor) / ln(original_max_seq_len)), 1 where factor <= 1.

    Args:
        short_factor, long_factor: the divisors, dim / 2 each.
        original_max_seq_len: the longest of training, more than 1.
        factor: how many times longer the texts may become.
        attention_factor: the amplitude; None computes it.

    Raises:
        InputError: a number that is not positive, or other than dim / 2 divisors.

    Example:
        >>> import torch
        >>> from regard.positions import LongRoPEScaling
        >>> scaling = LongRoPEScaling((1.0, 2.0), (4.0, 5.0), original_max_seq_len=4, factor=2.0)
        >>> scaling.frequencies(100.0, 4, torch.arange(4)), scaling.frequencies(100.0, 4, torch.arange(5))
        (tensor([1.0000, 0.0500]), tensor([0.2500, 0.0200]))

    Source: Ding et al. 2024, arXiv 2402.13753; the two lists and the amplitude are in the code of Phi-3.
    """

    by_length = True
    short_factor: tuple[Positive, ...]
    long_factor: tuple[Positive, ...]
    original_max_seq_len: Annotated[int, wholes(2)]  # the amplitude divides by its logarithm
    factor: Positive
    attention_factor: float | None = None

    @property
    def amplitude(self) -> float:
        """`attention_factor`, or what follows from `factor`."""
        if self.attention_factor is not None:
            return self.attention_factor
        stretch = math.log(max(self.factor, 1.0)) / math.log(self.original_max_seq_len)
        return math.sqrt(1 + stretch)

    def frequencies(self, base: float, dim: int, position_ids: Tensor) -> Tensor:
        """See `RotaryScaling`."""
        is_long = _length(position_ids) > self.original_max_seq_len
        # One of the two lists for all positions of the call.
        divisors = torch.tensor(self.long_factor if is_long else self.short_factor, device="cpu")
        if len(divisors) != dim // 2:
            name = "long_factor" if is_long else "short_factor"
            raise InputError(f"{name} must have {dim // 2} numbers, one for each pair; got {len(divisors)}.")
        return 1.0 / (divisors.float() * base ** (_even(dim) / dim))


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """Long waves are divided by the factor, short ones kept, those between blended.

        wavelength_i = 2 pi / f_i,   n = original_max_seq_len
        f_i / factor                                      where wavelength_i > n / low_freq_factor
        f_i                                               where wavelength_i < n / high_freq_factor
        (1 - s) f_i / factor + s f_i                      between, with
        s = (n / wavelength_i - low_freq_factor) / (high_freq_factor - low_freq_factor)

    Args:
        factor: how many times longer the texts may become.
        low_freq_factor, high_freq_factor: how often a wave fits into `original_max_seq_len`, at the two ends.
        original_max_seq_len: the longest of training.

    Raises:
        InputError: a number that is not positive, or low and high the same.

    Example:
        >>> import torch
        >>> from regard.positions import Llama3Scaling
        >>> Llama3Scaling(8.0, 1.0, 4.0, 64).frequencies(100.0, 8, torch.arange(3))
        tensor([1.0000, 0.2444, 0.0130, 0.0040])

    Source: the reference code of Llama 3.1 (`apply_scaling`); Grattafiori et al. 2024, arXiv 2407.21783.
    """

    factor: Positive
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_seq_len: Count

    def __post_init__(self) -> None:
        check_fields(self)
        if self.low_freq_factor == self.high_freq_factor:
            raise InputError(
                f"low_freq_factor and high_freq_factor must differ; got {self.low_freq_factor} for both."
            )

    def frequencies(self, base: float, dim: int, position_ids: Tensor) -> Tensor:
        """See `RotaryScaling`."""
        plain = _plain(base, dim)
        length, low, high = self.original_max_seq_len, self.low_freq_factor, self.high_freq_factor
        # Tokens until pair i has turned once: (dim / 2,).
        wavelength = 2 * math.pi / plain
        is_long, is_short = wavelength > length / low, wavelength < length / high
        # The two ends first, then what lies between.
        ends = torch.where(is_long, plain / self.factor, plain)
        smooth = (length / wavelength - low) / (high - low)
        # `ends` is f there: neither long nor short.
        between = (1 - smooth) * ends / self.factor + smooth * ends
        return torch.where(~is_short & ~is_long, between, ends)


def _length(position_ids: Tensor) -> int:
    # No position, no text: as if it were short.
    return 0 if position_ids.numel() == 0 else int(position_ids.max()) + 1


def _even(dim: int) -> Tensor:
    # On the CPU, also while a network is built on the meta device; a GPU's powers differ in the last place.
    return torch.arange(0, dim, 2, dtype=torch.float32, device="cpu")


def _plain(base: float, dim: int) -> Tensor:
    # base^(-2i / dim), as a quotient: the order of theirs.
    return 1.0 / (base ** (_even(dim) / dim))
