"""AdamW and Muon, torch's own, over groups of parameters."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer
from torch.overrides import TorchFunctionMode

from regard.training._schedules import learning_rate
from regard.training._settings import OptimiserSettings


def optimisers(task: nn.Module, settings: OptimiserSettings) -> list[Optimizer]:
    """The optimisers of all parameters that are trained.

    Tables and matrices are pulled to zero by the weight decay; norms, biases and other vectors are not. With
    "muon" the matrices inside the layers are Muon's: each update is made orthogonal, and scaled so that it is
    as large as AdamW's would be.

    Args:
        task: what is trained.
        settings: which, and how.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101 (AdamW); Jordan et al. 2024, "Muon: An optimizer for
    hidden layers in neural networks"; the scale: Liu et al. 2025, arXiv 2502.16982, section 2.2.
    """
    inside: list[Tensor] = []
    others: list[Tensor] = []
    vectors: list[Tensor] = []
    for name, parameter in task.named_parameters():
        if not parameter.requires_grad:
            continue
        is_inside = settings.name == "muon" and parameter.ndim == 2 and ".layers." in name
        (inside if is_inside else others if parameter.ndim >= 2 else vectors).append(parameter)
    groups = [
        {"params": others, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    made: list[Optimizer] = []
    if inside:
        made.append(
            _Muon(
                inside,
                lr=_muon_lr(settings),
                weight_decay=settings.weight_decay,
                momentum=0.95,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    rest = [group for group in groups if group["params"]]
    if rest:
        made.insert(0, AdamW(rest, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True))
    return made


def set_learning_rate(
    made: Sequence[Optimizer], settings: OptimiserSettings, step: int, steps: int, *, schedule: str
) -> float:
    """Give every optimiser the learning rate of a step; returns AdamW's.

    Args:
        made: by `optimisers`.
        settings: the peak and the schedule.
        step: 1 is the first.
        steps: in all.
        schedule: where the settings name none.
    """
    name = settings.schedule or schedule
    for each in made:
        peak = _muon_lr(settings) if isinstance(each, Muon) else settings.lr
        for group in each.param_groups:
            group["lr"] = _rate(settings, step, steps, peak, name)
    return _rate(settings, step, steps, settings.lr, name)


def has_same_rates(settings: OptimiserSettings, done: int, one: int, other: int, *, schedule: str) -> bool:
    """Whether the steps done had the same learning rates in a run of `one` and in one of `other` steps."""
    name = settings.schedule or schedule
    return all(
        _rate(settings, step, one, settings.lr, name) == _rate(settings, step, other, settings.lr, name)
        for step in range(1, done + 1)
    )


def _rate(settings: OptimiserSettings, step: int, steps: int, peak: float, schedule: str) -> float:
    warmup = steps // 10 if settings.warmup is None else settings.warmup
    floor = settings.floor * peak
    return learning_rate(schedule, step, peak=peak, floor=floor, warmup=warmup, steps=steps)


def _muon_lr(settings: OptimiserSettings) -> float:
    return settings.lr if settings.muon_lr is None else settings.muon_lr


def trained(made: Sequence[Optimizer]) -> Iterator[Tensor]:
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
