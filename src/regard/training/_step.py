"""One step of the optimiser: forward, backward, clip, move; and the optimisers that move the parameters."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW, Muon, Optimizer
from torch.overrides import TorchFunctionMode

from regard.core.errors import TrainingError
from regard.training._batch import Batch
from regard.training._checkpoints import RunState, what_stays
from regard.training._feed import Picked, seed_of
from regard.training._ranks import full_tensor
from regard.training._run import Run, rate_of
from regard.training._settings import OptimiserSettings


def take_step(
    run: Run, module: nn.Module, made: Sequence[Optimizer], picked: Sequence[Picked], progress: RunState
) -> tuple[RunState, dict[str, Any]]:
    """One step on this process's micro-batches: where the run stands afterwards, and the step's report.

    `module` is the task as it is spread over the processes, `made` its optimisers. A loss or a gradient that
    is no number is a TrainingError, and nothing has moved.
    """
    # The terms of the loss, and this process's first place in the epoch.
    names, first = tuple(run.task.weights), progress.done + run.ranks.rank
    places = [first + number * run.ranks.world for number in range(len(picked))]
    batches = [
        run.train.batch(each, progress.epoch, place) for each, place in zip(picked, places, strict=True)
    ]
    # Every target of the step weighs the same, whichever micro-batch and process it is in: so the sums of
    # losses are divided by the targets of all of them, which must be known before the first backward pass.
    own = {name: float(sum(batch.counts[name] for batch in batches)) for name in names}
    # A process that has no batch left runs a stand-in, without examples, whose tokens were not read.
    own |= {"tokens": float(sum(batch.tokens for batch in batches if batch.examples))}
    counts = run.ranks.sums(own)
    losses = run.ranks.sums(_add_gradients(run, module, batches, places, counts, progress.epoch))
    parameters, clip = list(_trained(made)), run.settings.optimiser.clip
    # The length of all gradients together.
    length = get_total_norm([each.grad for each in parameters if each.grad is not None])
    norm = float(full_tensor(length))
    total = sum(run.task.weights[name] * losses[name] for name in names)
    # Before anything moves.
    _check_finite(run, progress, {"loss": total, "norm of the gradient": norm})
    # Scaled down to the length `clip`.
    if clip is not None and norm > clip:
        clip_grads_with_norm_(parameters, clip, length)
    for each in made:
        each.step()
    for parameter in parameters:
        # Freed, not set to zero.
        parameter.grad = None
    after = replace(
        progress,
        step=progress.step + 1,
        done=progress.done + run.train.per_step,
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
    return after, report | (losses if len(names) > 1 else {})


def _add_gradients(
    run: Run,
    module: nn.Module,
    batches: Sequence[Batch],
    places: Sequence[int],
    counts: dict[str, float],
    epoch: int,
) -> dict[str, float]:
    """Forward and backward of each micro-batch; returns this process's part of each term of the loss."""
    weights = run.task.weights
    losses = dict.fromkeys(weights, 0.0)
    # Scoring in between has turned it off.
    module.train()
    for batch, place in zip(batches, places, strict=True):
        # Dropout is a function of the place in the run, so that a run that was killed draws the same again.
        # torch.manual_seed notes for each GPU that is not there who called, which takes 0.2 ms.
        is_on_gpu = run.ranks.device.type == "cuda"
        reseed = torch.manual_seed if is_on_gpu else torch.default_generator.manual_seed
        reseed(seed_of(run.settings.seed, epoch, place, purpose="dropout"))
        # Gradients of several micro-batches are exchanged once, with the last.
        is_last = batch is batches[-1]
        with nullcontext() if is_last else run.ranks.without_exchange(module):
            with run.computing():
                sums = module(batch.to(run.ranks.device))
            # A step may have no target of a kind, as where no word was masked: its loss is 0 then.
            terms = {name: sums[name] / max(1.0, counts[name]) for name in weights}
            loss = sum(weight * terms[name] for name, weight in weights.items())
            # DDP and FSDP take the mean over processes of what is a sum.
            (loss * run.ranks.world).backward()
        for name in weights:
            losses[name] += float(terms[name].detach())
    return losses


def _check_finite(run: Run, progress: RunState, found: dict[str, float]) -> None:
    """Refuse a step whose loss or gradient is no number, in time to keep the parameters."""
    for what, value in found.items():
        if not math.isfinite(value):
            raise TrainingError(
                f"the {what} is {value} at step {progress.step + 1}, epoch {progress.epoch}, micro-batches "
                f"{progress.done} to {progress.done + run.train.per_step - 1}; {what_stays(run.folder)}. "
                "Begin in another folder with a lower optimiser.lr, a longer optimiser.warmup or precision "
                "float32."
            )


def optimisers(task: nn.Module, settings: OptimiserSettings) -> list[Optimizer]:
    """The optimisers of all parameters that are trained.

    Tables and matrices are pulled to zero by the weight decay; norms, biases and other vectors are not. With
    "muon" the matrices inside the layers are Muon's: each update is made orthogonal, and scaled so that it is
    as large as AdamW's would be.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101 (AdamW); Jordan et al. 2024, "Muon: An optimizer for
    hidden layers in neural networks"; the scale: Liu et al. 2025, arXiv 2502.16982, section 2.2.
    """
    # Matrices within layers, other matrices, and vectors: norms and biases.
    inside: list[Tensor] = []
    others: list[Tensor] = []
    vectors: list[Tensor] = []
    for name, parameter in task.named_parameters():
        if not parameter.requires_grad:
            continue
        # Embeddings and heads are tables of vectors: Muon is for matrices that map one space to another.
        is_inside = settings.name == "muon" and parameter.ndim == 2 and ".layers." in name
        (inside if is_inside else others if parameter.ndim >= 2 else vectors).append(parameter)
    decay = settings.weight_decay
    # Norms and biases are not pulled towards 0.
    groups = [{"params": others, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    chosen: list[Optimizer] = []
    if rest := [group for group in groups if group["params"]]:
        chosen.append(AdamW(rest, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True))
    if inside:
        # Scaled so that Muon's steps are as large as AdamW's.
        peak, scale = _muon_lr(settings), "match_rms_adamw"
        chosen.append(_Muon(inside, lr=peak, weight_decay=decay, momentum=0.95, adjust_lr_fn=scale))
    return chosen


def set_learning_rate(
    made: Sequence[Optimizer], settings: OptimiserSettings, step: int, steps: int, *, schedule: str
) -> float:
    """Give every optimiser the learning rate of a step, of which 1 is the first; returns AdamW's."""
    for each in made:
        peak = _muon_lr(settings) if isinstance(each, Muon) else settings.lr
        for group in each.param_groups:
            group["lr"] = rate_of(settings, step, steps, schedule=schedule, peak=peak)
    return rate_of(settings, step, steps, schedule=schedule)


def _muon_lr(settings: OptimiserSettings) -> float:
    return settings.lr if settings.muon_lr is None else settings.muon_lr


def _trained(made: Sequence[Optimizer]) -> Iterator[Tensor]:
    """Every parameter that an optimiser moves."""
    for each in made:
        for group in each.param_groups:
            yield from group["params"]


class _Muon(Muon):
    """torch's Muon, whose products are in float32 on a processor."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with _Wide():
            return super().step(closure)  # type: ignore[no-untyped-call]


class _Wide(TorchFunctionMode):
    """While this is open, what is made bfloat16 on a processor is made float32.

    Muon takes the products by which it makes an update orthogonal in bfloat16, which is fast on a GPU. A
    processor without instructions for it takes 20 times as long as in float32.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is Tensor.bfloat16 and args[0].device.type == "cpu":
            return args[0].to(torch.float32, copy=True)  # Muon divides it in place
        return function(*args, **(kwargs or {}))
