"""How far a training run is: loss, speed and the time left, on stderr."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from regard.cli._progress import Progress, duration

_MEAN_OF = 50  # steps that loss and speed are the mean of


class TrainingProgress(Progress):
    """Loss, speed and the time left; each score is a line of its own."""

    def __init__(self) -> None:
        super().__init__("steps")
        self._last: deque[tuple[float, float, int]] = deque(maxlen=_MEAN_OF)  # loss, seconds, tokens

    def report(self, report: Mapping[str, Any]) -> None:
        """The report of a step, or of a score."""
        if "loss" not in report:
            scores = {name.removeprefix("valid_"): value for name, value in report.items() if name != "step"}
            told = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())
            self.tell(f"step {report['step']:,}: {told}")
            return
        self._last.append((report["loss"], report["seconds"], report["step_tokens"]))
        losses, seconds, tokens = (sum(each) for each in zip(*self._last, strict=True))
        count, step, steps = len(self._last), report["step"], report["steps"]
        rate = tokens / max(seconds, 1e-9)
        done = f"step {step:,} of {steps:,}"
        left = duration((steps - step) * seconds / count)
        rest = f"loss {losses / count:.4f}, {rate:,.0f} tokens/s, {left} left"
        self.draw(done, step, steps, rest)
