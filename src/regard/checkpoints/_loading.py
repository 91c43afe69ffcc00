"""The tensors of a checkpoint into a network, all or none, and back to disk."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from regard.checkpoints._keymap import KeyMap, Rename, Shared
from regard.checkpoints._plan import Plan, make_plan, packed_place, read_place, state_of, tied, written_as
from regard.checkpoints._tensors import TensorReader
from regard.checkpoints.gguf import Packed
from regard.core.errors import CheckpointError, InputError
from regard.core.wording import joined


class Packing(Protocol):
    """Who takes weights of a network in the blocks that they are stored in."""

    def takes(self, name: str) -> bool:
        """Whether the weight of that name can stay in blocks."""
        ...

    def put(self, name: str, packed: Packed) -> None:
        """Give the network the weight of that name."""
        ...


# What DataParallel, torch.compile, FSDP and the like put before a module's names, wherever it stands.
_TORCH = re.compile(
    r"(?<![^.])(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
)


def unwrapped(reader: TensorReader, keymap: KeyMap) -> tuple[TensorReader, tuple[str, ...]]:
    """A checkpoint by the family's names, and what was taken off the stored ones for that.

    The names of torch's wrappers go wherever they stand; then one beginning that most names have, such as
    `model.` of a class with the network in a field, where more of them are the family's without it. Where two
    names would become one, nothing goes.
    """
    # New name -> stored name; at first each its own.
    stored = {name: name for name in reader.names()}

    def known(names: dict[str, str]) -> int:
        fit = sum(keymap.match(name) is not None or keymap.shared_by(name) is not None for name in names)
        # -1 where two names have become one: then they are not to be used.
        return fit if len(names) == len(stored) else -1

    # The usual case, which costs one look at the names.
    if known(stored) == len(stored):
        return reader, ()
    bare = {_TORCH.sub("", name): name for name in stored}
    bare = bare if len(bare) == len(stored) else stored
    # Beginnings up to each dot, and how many names have them.
    starts = Counter(name[: dot.end()] for name in bare for dot in re.finditer(r"\.", name))
    # "" (nothing taken off), then what more than half of the names begin with, the shortest first.
    usual = ["", *sorted((start for start, count in starts.items() if 2 * count > len(bare)), key=len)]
    under = {start: {name.removeprefix(start): at for name, at in bare.items()} for start in usual}
    # `max` keeps the first of equals: the shortest beginning.
    start = max(under, key=lambda each: known(under[each]))
    # For the report: what was taken off, as it was written.
    taken = {piece for name in stored if bare is not stored for piece in _TORCH.findall(name)}
    return reader.under(under[start]), (*sorted(taken), *filter(None, [start]))


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadReport:
    """What of a checkpoint did not go into the network, by names on disk, sorted.

    Attributes:
        left_out: tensors that the network does not hold, such as the heads of other tasks.
        buffers: stored constants, which the network has in itself, and has alike.
        begun: names of the network's that nothing stored was for: they are zero.
    """

    left_out: tuple[str, ...]
    buffers: tuple[str, ...]
    begun: tuple[str, ...] = ()


def load_into(
    module: nn.Module,
    reader: TensorReader,
    keymap: KeyMap,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    may_begin: tuple[str, ...] = (),
    packing: "Packing | None" = None,
) -> LoadReport:
    """Give a network the weights of a checkpoint.

    Names, shapes and types are all compared first, and everything that does not fit is reported in one error;
    the network is changed only when all fits. The tensors are the reader's own or views of them, transposed
    or in pieces as the map says, without a second copy, unless `dtype` or `device` ask for one; whether a
    parameter requires a gradient stays as it was. Parameters that the network ties stay tied: one of their
    names on disk is enough, and several must agree. Parameters that it does not tie never share memory.

    Args:
        module: the network; it may be on the meta device.
        reader: the checkpoint.
        keymap: the family's names.
        dtype: a floating type to convert to; None keeps the stored one.
        device: where to put the tensors; None keeps each where the network has it (the CPU, if that is meta).
        may_begin: beginnings of the network's names, such as `head.`, that need not be stored, or in another
            shape; what is not is zero afterwards, and in the report.
        packing: who takes weights in the blocks that they are stored in; None where all are unpacked.

    Raises:
        InputError: `dtype` is not a floating type, or the network has something on the meta device that no
            checkpoint can fill, such as a buffer that is not persistent.
        CheckpointError: the checkpoint does not fit the network.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from regard.checkpoints import Rename, read_tensors, write_tensors
    >>> keymap = KeyMap(rules=(Rename("dense.{part}", "{part}"),), heads=("head.",))
    >>> with torch.device("meta"):
    ...     network = nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = {"dense.weight": torch.ones(1, 2), "dense.bias": torch.zeros(1), "head.w": torch.ones(3)}
    ...     _ = write_tensors(stored, Path(folder) / "model.safetensors")
    ...     load_into(network, read_tensors(folder), keymap)
    LoadReport(left_out=('head.w',), buffers=(), begun=())
    >>> network.weight.tolist()
    [[1.0, 1.0]]
    """
    if dtype is not None and not dtype.is_floating_point:
        raise InputError(f"dtype must be a floating type such as torch.float32; got {dtype}")
    wanted = state_of(module)
    # Checked before anything is read: a constant on the meta device could not be filled later.
    _check_nothing_stays_on_meta(module, wanted)
    plan = make_plan(wanted, reader, keymap, keep_dtype=dtype is None, may_begin=may_begin)
    # Only stored constants are read here, which are small.
    wrong = [name for name, holds in plan.buffers.items() if not holds(reader.read(name), module)]
    plan.report("not the constant that the network has", wrong)
    # All problems in one error.
    if plan.problems:
        raise CheckpointError(
            f"{reader.folder}: the weights do not fit the network; {'; '.join(plan.problems)}"
        )

    state: dict[str, Tensor] = {}
    # Memory that a parameter has already; to two of them it must not be given.
    taken: set[int] = set()
    in_blocks: dict[str, Packed] = {}
    # Several names of one tensor (a group) get one tensor, so they stay tied.
    for group, places in zip(plan.groups, plan.places, strict=True):
        target = wanted[group[0]]
        # Blocks stay where the network can multiply by them; where they cannot, they are unpacked.
        may_stay = packing is not None and bool(places) and all(map(packing.takes, group))
        if may_stay and (blocks := packed_place(places[0], wanted, reader)) is not None:
            in_blocks |= dict.fromkeys(group, blocks)
            continue
        stored = read_place(places[0], wanted, reader) if places else _zeros(target, plan, reader)
        # A network on the meta device has no place of its own: then the CPU.
        place = device or ("cpu" if target.is_meta else target.device)
        # Where a copy is made anyway it lies as the network has it, and in half precision one is made for
        # that: there, products with a view of a transposed matrix take five times as long.
        tensor = stored.to(
            device=place,
            dtype=dtype if stored.is_floating_point() else None,
            memory_format=torch.contiguous_format,
        )
        if tensor.dtype.itemsize == 2:
            tensor = tensor.contiguous()
        if tensor.numel() and tensor.data_ptr() in taken:
            # Not tied in the network: training would change both, were they one memory.
            tensor = tensor.clone()
        taken.add(tensor.data_ptr())
        # Whether it learns stays as it was, also when frozen.
        if isinstance(target, nn.Parameter):
            tensor = nn.Parameter(tensor, requires_grad=target.requires_grad)
        state |= dict.fromkeys(group, tensor)
    # Names were compared above; what stays in blocks has none in the state.
    module.load_state_dict(state, assign=True, strict=not in_blocks)
    for name, blocks in in_blocks.items():
        assert packing is not None, "asked above"
        packing.put(name, blocks)
    return LoadReport(
        left_out=tuple(sorted(plan.left_out)),
        buffers=tuple(sorted(plan.buffers)),
        begun=tuple(sorted(plan.begun)),
    )


def _zeros(target: Tensor, plan: Plan, reader: TensorReader) -> Tensor:
    """As large as the target, of the type that the others are stored in."""
    # The first floating type that is stored, since one that begins should fit its neighbours.
    types = (reader.dtype(places[0].stored) for places in plan.places if places)
    dtype = next((each for each in types if each.is_floating_point), target.dtype)
    return torch.zeros(target.shape, dtype=dtype, device="cpu")


def to_hf(module: nn.Module, keymap: KeyMap, *, prefix: str | None = None) -> dict[str, Tensor]:
    """A network's tensors under their names on disk: what `write_tensors` takes, and `load_into` reads back.

    The tensors are the network's own or views of them; only those that lie in one piece on disk are put
    together in new memory. Tied parameters come once, under a shared name if the map has one for them, else
    under the first of their names that the map has.

    Args:
        module: the network.
        keymap: the family's names.
        prefix: what goes before every name but those of heads; None for what `transformers` writes: the first
            of the map's where the network has a head, else nothing.

    Raises:
        CheckpointError: the map has no name for some of them, or the same name for two, or a tensor on disk
            consists of several of which the network has only some.

    >>> from regard.checkpoints import Rename
    >>> sorted(to_hf(nn.Linear(2, 1), KeyMap(rules=(Rename("dense.{part}", "{part}"),))))
    ['dense.bias', 'dense.weight']
    """
    held = state_of(module)
    # transformers writes the prefix for models with a head only.
    if prefix is None:
        prefix = keymap.prefixes[0] if keymap.prefixes and _has_head(held, keymap) else ""
    stored: dict[str, Tensor] = {}
    # Once for each tensor, however many names it has.
    for group in tied(held):
        bare, rule = written_as(group, held, keymap)
        name = keymap.with_prefix(bare, prefix)
        is_fused = isinstance(rule, Rename) and len(rule.pieces) > 1
        # All pieces go out with the first of them.
        if name in stored and is_fused:
            continue  # it went out with another of its pieces
        if name in stored:
            raise CheckpointError(
                f"the key map is ambiguous: two tensors of the network are {name!r} on disk"
            )
        tensor = _put_together(bare, held, keymap) if is_fused else held[group[0]].detach()
        # Back into the layout of the file, (in, out), as a view.
        is_matrix = not isinstance(rule, Shared) and rule.transposed and tensor.dim() == 2
        stored[name] = tensor.t() if is_matrix else tensor
    return stored


def _has_head(held: dict[str, Tensor], keymap: KeyMap) -> bool:
    found = (keymap.rule_of(name) for name in held)
    return any(keymap.is_head(match[0]) for match in found if match is not None)


def _put_together(bare: str, held: dict[str, Tensor], keymap: KeyMap) -> Tensor:
    pieces = keymap.to_ours(bare)
    if lacking := [piece for piece in pieces if piece not in held]:
        raise CheckpointError(f"{bare!r} on disk cannot be written: the network lacks {joined(lacking)}")
    return torch.cat([held[piece].detach() for piece in pieces])


def _check_nothing_stays_on_meta(module: nn.Module, wanted: dict[str, Tensor]) -> None:
    # By identity: a tied tensor is filled under any of its names.
    filled = {id(tensor) for tensor in wanted.values()}
    empty = [
        name
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        # state_dict leaves non-persistent buffers out, and no checkpoint can fill them.
        if tensor.is_meta and id(tensor) not in filled
    ]
    if empty:
        raise InputError(
            f"module: {joined(empty)} would stay on the meta device, since no state_dict has them; a network "
            "computes such a constant when it needs it, or makes it a persistent buffer"
        )
