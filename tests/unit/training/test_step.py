"""Muon on a processor: its update against one worked out in float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.training._settings import OptimiserSettings
from regard.training._step import optimisers
from tolerances import PARITY_FP32, assert_close_to_largest


def orthogonal(update: Tensor) -> Tensor:
    """Newton and Schulz's five steps, as of Jordan et al. 2024."""
    x = update / update.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


def test_muon_takes_its_products_in_float32() -> None:
    task = nn.Module()
    task.layers = nn.ModuleList([nn.Linear(7, 5, bias=False)])
    holder = nn.Module()
    holder.network = task  # so that the matrix is one inside the layers
    weight = task.layers[0].weight
    before, gradient = weight.detach().double(), torch.randn(5, 7)
    weight.grad = gradient.clone()
    settings = OptimiserSettings(name="muon", lr=0.5, weight_decay=0.0)
    (muon,) = optimisers(holder, settings)
    muon.step()
    # The first step's momentum is 0.05 g, and Nesterov's average of it and g has its direction.
    wanted = before - 0.5 * 0.2 * 7**0.5 * orthogonal(gradient.double())
    assert_close_to_largest(weight.detach().double(), wanted, PARITY_FP32)
