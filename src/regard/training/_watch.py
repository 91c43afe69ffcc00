"""Traces of a few texts while a network is trained, from before its first step on."""

from pathlib import Path

from torch import nn

from regard.checkpoints import Source
from regard.core.errors import InputError
from regard.models import Loaded, Transformer
from regard.tracing import Trace, trace_text
from regard.training._run import Run

FOLDER = "watch"
_COUNT = 60
_ARROW = " => "


class Watch:
    """Traces the texts of `settings.watch` after the steps that are due.

    A trace is of the network in evaluation mode and draws no random number, so a run that is watched goes to
    the same parameters as one that is not. `RUN/watch/1/step-00000250.safetensors` is that of the first text
    after step 250: all of it, in the run's own type.

    Args:
        run: the run.
        module: its task, spread over the processes.
        step: the step that it goes on from: what was traced later will be traced again.
    """

    def __init__(self, run: Run, module: nn.Module, step: int) -> None:
        texts = run.settings.watch
        self._run, self._module = run, module
        self._due = due_steps(run.steps, run.settings.watch_every) if texts else frozenset()
        if texts and run.ranks.is_first:
            for later in (run.folder / FOLDER).glob("*/step-*.safetensors"):
                if step_of(later) > step:
                    later.unlink()

    def look(self, step: int) -> None:
        """Trace the texts, if this step is due.

        Raises:
            InputError: a text that the network cannot read.
            OutputError: a trace cannot be written.
        """
        if step not in self._due:
            return
        ranks = self._run.ranks
        network = ranks.gathered(self._run.task.saved, self._module)
        ranks.together(lambda: self._write(network, step))

    def _write(self, network: Transformer, step: int) -> None:
        run = self._run
        loaded = Loaded(
            network=network,
            tokenizer=run.task.tokenizer,
            source=Source(name=f"{run.family}, {run.settings.objective}", folder=run.folder, kind="folder"),
            family=run.family,
            left_out=(),
        )
        network.eval()  # a step begins with training mode
        for number, text in enumerate(run.settings.watch, start=1):
            folder = run.folder / FOLDER / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            _traced(loaded, text).save(folder / f"step-{step:08}.safetensors")


def _traced(loaded: Loaded, text: str) -> Trace:
    """The trace of a text; of an encoder-decoder, "what it reads => what it writes"."""
    read, _, written = text.partition(_ARROW) if len(loaded.network.prefixes) == 2 else (text, "", "")
    try:
        return trace_text(loaded, read, target=written or None)
    except InputError as error:
        raise InputError(f"watch: {text!r} cannot be traced: {error}") from error


def due_steps(steps: int, every: int | None = None) -> frozenset[int]:
    """The steps after which texts are traced; 0 is before the first.

    Without `every` the i-th of 60 is steps x (i / 60)^2: a network changes most in the beginning, and heads
    that emerge late are still met in time.

    Example:
        >>> sorted(due_steps(2000))[:8], len(due_steps(2000))
        ([0, 1, 2, 5, 9, 14, 20, 27], 61)
        >>> sorted(due_steps(10, 4))
        [0, 4, 8, 10]
    """
    if every is not None:
        return frozenset({*range(0, steps, every), steps})
    return frozenset(round(steps * (place / _COUNT) ** 2) for place in range(_COUNT + 1))


def step_of(file: Path) -> int:
    """The step of a trace, by its name.

    Example:
        >>> step_of(Path("watch/1/step-00000250.safetensors"))
        250
    """
    return int(file.stem.removeprefix("step-"))
