"""Learning rates: pure functions of the step, so that nothing of them needs to be saved."""

import math
from collections.abc import Callable, Mapping

from regard.core.arguments import one_of
from regard.training._settings import OptimiserSettings

Schedule = Callable[[int, int, int], float]
"""From the step (1 is the first), the steps of warming up and all steps to a share of the peak, 0 to 1."""


def constant(step: int, warmup: int, steps: int) -> float:
    """min(1, s / w)."""
    del steps
    return min(1.0, step / max(1, warmup))


def inverse_sqrt(step: int, warmup: int, steps: int) -> float:
    """min(s / w, sqrt(w / s)): the schedule of "Attention is all you need", as a share of its peak.

    There the peak is 1 / sqrt(d_model w), which `lr` replaces.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 5.3, equation 3.
    """
    del steps
    width = max(1, warmup)
    return min(step / width, math.sqrt(width / step))


def cosine(step: int, warmup: int, steps: int) -> float:
    """s / w, then (1 + cos(pi t)) / 2, where t goes from 0 after warming up to 1 one step after the last.

    Source: Loshchilov and Hutter 2017, arXiv 1608.03983, equation 5, without restarts.
    """
    return min(step / max(1, warmup), (1.0 + math.cos(math.pi * _through(step, warmup, steps))) / 2.0)


def linear(step: int, warmup: int, steps: int) -> float:
    """s / w, then 1 - t, with t as in `cosine`: the last step still moves.

    Source: Devlin et al. 2019, arXiv 1810.04805, appendix A.2.
    """
    return min(step / max(1, warmup), 1.0 - _through(step, warmup, steps))


def stable(step: int, warmup: int, steps: int) -> float:
    """Warm-up, stable, decay: s / w, then 1, then over the last fifth of the steps 1 - sqrt(t).

    Source: Hu et al. 2024, arXiv 2404.06395, section 4; the decay by a square root: Haegele et al. 2024,
    arXiv 2405.18392, section 3.
    """
    begin = steps - max(1, steps // 5)
    return min(step / max(1, warmup), 1.0 - math.sqrt(_through(step, begin, steps)))


SCHEDULES: Mapping[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "stable": stable,
}
"""By the name that settings give."""


def learning_rate(
    name: str, step: int, *, peak: float, floor: float = 0.0, warmup: int = 0, steps: int = 1
) -> float:
    """The learning rate of one step: floor + (peak - floor) share after warming up, peak share before.

    Args:
        name: "constant", "cosine", "inverse-sqrt", "linear" or "stable".
        step: 1 is the first.
        peak: where the share is 1.
        floor: what it would be one step after the last; of "constant" and "inverse-sqrt", below which it
            does not fall.
        warmup: steps that it rises over.
        steps: of the whole training.

    Raises:
        InputError: an unknown schedule.

    Example:
        >>> round(learning_rate("cosine", 1050, peak=1e-3, floor=1e-4, warmup=100, steps=1999), 6)
        0.00055
    """
    share = SCHEDULES[one_of("schedule", name, SCHEDULES)](step, warmup, steps)
    if step < warmup:  # from 0, not from the floor
        return peak * share
    if name == "inverse-sqrt":
        return max(floor, peak * share)
    return floor + (peak - floor) * share


def rate_of(
    settings: OptimiserSettings, step: int, steps: int, *, schedule: str, peak: float | None = None
) -> float:
    """The learning rate of a step by the settings; `schedule` is the objective's, where they name none."""
    top = settings.lr if peak is None else peak
    return learning_rate(
        settings.schedule or schedule,
        step,
        peak=top,
        floor=settings.floor * top,
        warmup=steps // 10 if settings.warmup is None else settings.warmup,
        steps=steps,
    )


def has_same_rates(settings: OptimiserSettings, done: int, one: int, other: int, *, schedule: str) -> bool:
    """Whether the steps done had the same learning rates in a run of `one` and in one of `other` steps."""
    return all(
        rate_of(settings, step, one, schedule=schedule) == rate_of(settings, step, other, schedule=schedule)
        for step in range(1, done + 1)
    )


def _through(step: int, begin: int, steps: int) -> float:
    """How far a step is between the last at the peak and the first after the run."""
    begin = max(1, begin)
    return min(1.0, max(0.0, (step - begin) / max(1, steps + 1 - begin)))
