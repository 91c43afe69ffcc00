"""Whether the largest step of a run fits in memory, before the first one."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from regard.core.memory import check_room
from regard.training._batch import Row
from regard.training._feed import Feed
from regard.training._run import Run
from regard.training._sampler import generator

_LONGEST = 4096
"""Tokens of the row that is tried: what a longer one keeps grows at least in proportion."""


def check_fits(run: Run) -> None:
    """Refuse a run whose largest micro-batch would not fit beside the optimiser's moments.

    One row of it is run, then two. What autograd keeps of them for the backward pass is counted, and from
    that follows what it keeps of all. Logits, gradients, and what a step needs for a moment only, are left
    out: what is refused would not have fitted.
    """
    if run.ranks.device.type != "cpu":  # a GPU that has no memory left says so
        return
    largest = _largest(run.train)
    parameters = [each for each in run.task.parameters() if each.requires_grad]
    moments = 1 if run.settings.optimiser.name == "muon" else 2
    held = moments * sum(each.numel() * each.element_size() for each in parameters)
    divided = run.ranks.world if run.settings.shard else 1
    rows = "1 row" if largest.rows == 1 else f"{largest.rows:,} rows"
    check_room(
        f"training on {rows} of {largest.length:,} tokens at once",
        held // divided + _kept(run, largest),
        run.ranks.device,
        "lower batch.rows, batch.tokens or batch.length, and raise batch.accumulate by as much",
    )


class _Largest(NamedTuple):
    """The micro-batch of the first epoch with the most positions, and the longest of its rows."""

    rows: int
    length: int
    row: Row


def _largest(feed: Feed) -> _Largest:
    length = feed.form.length
    rows, item = max(
        ((len(picked), max(picked, key=length)) for picked in feed.form.plan(seed=feed.seed, epoch=0)),
        key=lambda each: each[0] * length(each[1]),
    )
    return _Largest(rows=rows, length=length(item), row=feed.form.row(item))


def _kept(run: Run, largest: _Largest) -> int:
    """Bytes that autograd keeps of the micro-batch: a part for each row, and a part that there is once."""
    row, share = largest.row, 1.0
    if largest.length > _LONGEST:  # its beginning
        longest = max(row, key=lambda example: max(len(example[name]) for name in run.task.sized))
        cut: Any = run.task.cut(cast(Any, longest), _LONGEST)
        row, share = ({name: np.asarray(cut[name]) for name in cut},), largest.length / _LONGEST
    one, two = (_kept_of(run, [row] * rows) for rows in (1, 2))
    each = two - one
    return int(one - each + share * largest.rows * each)


def _kept_of(run: Run, rows: Sequence[Row]) -> int:
    """Up to the last hidden state: of many rows the logits are made in pieces, and none is kept."""
    # Autograd keeps references to the weights too, which take no memory of their own.
    weights = {each.untyped_storage().data_ptr() for each in run.task.state_dict().values()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    run.task.train()
    draw = generator(0, purpose="batch")
    batch = run.task.batch(rows, [[draw] * len(row) for row in rows])
    # By storage: views of one tensor are kept once.
    with saved_tensors_hooks(keep, lambda tensor: tensor), run.computing():
        state = run.task.state(batch)  # holds what is kept until it has been counted
    del state
    return sum(size for place, size in kept.items() if place not in weights)
