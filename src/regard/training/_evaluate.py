"""Scores of a task on a set."""

from collections import defaultdict

import torch
from torch import nn

from regard.training._feed import Feed
from regard.training._run import Run


@torch.no_grad()
def evaluate(module: nn.Module, run: Run, feed: Feed) -> dict[str, float]:
    """Run every example of a set once, keep sums alone, and make scores of them.

    Args:
        module: the task as it is spread over the processes.
        run: the run.
        feed: the set, which the processes share.

    Returns:
        Scores by name; the same on every process, and, but for rounding, for every number of processes.
    """
    module.eval()
    sums: dict[str, float] = defaultdict(float, dict.fromkeys(run.task.summed, 0.0))
    for batch in feed.in_order():
        with run.computing():
            found = module(batch.to(run.ranks.device))
        for name, value in found.items():
            sums[name] += float(value)
        for name, count in batch.counts.items():
            sums[f"targets.{name}"] += count
    module.train()
    return run.task.scores({**run.ranks.sums(sums), "bytes": float(run.bytes)})
