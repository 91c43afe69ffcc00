"""Many edits of one text, each by itself: as rows of a batch, in as few passes as fit."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from regard.core.arguments import whole
from regard.models import Network, Output
from regard.tracing.edits._edit import Edit, Target
from regard.tracing.edits._network import EditedNetwork, targets_of
from regard.tracing.record import Trace
from regard.tracing.run import rerun

# Together in one pass, where nobody says how many: more are no faster, and hold more.
_TOKENS, _LOGITS = 1 << 11, 1 << 26


def outputs_of(
    network: Network,
    trace: Trace,
    variants: Sequence[Edit | None],
    *,
    batch: int | None = None,
    logits: bool = True,
) -> Iterator[Output]:
    """What a network gives on a trace's text with each edit by itself, in order, without gradients.

    The variant None is no edit. By default, as many run in one pass (`batch`) as have 2,048 tokens, and 2^26
    logits, together.
    """
    rows = _fitting(network, trace, logits) if batch is None else whole("batch", batch, least=1)
    known = [edit for edit in variants if edit is not None]
    targets: dict[Edit, list[Target]] = {edit: [] for edit in known}
    for target in targets_of(network, known):
        targets[target.edit].append(target)
    for first in range(0, len(variants), rows):
        together = variants[first : first + rows]
        writes = [
            replace(target, row=row)
            for row, edit in enumerate(together)
            if edit is not None
            for target in targets[edit]
        ]
        edited = EditedNetwork(network, writes)
        with torch.no_grad():
            output = rerun(trace, edited, batch=len(together), logits=logits)
        for row in range(len(together)):
            yield _row(output, row)


def _fitting(network: Network, trace: Trace, logits: bool) -> int:
    tokens = sum(len(trace.stack(stack).encoding.tokens) for stack in network.prefixes)
    has_logits = logits and "logits" in network.tap_names()
    most = min(_TOKENS, _LOGITS // network.config.vocab_size) if has_logits else _TOKENS
    return max(1, most // tokens)


def _row(output: Output, row: int) -> Output:
    """One text's part of what a batch gave."""
    given = {each.name: getattr(output, each.name) for each in fields(output)}
    rows = {name: value[row : row + 1] for name, value in given.items() if isinstance(value, Tensor)}
    return replace(output, **rows)
