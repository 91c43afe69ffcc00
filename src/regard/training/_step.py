"""One step of the optimiser."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from regard.core.errors import TrainingError
from regard.training._checkpoints import Progress, what_stays
from regard.training._feed import Picked
from regard.training._optimisers import trained
from regard.training._ranks import whole
from regard.training._run import Run
from regard.training._sampler import seed_of


def take_step(
    run: Run, module: nn.Module, made: Sequence[Optimizer], picked: Sequence[Picked], progress: Progress
) -> tuple[Progress, dict[str, Any]]:
    """One step of the optimiser: forward, backward, clip, move.

    Args:
        run: where the batches come from.
        module: the task, spread over the processes.
        made: the optimisers.
        picked: the micro-batches of this process.
        progress: where the run stands before.

    Returns:
        Where it stands afterwards, and what there is to tell.

    Raises:
        TrainingError: the loss or the gradient is no number; nothing has moved.
    """
    settings, ranks = run.settings, run.ranks
    first = progress.done + ranks.rank
    places = [first + number * ranks.world for number in range(len(picked))]
    batches = [
        run.train.batch(each, progress.epoch, place) for each, place in zip(picked, places, strict=True)
    ]
    # Every target of the step weighs the same, whichever micro-batch and process it is in.
    names = tuple(run.task.weights)
    own = {name: float(sum(batch.counts[name] for batch in batches)) for name in names}
    own |= {"tokens": float(sum(batch.tokens for batch in batches if batch.examples))}
    counts = ranks.sums(own)
    losses = dict.fromkeys(names, 0.0)
    module.train()
    for number, (batch, place) in enumerate(zip(batches, places, strict=True)):
        torch.manual_seed(seed_of(settings.seed, progress.epoch, place, purpose="dropout"))
        is_last = number == len(batches) - 1
        with nullcontext() if is_last else ranks.without_exchange(module):
            with run.computing():
                sums = module(batch.to(ranks.device))
            terms = {name: sums[name] / max(1.0, counts[name]) for name in names}
            loss = sum(run.task.weights[name] * terms[name] for name in names)
            # DDP and FSDP take the mean over processes of what is a sum.
            (loss * ranks.world).backward()
        for name in names:
            losses[name] += float(terms[name].detach())
    limit = float("inf") if settings.optimiser.clip is None else settings.optimiser.clip
    norm = float(whole(clip_grad_norm_(list(trained(made)), limit)))
    losses = ranks.sums(losses)
    total = sum(run.task.weights[name] * losses[name] for name in names)
    if not (math.isfinite(total) and math.isfinite(norm)):
        what = "loss" if not math.isfinite(total) else "norm of the gradient"
        raise TrainingError(
            f"the {what} is {total if what == 'loss' else norm} at step {progress.step + 1}, epoch "
            f"{progress.epoch}, micro-batches {progress.done} to {progress.done + run.train.a_step - 1}; "
            f"{what_stays(run.folder)}. Begin in another folder with a lower optimiser.lr, a longer "
            "optimiser.warmup or precision float32."
        )
    for each in made:
        each.step()
        each.zero_grad(set_to_none=True)
    after = replace(
        progress,
        step=progress.step + 1,
        done=progress.done + run.train.a_step,
        tokens=progress.tokens + int(counts["tokens"]),
    )
    report = {
        "step": after.step,
        "steps": run.steps,
        "epoch": after.epoch,
        "tokens": after.tokens,
        "step_tokens": int(counts["tokens"]),
        "loss": total,
        "norm": norm,
    }
    return after, report | ({name: losses[name] for name in names} if len(names) > 1 else {})
