"""What blocks compute, written out in plain Python, and helpers that several of their tests use."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.core import Taps
from tolerances import FP64, assert_close_to_largest


def norm_by_hand(vector: list[float], weight: list[float], bias: list[float], eps: float) -> list[float]:
    mean = math.fsum(vector) / len(vector)
    variance = math.fsum((x - mean) ** 2 for x in vector) / len(vector)
    return [
        w * (x - mean) / math.sqrt(variance + eps) + b for x, w, b in zip(vector, weight, bias, strict=True)
    ]


def rms_norm_by_hand(vector: list[float], weight: list[float], offset: float, eps: float) -> list[float]:
    mean = math.fsum(x * x for x in vector) / len(vector)
    return [(offset + w) * x / math.sqrt(mean + eps) for x, w in zip(vector, weight, strict=True)]


def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    weight, bias = norm.weight.tolist(), norm.bias.tolist()
    rows = [norm_by_hand(row, weight, bias, norm.eps) for row in x.flatten(0, -2).tolist()]
    return torch.tensor(rows, dtype=torch.float64).view_as(x)


def project(linear: nn.Linear, vector: list[float]) -> list[float]:
    bias = [0.0] * linear.out_features if linear.bias is None else linear.bias.tolist()
    return [
        b + math.fsum(w * x for w, x in zip(row, vector, strict=True))
        for row, b in zip(linear.weight.tolist(), bias, strict=True)
    ]


def shaken(module: nn.Module) -> nn.Module:
    """Every parameter drawn anew: a fresh norm's ones and zeros would hide that it is not applied."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return module.double()


def read_and_written(point: str, run: Callable[..., Tensor], moves: float, close: float = FP64) -> Tensor:
    """What a tap shows, once: reading or copying it leaves the output as it is, noise on it does not."""
    seen: list[Tensor] = []
    read = run(Taps({point: seen.append}))
    assert_close_to_largest(read, run(None), close)
    assert torch.equal(run(Taps({point: lambda value: value.clone()})), read), point
    written = run(Taps({point: lambda value: value + torch.randn_like(value)}))
    assert (written - read).abs().max().item() > moves, point
    [value] = seen
    return value
