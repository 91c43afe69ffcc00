"""Norms with their statistics frozen: then they are linear, and a sum before them is a sum after them."""

import torch
from torch import Tensor, nn

from regard.blocks import RMSNorm
from regard.core.errors import InputError


def pull_back(norm: nn.Module | None, x: Tensor, u: Tensor) -> tuple[Tensor, float]:
    """The direction and constant by which u . norm(x') = u' . x' + c where x' has x's statistics.

        LayerNorm  y = (x - mean x) r g + b,  r = 1 / sqrt(var x + eps):  u' = r (u g - mean(u g)),  c = u . b
        RMSNorm    y = x r g,  r = 1 / sqrt(mean x^2 + eps):              u' = r u g,                c = 0

    Only r is frozen: to subtract the mean is linear.

    Args:
        norm: None is the identity.
        x: (d,), what the norm was given.
        u: (d,), a direction after it.

    Raises:
        InputError: a norm of another kind.

    Example:
        >>> norm = nn.LayerNorm(3)
        >>> x, u = torch.tensor([1.0, 2.0, 6.0]).double(), torch.tensor([1.0, 0.0, 0.0]).double()
        >>> back, constant = pull_back(norm.double(), x, u)
        >>> bool((back @ x + constant - norm(x) @ u).abs() < 1e-12)
        True

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Handling Layer
    Normalization".
    """
    if norm is None or type(norm) is nn.Identity:
        return u, 0.0
    if isinstance(norm, RMSNorm):
        scale = torch.rsqrt(x.square().mean() + norm.eps)
        return u * (norm.offset + norm.weight.detach().double()) * scale, 0.0
    if type(norm) is nn.LayerNorm:
        scale = torch.rsqrt(x.var(unbiased=False) + norm.eps)
        weighted = u if norm.weight is None else u * norm.weight.detach().double()
        constant = 0.0 if norm.bias is None else float(u @ norm.bias.detach().double())
        return (weighted - weighted.mean()) * scale, constant
    raise InputError(f"direct attribution knows LayerNorm and RMSNorm; this model has {type(norm).__name__}.")
