"""Tensors from a checkpoint into a network, all or none, and back under their names on disk."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.checkpoints._keymap import KeyMap
from regard.checkpoints._tensors import TensorReader
from regard.checkpoints._wording import joined
from regard.core.errors import CheckpointError, InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadReport:
    """What of a checkpoint did not go into the network, by names on disk, sorted.

    Attributes:
        left_out: tensors that the network does not hold, such as the heads of other tasks.
        buffers: stored constants, which the network computes itself.
    """

    left_out: tuple[str, ...]
    buffers: tuple[str, ...]


def load_into(
    module: nn.Module,
    reader: TensorReader,
    keymap: KeyMap,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> LoadReport:
    """Give a network the weights of a checkpoint.

    Names, shapes and types are all compared first, and everything that does not fit is reported in one error;
    the network is changed only when all fits. The tensors are the reader's own, without a second copy, unless
    `dtype` or `device` ask for one; whether a parameter requires a gradient stays as it was. Parameters that
    the network ties stay tied: one of their names on disk is enough, and several must agree.

    Args:
        module: the network; it may be on the meta device.
        reader: the checkpoint.
        keymap: the family's names.
        dtype: a floating type to convert to; None keeps the stored one.
        device: where to put the tensors; None keeps each where the network has it (the CPU, if that is meta).

    Raises:
        InputError: `dtype` is not a floating type.
        CheckpointError: the checkpoint does not fit the network.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from regard.checkpoints import Rename, read_tensors, write_tensors
    >>> keymap = KeyMap(rules=(Rename("dense.{part}", "{part}"),), left_out=("head.",))
    >>> with torch.device("meta"):
    ...     network = nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = {"dense.weight": torch.ones(1, 2), "dense.bias": torch.zeros(1), "head.w": torch.ones(3)}
    ...     _ = write_tensors(stored, Path(folder) / "model.safetensors")
    ...     load_into(network, read_tensors(folder), keymap)
    LoadReport(left_out=('head.w',), buffers=())
    >>> network.weight.tolist()
    [[1.0, 1.0]]
    """
    if dtype is not None and not dtype.is_floating_point:
        raise InputError(f"dtype must be a floating type such as torch.float32, got {dtype}")
    wanted = _state(module)
    groups = _tied(wanted)
    plan = _Plan(taken={}, left_out=[], buffers=[], problems=[])
    _match_names(plan, wanted, groups, reader, keymap)
    _check_tensors(plan, wanted, reader, keep_dtype=dtype is None)
    _check_ties(plan, groups, reader)
    if plan.problems:
        raise CheckpointError(
            f"{reader.folder}: the weights do not fit the network; {'; '.join(plan.problems)}"
        )

    state: dict[str, Tensor] = {}
    for group in groups:
        target = wanted[group[0]]
        stored = reader.read(next(plan.taken[name] for name in group if name in plan.taken))
        place = device or ("cpu" if target.is_meta else target.device)
        tensor = stored.to(device=place, dtype=dtype if stored.is_floating_point() else None)
        if isinstance(target, nn.Parameter):
            tensor = nn.Parameter(tensor, requires_grad=target.requires_grad)
        state |= dict.fromkeys(group, tensor)
    module.load_state_dict(state, assign=True)
    return LoadReport(left_out=tuple(sorted(plan.left_out)), buffers=tuple(sorted(plan.buffers)))


def to_hf(module: nn.Module, keymap: KeyMap) -> dict[str, Tensor]:
    """A network's tensors under their names on disk: what `write_tensors` takes, and `load_into` reads back.

    The tensors are the network's own, not copies. Tied parameters come once, under the first of their names
    that the map has.

    Raises:
        CheckpointError: the map has no name for some of them, or the same name for two.

    >>> from regard.checkpoints import Rename
    >>> sorted(to_hf(nn.Linear(2, 1), KeyMap(rules=(Rename("dense.{part}", "{part}"),))))
    ['dense.bias', 'dense.weight']
    """
    held = _state(module)
    stored: dict[str, Tensor] = {}
    for group in _tied(held):
        name = _name_on_disk(group, keymap)
        if name in stored:
            raise CheckpointError(
                f"the key map is ambiguous: two tensors of the network are {name!r} on disk"
            )
        stored[name] = held[group[0]].detach()
    return stored


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """Which tensor on disk becomes which of the network's, and all that is wrong with that."""

    taken: dict[str, str]  # from the network's name to the name on disk
    left_out: list[str]
    buffers: list[str]
    problems: list[str]

    def report(self, what: str, items: Sequence[str]) -> None:
        if items:
            self.problems.append(f"{what}: {joined(sorted(items))}")


def _state(module: nn.Module) -> dict[str, Tensor]:
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def _tied(state: dict[str, Tensor]) -> list[list[str]]:
    """The names of each tensor: more than one where the network uses it in several places."""
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def _name_on_disk(group: list[str], keymap: KeyMap) -> str:
    for name in group[:-1]:
        try:
            return keymap.to_hf(name)
        except CheckpointError:
            continue
    return keymap.to_hf(group[-1])


def _match_names(
    plan: _Plan, wanted: dict[str, Tensor], groups: list[list[str]], reader: TensorReader, keymap: KeyMap
) -> None:
    unexpected, doubled = [], []
    for stored in reader.names():
        ours = keymap.to_ours(stored)
        if ours in wanted:
            if ours in plan.taken:
                doubled.append(f"{plan.taken[ours]} and {stored}")
            plan.taken[ours] = stored
        elif keymap.is_buffer(stored):
            plan.buffers.append(stored)
        elif keymap.leaves_out(stored):
            plan.left_out.append(stored)
        else:
            unexpected.append(stored)
    prefixes = {keymap.prefix_of(stored) for stored in plan.taken.values()}
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    missing = [
        prefix + _name_on_disk(group, keymap) for group in groups if not plan.taken.keys() & set(group)
    ]
    plan.report("missing", missing)
    plan.report("unexpected", unexpected)
    plan.report("two names for one tensor", doubled)


def _check_tensors(plan: _Plan, wanted: dict[str, Tensor], reader: TensorReader, *, keep_dtype: bool) -> None:
    shapes, types = [], []
    floating: Counter[torch.dtype] = Counter()
    for ours, stored in plan.taken.items():
        target, shape, dtype = wanted[ours], reader.shape(stored), reader.dtype(stored)
        if shape != tuple(target.shape):
            shapes.append(f"{stored} (wanted {list(target.shape)}, got {list(shape)})")
        if dtype.is_floating_point and target.dtype.is_floating_point:
            floating[dtype] += 1
        elif dtype != target.dtype:
            kind = "a floating type" if target.dtype.is_floating_point else target.dtype
            types.append(f"{stored} (wanted {kind}, got {dtype})")
    plan.report("of the wrong shape", shapes)
    plan.report("of the wrong type", types)
    if keep_dtype and len(floating) > 1:
        counts = ", ".join(f"{count} in {dtype}" for dtype, count in floating.most_common())
        plan.problems.append(f"stored in several types ({counts}): pass dtype= to choose one")


def _check_ties(plan: _Plan, groups: list[list[str]], reader: TensorReader) -> None:
    differing = []
    for group in groups:
        first, *others = [plan.taken[name] for name in group if name in plan.taken] or [""]
        differing += [
            f"{first} and {other}" for other in others if not _equal(reader.read(first), reader.read(other))
        ]
    plan.report("different, though the network ties them", differing)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)
