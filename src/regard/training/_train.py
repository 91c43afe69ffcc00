"""Training: from a batch to a step, from steps to a model."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from regard.core.arguments import path_of
from regard.core.memory import check_room
from regard.training._batch import Row
from regard.training._checkpoints import Checkpoints
from regard.training._feed import Feed, generator
from regard.training._folder import CHECKPOINTS, Say, in_words
from regard.training._journal import Journal, Watch
from regard.training._ranks import Ranks
from regard.training._result import Result, check_model, describe, finish, write_model
from regard.training._run import Run, prepare
from regard.training._scoring import check_best, evaluate
from regard.training._settings import Settings
from regard.training._step import optimisers, set_learning_rate, take_step

Report = Mapping[str, Any]
"""What a step or a score reports: "step", then numbers by name."""

_LONGEST = 4096
"""Tokens of the row that is tried: what a longer one keeps grows at least in proportion."""


def train(
    settings: Settings,
    folder: str | Path,
    *,
    on_report: Callable[[Report], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Result:
    """Train a network, or go on where the run in that folder stopped.

    Each step, over its micro-batches and all processes:

        loss = sum over terms of weight x (sum over targets) / (number of targets in the whole step)
        gradient = d loss / d parameters, no longer than `optimiser.clip`
        the optimiser moves the parameters

    Everything random is a function of the seed and the place in the run. So a run that was killed goes on to
    the same parameters, bit for bit, as one that was not, on the same machine and number of processes.

    Args:
        settings: what is trained, on what, and how.
        folder: of the run: a new one, or one in which a run with these settings stopped. Its steps may be
            others, if the learning rates so far are the same.
        on_report: gets the report of each step and of each score.
        on_message: gets what is being done, in words.

    Returns:
        Where the model is, and its scores.

    Raises:
        InputError: settings that contradict each other, data that cannot be used, or more memory than there
            is.
        TrainingError: the loss is no number any more, or memory ran out; the last checkpoint stays.
        OutputError: a checkpoint cannot be written; the last one stays.

    Example:
        >>> import pathlib, tempfile
        >>> from regard.training import read_settings, train
        >>> place = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (place / "text.txt").write_text("the cat sat on the mat\\n" * 50)
        >>> settings = read_settings("clm", data={"train": [str(place / "text.txt")]}, steps=2,
        ...     tokenizer={"kind": "characters"}, batch={"length": 16, "rows": 2},
        ...     model={"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 11})
        >>> train(settings, place / "run").step
        2
    """
    # The other processes are found before anything is read.
    ranks = Ranks()
    say = on_message if ranks.is_first else lambda _: None
    try:
        with in_words(choose=ranks.once), prepare(settings, path_of("folder", folder), ranks, say) as run:
            return _train(run, on_report, say)
    finally:
        ranks.end()


def _train(run: Run, on_report: Callable[[Report], None], say: Say) -> Result:
    settings, ranks = run.settings, run.ranks
    # In memory, before the parameters are moved or divided.
    check_fits(run)
    module = ranks.spread(run.task, shard=settings.shard)
    # After `spread`: optimisers hold the parameters as they are divided.
    chosen = optimisers(module, settings.optimiser)
    checkpoints = Checkpoints(run.folder / CHECKPOINTS, keep=settings.keep, ranks=ranks)
    progress = checkpoints.load_last(module, chosen, say)
    if ranks.is_first:
        for line in describe(run):
            say(line)
    if progress.step:
        say(f"going on from step {progress.step:,} of {run.steps:,}")
    else:
        # A new run: writing and reading the model is tried once.
        check_model(run, module)
    check_best(module, run)
    watch = Watch(run, module, progress.step)
    # Also before the first step.
    watch.look(progress.step)

    with Journal(run.folder, step=progress.step, ranks=ranks, on_report=on_report, say=say) as journal:
        while not run.is_over(progress):
            for picked in run.train.steps(progress.epoch, done=progress.done):
                began = time.perf_counter()
                # One step: rate, gradients, move; then what is due.
                rate = set_learning_rate(
                    chosen, settings.optimiser, progress.step + 1, run.steps, schedule=run.task.schedule
                )
                progress, report = take_step(run, module, chosen, picked, progress)
                journal.write(report | {"lr": rate, "seconds": time.perf_counter() - began})
                watch.look(progress.step)

                is_scored = run.is_due(settings.evaluate_every, progress.step)
                # Scores come before the checkpoint, which then holds the best.
                if is_scored and run.valid is not None:
                    scores = evaluate(module, run, run.valid)
                    journal.write({"step": progress.step, **{f"valid_{key}": scores[key] for key in scores}})
                    progress = run.judged(progress, scores)
                    if progress.best_step == progress.step:
                        write_model(run, module, progress.step, scores)
                if is_scored or run.is_due(settings.save_every, progress.step):
                    # The lines first: where a checkpoint is on disk, so are the lines of its steps.
                    journal.to_disk()
                    checkpoints.save(module, chosen, progress)
                # Within an epoch: `else` below is then passed over.
                if run.is_over(progress):
                    break
            else:  # the epoch has ended, and the run has not
                progress = replace(progress, epoch=progress.epoch + 1, done=0)
    return finish(run, module, checkpoints, progress)


def check_fits(run: Run) -> None:
    """Refuse a run whose largest micro-batch would not fit beside the optimiser's moments.

    One row of it is run, then two. What autograd keeps of them for the backward pass is counted, and from
    that follows what it keeps of all. Logits, gradients, and what a step needs for a moment only, are left
    out: what is refused would not have fitted.
    """
    if run.ranks.device.type != "cpu":  # a GPU that has no memory left says so
        return
    # The first epoch stands for all.
    largest = _largest(run.train)
    parameters = [each for each in run.task.parameters() if each.requires_grad]
    # Muon keeps one number for each parameter, AdamW two.
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
    # Rows times the longest row.
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
    # One row and two: the difference is what a row takes.
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
        # Called by autograd for each tensor that it keeps.
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
