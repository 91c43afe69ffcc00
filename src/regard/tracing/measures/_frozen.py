"""Norms with their scale as it was in a run: with it frozen a norm is linear, and what it is given a sum."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.core.errors import InputError
from regard.models import bound_of, relative_error


@dataclass(frozen=True, kw_only=True, eq=False)
class Frozen:
    """norm(x) = scale gain (x - mean x) + bias, the mean only of LayerNorm; all in float64.

    Args:
        gain: (d,).
        scale: (.., 1), of each vector that the norm was given.
        bias: (d,), or None where there is none.
        is_centred: whether the mean is subtracted, which is linear.
    """

    gain: Tensor
    scale: Tensor
    bias: Tensor | None
    is_centred: bool

    def back(self, u: Tensor) -> Tensor:
        """Directions (.., d) after the norm, drawn back to before it; the scale is left out."""
        # u . (gain * c) = (u * gain) . c; taking the mean off commutes with it.
        weighted = u * self.gain
        return weighted - weighted.mean(dim=-1, keepdim=True) if self.is_centred else weighted

    def forth(self, x: Tensor) -> Tensor:
        """What a part of what the norm was given is after it, without the bias."""
        centred = x - x.mean(dim=-1, keepdim=True) if self.is_centred else x
        return centred * self.gain * self.scale

    def applied(self, x: Tensor) -> Tensor:
        """norm(x), where x is what the norm was given."""
        made = self.forth(x)
        return made if self.bias is None else made + self.bias

    def constant(self, u: Tensor) -> Tensor:
        """u . bias, (..): 0 where there is none."""
        return u.new_zeros(u.shape[:-1]) if self.bias is None else u @ self.bias


def frozen(norm: nn.Module | None, x: Tensor) -> Frozen | None:
    """A norm as it was where it was given x, (.., d) in float64; None for the identity.

        LayerNorm  y = (x - mean x) r g + b,  r = 1 / sqrt(var x + eps)
        RMSNorm    y = x r g,                 r = 1 / sqrt(mean x^2 + eps)

    Only r is frozen: to subtract the mean is linear.

    Raises:
        InputError: another norm.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Handling Layer
    Normalization".
    """
    if norm is None or type(norm) is nn.Identity:
        return None
    if type(norm) is nn.LayerNorm:
        return Frozen(
            gain=x.new_ones(x.shape[-1]) if norm.weight is None else norm.weight.detach().double(),
            # 1 / sqrt(var + eps), at each position: what is frozen.
            scale=torch.rsqrt(x.var(dim=-1, unbiased=False, keepdim=True) + norm.eps),
            bias=None if norm.bias is None else norm.bias.detach().double(),
            is_centred=True,
        )
    # RMSNorm has no class of its own in torch: it is known by what it has, and then by what it does.
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    weight = getattr(norm, "weight", None)
    if isinstance(eps, float) and isinstance(weight, Tensor):
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
        with torch.no_grad():
            # What it makes of x decides which of the two forms it is.
            normed = norm(x.to(weight.dtype)).double()
        # Those of transformers compute in float32, in a model of float64 too.
        bound = max(bound_of(weight.dtype), bound_of(torch.float32))
        # Gemma's weight is an offset from 1.
        for offset in (0.0, 1.0):
            gain = offset + weight.detach().double()
            if relative_error(x * gain * scale, normed) <= bound:
                return Frozen(gain=gain, scale=scale, bias=None, is_centred=False)
    raise InputError(
        f"a sum of parts needs norms that are LayerNorm or RMSNorm; this model has {type(norm).__name__}."
    )
