"""One step: the length of its gradient, and Muon's update against one worked out in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.training._checkpoints import RunState
from regard.training._ranks import Ranks
from regard.training._run import prepare
from regard.training._settings import OptimiserSettings
from regard.training._step import optimisers, take_step
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.training.test_runs import settings_of


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


def lengths(folder: Path, clip: float) -> tuple[float, float]:
    """The length of the first gradient as it is reported, and as the optimiser gets it."""
    settings = settings_of("clm", folder, optimiser={"clip": clip})
    with prepare(settings, folder / str(clip), Ranks(), lambda _: None) as run:
        made, seen = optimisers(run.task, run.settings.optimiser), list[float]()
        gradients = [each for each in run.task.parameters() if each.requires_grad]

        def look(*_: Any) -> None:
            found = [each.grad.flatten() for each in gradients if each.grad is not None]
            seen.append(float(torch.cat(found).norm()))

        made[0].register_step_pre_hook(look)
        _, report = take_step(run, run.task, made, run.train.steps(0)[0], RunState())
    assert all(each.grad is None for each in gradients)
    return report["norm"], seen[0]


def test_only_a_gradient_that_is_longer_than_the_limit_is_shortened(tmp_path: Path) -> None:
    own, whole = lengths(tmp_path, 1e9)
    assert whole == pytest.approx(own, rel=1e-5)
    assert lengths(tmp_path, own / 2) == (own, pytest.approx(own / 2, rel=1e-4))
