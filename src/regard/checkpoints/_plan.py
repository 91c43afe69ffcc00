"""Which tensor on disk becomes which of a network's: names, shapes and types compared before any is read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regard.checkpoints._keymap import Holds, KeyMap, Rename, Shared, shape_on_disk, taken_apart
from regard.checkpoints._tensors import TensorReader
from regard.checkpoints.gguf import Packed
from regard.core.errors import CheckpointError
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
    # By identity, in the order of the state: the first name stands for the tensor.
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def written_as(group: Sequence[str], held: Iterable[str], keymap: KeyMap) -> tuple[str, Rename | Shared]:
    """The name on disk of a tensor, without prefix, and its rule."""
    own: tuple[str, Rename] | None = None
    for name in group:
        # The first of its names that the map knows.
        own = own or keymap.rule_of(name)
    for shared in (each for each in keymap.shared if each.is_written):
        # Only members that this network has count.
        members = {name for name in shared.ours if name in held}
        # The shared name goes out for its first member, when that is tied to another or has no name of
        # its own.
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
    # Tied first: what follows speaks of groups, not names.
    groups = tied(wanted)
    plan = Plan(groups=groups, places=[[] for _ in groups])
    _match_names(plan, wanted, reader, keymap, may_begin)
    _check_tensors(plan, wanted, reader, keep_dtype=keep_dtype)
    _check_ties(plan, wanted, reader)
    return plan


def read_place(place: Place, wanted: dict[str, Tensor], reader: TensorReader) -> Tensor:
    """A tensor of the network, as a view of the one on disk."""
    # The sizes of pieces are those of the network; a lone tensor is not split.
    sizes = [wanted[piece].shape[0] for piece in place.pieces] if len(place.pieces) > 1 else [0]
    pieces = taken_apart(reader.read(place.stored), sizes, transposed=place.transposed)
    return pieces[place.number]


def packed_place(place: Place, wanted: dict[str, Tensor], reader: TensorReader) -> Packed | None:
    """The same in the blocks that it is stored in; None where it is stored otherwise, or lies across them."""
    # Blocks follow rows: a transposed matrix cannot stay in them.
    packed = None if place.transposed else reader.packed(place.stored)
    if packed is None:
        return None
    sizes = [wanted[piece].shape[0] for piece in place.pieces]
    # Pieces lie along the rows: so each is a range of rows.
    first = sum(sizes[: place.number])
    return packed.rows(slice(first, first + sizes[place.number]))


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
    # Every name on disk is sorted into exactly one of these.
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
            # Two names on disk for one of the network's: compared below, an error if they differ.
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
    # Own names first, so that a shared tensor is only taken where none is there.
    for group, places_of in zip(plan.groups, plan.places, strict=True):
        places_of += [places[name] for name in group if name in places]
    for rule, stored in shared.items():
        _share(plan, rule, stored, wanted, group_of)
    for group, places_of in zip(plan.groups, plan.places, strict=True):
        # What is stored in another shape is of another task: it is left out, and the new one begins.
        # `may_begin` names what is new, as the head of a new task.
        if all(name.startswith(may_begin) for name in group):
            shape = tuple(wanted[group[0]].shape)
            others = [place for place in places_of if reader.shape(place.stored) != shape]
            plan.left_out.extend(place.stored for place in others)
            places_of[:] = [place for place in places_of if place not in others]
            plan.begun.extend([] if places_of else group)
    # Missing names are spelled as in the file at hand, not as the rules have them.
    # Several prefixes in one file tell nothing about the missing ones.
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    missing = [
        keymap.with_prefix(written_as(group, wanted, keymap)[0], prefix)
        for group, places_of in zip(plan.groups, plan.places, strict=True)
        if not places_of and not set(group) <= set(plan.begun)
    ]
    plan.report("missing", missing)
    plan.report("unexpected", unexpected)
    # The beginnings up to the last dot: whole modules, which the hint names.
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
    # A shared tensor counts once for each group, however many of its names are members.
    for number in {group_of[name] for name in members}:
        places, group = plan.places[number], plan.groups[number]
        if not places or _ties(group, members):
            place = Place(stored, (next(name for name in group if name in members),), 0, False)
            places.append(place)
            is_read = True
    # Nobody took it: it is reported as left out, and is no error.
    if not is_read:
        plan.left_out.append(stored)


def _ties(group: Sequence[str], members: set[str]) -> bool:
    """Whether a tensor is all of these that the network has, or several of them."""
    inside = members.intersection(group)
    return bool(inside) and (inside == members or len(inside) > 1)


def _check_tensors(plan: Plan, wanted: dict[str, Tensor], reader: TensorReader, *, keep_dtype: bool) -> None:
    shapes, types = [], []
    # Floating types are counted to see whether they are several.
    floating: Counter[torch.dtype] = Counter()
    # By the name on disk: a tensor that holds several of the network's is looked at once.
    for place in {place.stored: place for places in plan.places for place in places}.values():
        stored, targets = place.stored, [wanted[name] for name in place.pieces]
        shape, dtype = reader.shape(stored), reader.dtype(stored)
        # None where the pieces have different widths.
        fitting = shape_on_disk([tuple(target.shape) for target in targets], transposed=place.transposed)
        if fitting is None:
            listed = ", ".join(str(list(target.shape)) for target in targets)
            shapes.append(f"{stored} (the network's {listed} do not fit into one tensor)")
        elif shape != fitting:
            shapes.append(f"{stored} (wanted {list(fitting)}, got {list(shape)})")
        # Floating types may differ from the network's: they are converted, or kept, as asked.
        if dtype.is_floating_point and all(target.is_floating_point() for target in targets):
            floating[dtype] += 1
        elif any(dtype != target.dtype for target in targets):
            kind = "a floating type" if targets[0].is_floating_point() else targets[0].dtype
            types.append(f"{stored} (wanted {kind}, got {dtype})")
    plan.report("of the wrong shape", shapes)
    plan.report("of the wrong type", types)
    # Weights are not altered on loading, so nobody but the user can choose one of two types.
    # Only where no type was asked for.
    if keep_dtype and len(floating) > 1:
        counts = ", ".join(f"{count} in {dtype}" for dtype, count in floating.most_common())
        plan.problems.append(f"stored in several types ({counts}): pass dtype= to choose one")


def _check_ties(plan: Plan, wanted: dict[str, Tensor], reader: TensorReader) -> None:
    if any(problem.startswith("of the wrong shape") for problem in plan.problems):
        return  # what does not fit cannot be taken apart
    differing = []
    # Each group's places must hold the same numbers: all against the first.
    for first, *others in filter(None, plan.places):
        for other in others:
            one, two = read_place(first, wanted, reader), read_place(other, wanted, reader)
            if one.dtype != two.dtype or not torch.equal(one, two):
                differing.append(f"{first.stored} and {other.stored}")
    plan.report("different, though the network ties them", differing)
