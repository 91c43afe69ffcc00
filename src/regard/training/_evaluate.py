"""Scores of a task on a set."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import InputError
from regard.training._batch import Batch
from regard.training._feed import Feed
from regard.training._run import Run


def evaluate(module: nn.Module, run: Run, feed: Feed) -> dict[str, float]:
    """Run every example of a set once, and make scores of what is summed up.

    Args:
        module: the task as it is spread over the processes.
        run: the run.
        feed: the set, which the processes share.

    Returns:
        Scores by name; the same on every process, and, but for rounding, for every number of processes.
    """
    scores = run.task.scores(sums_over(module, run, feed.in_order()))
    return scores | written(module, run) if run.task.samples else scores


def check_best(module: nn.Module, run: Run) -> None:
    """Refuse a score to decide that there will not be, at the cost of one batch.

    Raises:
        InputError: `best` is none of the scores.
    """
    if run.settings.best is not None and run.valid is not None:
        scores = run.task.scores(sums_over(module, run, islice(run.valid.in_order(), 1)))
        names = [*scores, *run.task.signatures]
        if run.best not in names:
            raise InputError(f"best must be {' or '.join(names)}; got {run.best!r}.")


def written(module: nn.Module, run: Run) -> dict[str, float]:
    """Scores of what the network writes itself: the first process lets it write, the others wait."""
    network = run.ranks.gathered(run.task.saved, module)
    found: dict[str, float] = {}

    def write() -> None:
        with run.computing():
            found.update(run.task.written(network.to(run.ranks.device), run.samples))

    run.ranks.together(write)
    return dict(run.ranks.from_first(found))


@torch.no_grad()
def sums_over(
    module: nn.Module, run: Run, batches: Iterable[Batch], on_tokens: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """What an objective sums over batches, of all processes: numbers, and nested lists of them.

    Args:
        module: the task as it is spread over the processes.
        run: the run.
        batches: those of this process.
        on_tokens: is told after each batch how many tokens have been read.
    """
    tokens = 0
    module.eval()
    sums: dict[str, Tensor] = {}
    for batch in batches:
        with run.computing():
            found = module(batch.to(run.ranks.device))
        found |= {f"targets.{name}": torch.tensor(count) for name, count in batch.counts.items()}
        for name, value in found.items():
            sums[name] = sums.get(name, torch.zeros(())) + value.detach().cpu().double()
        tokens += batch.tokens
        on_tokens(tokens)
    module.train()
    flat = torch.cat([each.flatten() for each in sums.values()]).tolist()
    added = run.ranks.sums({str(place): value for place, value in enumerate(flat)})
    sizes = [each.numel() for each in sums.values()]
    parts = torch.split(torch.tensor(list(added.values()), dtype=torch.float64), sizes)
    whole = {name: part.reshape(sums[name].shape).tolist() for name, part in zip(sums, parts, strict=True)}
    return {**whole, "bytes": float(run.bytes)}
