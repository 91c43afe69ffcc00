"""Which tensor on disk becomes which of a network's; into the network, all or none, and back to disk."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regard.checkpoints._keymap import Holds, KeyMap, Rename, Shared, shape_on_disk, taken_apart
from regard.checkpoints._tensors import TensorReader
from regard.core.errors import CheckpointError, InputError
from regard.core.wording import joined


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of the network lies: it is `pieces[number]` of the tensor `stored` on disk."""

    stored: str
    pieces: tuple[str, ...]
    number: int
    transposed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What of a checkpoint goes where.

    A group has the names of one tensor of the network, several where it ties them; its places, of the first
    of the names first, must be equal. left_out and buffers are those of `LoadReport`; nothing on disk is for
    what is begun.
    """

    groups: list[list[str]]
    places: list[list[Place]]
    left_out: list[str] = field(default_factory=list)
    buffers: dict[str, Holds] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def report(self, what: str, items: Iterable[str]) -> None:
        """Add a problem that several tensors have, if any has it; more than a few names say no more."""
        if listed := sorted(set(items)):
            self.problems.append(f"{what}: {joined(listed, 5)}")


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and persistent buffers of a network; one that it ties comes under each of its names."""
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def tied(state: dict[str, Tensor]) -> list[list[str]]:
    """The names of each tensor: more than one where the network uses it in several places."""
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def written_as(group: Sequence[str], held: Iterable[str], keymap: KeyMap) -> tuple[str, Rename | Shared]:
    """The name on disk of a tensor, without prefix, and its rule."""
    own: tuple[str, Rename] | None = None
    for name in group:
        own = own or keymap.rule_of(name)
    for shared in (each for each in keymap.shared if each.is_written):
        members = {name for name in shared.ours if name in held}
        if shared.ours[0] in group and (own is None or _ties(group, members)):
            return shared.hf, shared
    if own is None:
        raise CheckpointError(f"the key map has no name on disk for the network's {group[-1]!r}")
    return own


def make_plan(
    wanted: dict[str, Tensor],
    reader: TensorReader,
    keymap: KeyMap,
    *,
    keep_dtype: bool,
    may_begin: tuple[str, ...] = (),
) -> Plan:
    """Compare a network with a checkpoint; names that begin as in `may_begin` may be missing on disk."""
    groups = tied(wanted)
    plan = Plan(groups=groups, places=[[] for _ in groups])
    _match_names(plan, wanted, reader, keymap, may_begin)
    _check_tensors(plan, wanted, reader, keep_dtype=keep_dtype)
    _check_ties(plan, wanted, reader)
    return plan


def read_place(place: Place, wanted: dict[str, Tensor], reader: TensorReader) -> Tensor:
    """A tensor of the network, as a view of the one on disk."""
    sizes = [wanted[piece].shape[0] for piece in place.pieces] if len(place.pieces) > 1 else [0]
    pieces = taken_apart(reader.read(place.stored), sizes, transposed=place.transposed)
    return pieces[place.number]


def _match_names(
    plan: Plan,
    wanted: dict[str, Tensor],
    reader: TensorReader,
    keymap: KeyMap,
    may_begin: tuple[str, ...],
) -> None:
    group_of = {name: number for number, group in enumerate(plan.groups) for name in group}
    places: dict[str, Place] = {}
    prefixes: set[str] = set()
    shared: dict[Shared, str] = {}
    unexpected, doubled, partial = [], [], []
    # A tensor on disk is one of the network's, shared by several, a constant, left out, or not known.
    for stored in reader.names():
        match = keymap.match(stored)
        if match is not None and any(name in wanted for name in match.ours):
            if lacking := [name for name in match.ours if name not in wanted]:
                partial.append(f"{stored} (the network lacks {joined(lacking)})")
                continue
            # A head stands beside the prefixed model: its name does not tell whether there is a prefix.
            if not keymap.is_head(stored):
                prefixes.add(match.prefix)
            doubled += [(places[name].stored, stored) for name in match.ours if name in places]
            for number, name in enumerate(match.ours):
                places[name] = Place(stored, match.ours, number, match.rule.transposed)
        elif (rule := keymap.shared_by(stored)) and any(name in wanted for name in rule.ours):
            if rule in shared:
                doubled.append((shared[rule], stored))
            shared[rule] = stored
        elif holds := keymap.buffer(stored):
            plan.buffers[stored] = holds
        elif keymap.leaves_out(stored):
            plan.left_out.append(stored)
        else:
            unexpected.append(stored)
    for group, found in zip(plan.groups, plan.places, strict=True):
        found += [places[name] for name in group if name in places]
    for rule, stored in shared.items():
        _share(plan, rule, stored, wanted, group_of)
    for group, found in zip(plan.groups, plan.places, strict=True):
        # What is stored in another shape is of another task: it is left out, and the new one begins.
        if all(name.startswith(may_begin) for name in group):
            shape = tuple(wanted[group[0]].shape)
            others = [place for place in found if reader.shape(place.stored) != shape]
            plan.left_out.extend(place.stored for place in others)
            found[:] = [place for place in found if place not in others]
            plan.begun.extend([] if found else group)
    # Missing names are spelled as in the file at hand, not as the rules have them.
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    missing = [
        keymap.with_prefix(written_as(group, wanted, keymap)[0], prefix)
        for group, found in zip(plan.groups, plan.places, strict=True)
        if not found and not set(group) <= set(plan.begun)
    ]
    plan.report("missing", missing)
    plan.report("unexpected", unexpected)
    strange = {name[: name.rfind(".") + 1] or name for name in unexpected if not keymap.match(name)}
    # Beside a whole network, tensors that no rule knows may be layers of the user's own.
    if strange and not missing:
        begin = joined(map(repr, sorted(strange)), 5)
        plan.problems[-1] += f" (in Python, regard.load(..., leave_out=[{begin}]) loads the rest)"
    differing = [f"{one} and {two}" for one, two in doubled if not _same(reader, one, two)]
    plan.report("different, though names of one tensor", differing)
    plan.report("only in part of the network", partial)


def _same(reader: TensorReader, one: str, two: str) -> bool:
    return reader.dtype(one) == reader.dtype(two) and torch.equal(reader.read(one), reader.read(two))


def _share(
    plan: Plan, rule: Shared, stored: str, wanted: dict[str, Tensor], group_of: dict[str, int]
) -> None:
    """Add a shared tensor to the places of those that read it, or have to be equal to it."""
    members = {name for name in rule.ours if name in wanted}
    is_read = False
    for number in {group_of[name] for name in members}:
        places, group = plan.places[number], plan.groups[number]
        if not places or _ties(group, members):
            place = Place(stored, (next(name for name in group if name in members),), 0, False)
            places.append(place)
            is_read = True
    if not is_read:
        plan.left_out.append(stored)


def _ties(group: Sequence[str], members: set[str]) -> bool:
    """Whether a tensor is all of these that the network has, or several of them."""
    inside = members.intersection(group)
    return bool(inside) and (inside == members or len(inside) > 1)


def _check_tensors(plan: Plan, wanted: dict[str, Tensor], reader: TensorReader, *, keep_dtype: bool) -> None:
    shapes, types = [], []
    floating: Counter[torch.dtype] = Counter()
    # By the name on disk: a tensor that holds several of the network's is looked at once.
    for place in {place.stored: place for places in plan.places for place in places}.values():
        stored, targets = place.stored, [wanted[name] for name in place.pieces]
        shape, dtype = reader.shape(stored), reader.dtype(stored)
        fitting = shape_on_disk([tuple(target.shape) for target in targets], transposed=place.transposed)
        if fitting is None:
            listed = ", ".join(str(list(target.shape)) for target in targets)
            shapes.append(f"{stored} (the network's {listed} do not fit into one tensor)")
        elif shape != fitting:
            shapes.append(f"{stored} (wanted {list(fitting)}, got {list(shape)})")
        if dtype.is_floating_point and all(target.is_floating_point() for target in targets):
            floating[dtype] += 1
        elif any(dtype != target.dtype for target in targets):
            kind = "a floating type" if targets[0].is_floating_point() else targets[0].dtype
            types.append(f"{stored} (wanted {kind}, got {dtype})")
    plan.report("of the wrong shape", shapes)
    plan.report("of the wrong type", types)
    # Weights are not altered on loading, so nobody but the user can choose one of two types.
    if keep_dtype and len(floating) > 1:
        counts = ", ".join(f"{count} in {dtype}" for dtype, count in floating.most_common())
        plan.problems.append(f"stored in several types ({counts}): pass dtype= to choose one")


def _check_ties(plan: Plan, wanted: dict[str, Tensor], reader: TensorReader) -> None:
    if any(problem.startswith("of the wrong shape") for problem in plan.problems):
        return  # what does not fit cannot be taken apart
    differing = []
    for first, *others in filter(None, plan.places):
        for other in others:
            one, two = read_place(first, wanted, reader), read_place(other, wanted, reader)
            if one.dtype != two.dtype or not torch.equal(one, two):
                differing.append(f"{first.stored} and {other.stored}")
    plan.report("different, though the network ties them", differing)


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
    stored = {name: name for name in reader.names()}

    def known(names: dict[str, str]) -> int:
        fit = sum(keymap.match(name) is not None or keymap.shared_by(name) is not None for name in names)
        return fit if len(names) == len(stored) else -1

    if known(stored) == len(stored):
        return reader, ()
    bare = {_TORCH.sub("", name): name for name in stored}
    bare = bare if len(bare) == len(stored) else stored
    starts = Counter(name[: dot.end()] for name in bare for dot in re.finditer(r"\.", name))
    usual = ["", *sorted((start for start, count in starts.items() if 2 * count > len(bare)), key=len)]
    under = {start: {name.removeprefix(start): at for name, at in bare.items()} for start in usual}
    start = max(under, key=lambda each: known(under[each]))  # the shortest of equals
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
    _check_nothing_stays_on_meta(module, wanted)
    plan = make_plan(wanted, reader, keymap, keep_dtype=dtype is None, may_begin=may_begin)
    wrong = [name for name, holds in plan.buffers.items() if not holds(reader.read(name), module)]
    plan.report("not the constant that the network has", wrong)
    if plan.problems:
        raise CheckpointError(
            f"{reader.folder}: the weights do not fit the network; {'; '.join(plan.problems)}"
        )

    state: dict[str, Tensor] = {}
    given: set[int] = set()
    for group, places in zip(plan.groups, plan.places, strict=True):
        target = wanted[group[0]]
        stored = read_place(places[0], wanted, reader) if places else _zeros(target, plan, reader)
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
        if tensor.numel() and tensor.data_ptr() in given:
            tensor = tensor.clone()  # training would change both of what the network holds apart
        given.add(tensor.data_ptr())
        if isinstance(target, nn.Parameter):
            tensor = nn.Parameter(tensor, requires_grad=target.requires_grad)
        state |= dict.fromkeys(group, tensor)
    module.load_state_dict(state, assign=True)
    return LoadReport(
        left_out=tuple(sorted(plan.left_out)),
        buffers=tuple(sorted(plan.buffers)),
        begun=tuple(sorted(plan.begun)),
    )


def _zeros(target: Tensor, plan: Plan, reader: TensorReader) -> Tensor:
    """As large as the target, of the type that the others are stored in."""
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
    if prefix is None:
        prefix = keymap.prefixes[0] if keymap.prefixes and _has_head(held, keymap) else ""
    stored: dict[str, Tensor] = {}
    for group in tied(held):
        bare, rule = written_as(group, held, keymap)
        name = keymap.with_prefix(bare, prefix)
        is_fused = isinstance(rule, Rename) and len(rule.pieces) > 1
        if name in stored and is_fused:
            continue  # it went out with another of its pieces
        if name in stored:
            raise CheckpointError(
                f"the key map is ambiguous: two tensors of the network are {name!r} on disk"
            )
        tensor = _put_together(bare, held, keymap) if is_fused else held[group[0]].detach()
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
    filled = {id(tensor) for tensor in wanted.values()}
    empty = [
        name
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if tensor.is_meta and id(tensor) not in filled
    ]
    if empty:
        raise InputError(
            f"module: {joined(empty)} would stay on the meta device, since no state_dict has them; a network "
            "computes such a constant when it needs it, or makes it a persistent buffer"
        )
