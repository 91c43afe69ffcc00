"""Norms with their statistics frozen: then they are linear, and a sum before them is a sum after them."""

from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.core.errors import InputError
from regard.models import bound_of, relative_error


def pull_back(norm: nn.Module | None, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The directions and constants by which u . norm(x') = u' . x' + c where x' has x's statistics.

        LayerNorm  y = (x - mean x) r g + b,  r = 1 / sqrt(var x + eps):  u' = r (u g - mean(u g)),  c = u . b
        RMSNorm    y = x r g,  r = 1 / sqrt(mean x^2 + eps):              u' = r u g,                c = 0

    Only r is frozen: to subtract the mean is linear. x is what the norm was given, and u directions after it,
    both (.., d); a norm of None is the identity.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Handling Layer
    Normalization".
    """
    nothing = u.new_zeros(u.shape[:-1])
    if norm is None or type(norm) is nn.Identity:
        return u, nothing
    if type(norm) is nn.LayerNorm:
        scale = torch.rsqrt(x.var(dim=-1, unbiased=False, keepdim=True) + norm.eps)
        weighted = u if norm.weight is None else u * norm.weight.detach().double()
        constant = nothing if norm.bias is None else u @ norm.bias.detach().double()
        return (weighted - weighted.mean(dim=-1, keepdim=True)) * scale, constant
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    weight = getattr(norm, "weight", None)
    if isinstance(eps, float) and isinstance(weight, Tensor):
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
        with torch.no_grad():
            made = norm(x.to(weight.dtype)).double()
        for offset in (0.0, 1.0):  # Gemma's weight is an offset from 1
            gain = (offset + weight.detach().double()) * scale
            if relative_error(x * gain, made) <= bound_of(weight.dtype):
                return u * gain, nothing
    raise InputError(f"direct attribution knows LayerNorm and RMSNorm; this model has {type(norm).__name__}.")


M = TypeVar("M", bound=nn.Module)


def widened(module: M) -> M:
    """A copy in float64."""
    return deepcopy(module).double().requires_grad_(False)
