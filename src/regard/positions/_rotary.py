"""Rotary position embedding: q and k are turned by angles that grow with their positions."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.core.arguments import Positive, check_fields
from regard.core.errors import InputError
from regard.positions._rope_scaling import NoScaling, RotaryScaling, YaRNScaling

RotaryLayout = Literal["half", "interleaved"]
"""Which entries of a head form the pair i: (i, i + dim/2), as in Llama, or (2i, 2i + 1), as in GPT-J."""


# Made once, since a default of a dataclass is shared.
_NO_SCALING = NoScaling()


@dataclass(frozen=True)
class Rotary:
    """The rule by which positions turn q and k: a plain value, without tensors, that compares by its fields.

        [x_a']   [cos p f_i   -sin p f_i] [x_a]
        [x_b'] = [sin p f_i    cos p f_i] [x_b]

    for position p and the pair (a, b) = i of entries, f_i = base^(-2i / dim), so that q' k' depends on the
    distance of the two only.

    Args:
        head_dim: size of a head of q and k.
        base: of the frequencies (`rope_theta`).
        scaling: what stretches the frequencies.
        rotary_dim: how many entries of a head, the first ones, are rotated; None for all of them.
        layout: which entries form a pair. "half" is (i, i + rotary_dim/2), as in GPT-NeoX, Llama and nearly
            all; "interleaved" is (2i, 2i + 1), as in RoFormer and GPT-J. It belongs to the weights.

    Raises:
        InputError: an odd or impossible size, a base that is not positive, an unknown layout.

    Example:
        >>> import torch
        >>> from regard.positions import Rotary
        >>> rotary = Rotary(4, base=10_000.0)
        >>> rotation = rotary.rotation(torch.tensor([[0, 1]]), dtype=torch.float32)
        >>> rotation.apply(torch.ones(1, 1, 2, 4))
        tensor([[[[ 1.0000,  1.0000,  1.0000,  1.0000],
                  [-0.3012,  0.9900,  1.3818,  1.0099]]]])
        >>> rotary == Rotary(4, base=10_000.0)
        True

    Source: Su et al. 2021, arXiv 2104.09864, section 3.2.2 and equation 34; the half layout is GPT-NeoX's.
    """

    head_dim: int
    _: KW_ONLY
    base: Positive
    scaling: RotaryScaling = _NO_SCALING
    rotary_dim: int | None = None
    layout: RotaryLayout = "half"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rotary_dim is None and (self.head_dim < 2 or self.head_dim % 2):
            raise InputError(
                f"head_dim must be even and at least 2, because entries turn in pairs; got {self.head_dim}. "
                "Give rotary_dim to rotate fewer entries."
            )
        if self.rotary_dim is not None and (not 2 <= self.rotary_dim <= self.head_dim or self.rotary_dim % 2):
            raise InputError(
                f"rotary_dim must be even, from 2 to head_dim = {self.head_dim}, or None for all of a head; "
                f"got {self.rotary_dim}."
            )
        if isinstance(self.scaling, YaRNScaling) and self.base <= 1:
            raise InputError(
                f"base must be greater than 1 for YaRN, which divides by ln(base); got {self.base}."
            )

    def rotation(
        self, position_ids: Tensor, *, dtype: torch.dtype, device: torch.device | None = None
    ) -> "Rotation":
        """The cosines and sines of some positions, to apply to q and k of every layer that shares this rule.

        Angles, cosines and sines are float32 whatever the dtype, also float64, and are then converted: so
        does `transformers`, whose float64 models then agree to 1e-12 rather than to 1e-6.

        Args:
            position_ids: int64 (batch or 1, N).
            dtype: that of q and k.
            device: that of q and k; by default the positions'.

        Raises:
            InputError: positions of another type or shape.
        """
        if position_ids.ndim != 2 or position_ids.dtype != torch.int64:
            raise InputError(
                "position_ids must be int64 of shape (batch or 1, N); "
                f"got {position_ids.dtype} of shape {tuple(position_ids.shape)}."
            )
        device = position_ids.device if device is None else device
        dim = self.head_dim if self.rotary_dim is None else self.rotary_dim
        # (dim / 2,)
        frequencies = self.scaling.frequencies(self.base, dim, position_ids).to(device)
        # (batch or 1, 1, N, dim / 2): p f_i
        angles = position_ids.to(device)[:, None, :, None].float() * frequencies
        cos, sin = angles.cos(), angles.sin()
        # YaRN and LongRoPE scale q and k through cosine and sine, and so the scores by the amplitude
        # squared.
        if (amplitude := self.scaling.amplitude) != 1.0:
            cos, sin = cos * amplitude, sin * amplitude
        # The cosine is needed for both entries of a pair, (batch or 1, 1, N, dim); the sine once a pair.
        cos = torch.cat((cos, cos), dim=-1) if self.layout == "half" else cos.repeat_interleave(2, dim=-1)
        # Entries that do not turn have the cosine 1, and no sine at all.
        if dim != self.head_dim:
            cos = torch.nn.functional.pad(cos, (0, self.head_dim - dim), value=1.0)
        return Rotation(cos.to(dtype), sin.to(dtype), self.layout)


@dataclass(frozen=True, eq=False)
class Rotation:
    """The turns of some positions, ready to apply; `Rotary.rotation` makes one.

    Args:
        cos: (batch or 1, 1, N, head_dim), the factor of each entry itself, 1 where nothing is rotated.
        sin: (batch or 1, 1, N, rotary_dim // 2), that of each entry's partner, one a pair.
        layout: which entries form a pair.

    Example:
        >>> quarter = Rotation(torch.zeros(1, 1, 1, 4), torch.ones(1, 1, 1, 2), "half")
        >>> quarter.apply(torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]]))
        tensor([[[[-3., -4.,  1.,  2.]]]])
    """

    cos: Tensor
    sin: Tensor
    layout: RotaryLayout = "half"

    def apply(self, x: Tensor) -> Tensor:
        """Turn q or k: (batch, heads, N, head_dim) -> the same shape, dtype and layout; x is left as it is.

        Where x has another dtype than the rotation, as under autocast, it is turned in the rotation's and
        rounded once.

        Raises:
            InputError: x has another head_dim than the rotation.
        """
        if x.shape[-1] != self.cos.shape[-1]:
            raise InputError(
                f"x must have head_dim {self.cos.shape[-1]}, as the rotation; got shape {tuple(x.shape)}."
            )
        if x.dtype != self.cos.dtype:
            return self.apply(x.to(self.cos.dtype)).to(x.dtype)
        # The gradient of autograd's own would keep x, and more tensors of its size.
        if x.requires_grad and torch.is_grad_enabled():
            turned: Tensor = _Turn.apply(x, self.cos, self.sin, self.layout, 1)  # type: ignore[no-untyped-call]
            return turned
        return _turn(x, self.cos, self.sin, self.layout, 1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, layout: RotaryLayout, sign: int) -> Tensor:
    # One pass makes the result, two add each half's partner to it; the textbook form (negate, concatenate,
    # two products, one sum) makes five tensors of this size, which takes up to three times as long.
    pairs = sin.shape[-1]
    # Which entries are the first and the second of each pair.
    if layout == "half":
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    else:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    # x_a cos - x_b sin, and x_b cos + x_a sin; sign = -1 turns back.
    turned = x * cos
    turned[..., first].addcmul_(x[..., second], sin, value=-sign)
    turned[..., second].addcmul_(x[..., first], sin, value=sign)
    return turned


class _Turn(torch.autograd.Function):
    """`_turn` with the gradient written out: the same turn backwards, which needs no x kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, layout: RotaryLayout, sign: int) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.layout, ctx.sign = layout, sign
        return _turn(x, cos, sin, layout, sign)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        # The inverse of a rotation is its transpose: the same angles with the other sign.
        # By `apply` once more, so that a second derivative exists as well.
        back: Tensor = _Turn.apply(upstream, cos, sin, ctx.layout, -ctx.sign)  # type: ignore[no-untyped-call]
        return back, None, None, None, None
