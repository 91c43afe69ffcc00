"""Short passes whose every allocation is written down, and how what they take grows with the length."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from regard.blocks import FeedForward, GatedFeedForward
from regard.core import Taps, Window
from regard.models import Network
from regard.models.deberta import DistanceTerm, RelativePositions
from regard.text import Encoding
from regard.tracing._heap import Heap
from regard.tracing._keep import Keeping, Partial
from regard.tracing._lens import Windows, is_activation, looking_at
from regard.tracing._listening import Listening, run_quietly
from regard.tracing._passage import AttentionTrace, Passage
from regard.tracing._replay import Step
from regard.tracing._size import kept_bytes

# Texts that are run: so many tokens, and twice and three times as many. Shorter ones are run as they are.
_STEP = 16


@dataclass(frozen=True)
class Probe:
    """A short length, and its part in the polynomial of second degree through all of them.

    Args:
        lengths: tokens of the text, and of what a decoder beside an encoder reads.
        weight: the value at the length asked for is the sum of weight x value here.
        square: and its quadratic part the sum of square x value here.
    """

    lengths: tuple[int, ...]
    weight: Fraction
    square: Fraction


def grid(lengths: tuple[int, ...]) -> list[Probe]:
    """Where to look in order to tell what a quantity is at some lengths: Newton's forward differences.

        f(n) = f_0 + u D f + u (u - 1) / 2 D^2 f,   u = (n - 16) / 16

    and in two lengths u v D_u D_v f beside it. Exact where f is a polynomial of second degree.

    Example:
        >>> [(probe.lengths, int(probe.weight)) for probe in grid((64,))]
        [((16,), 1), ((32,), -3), ((48,), 3)]
        >>> [(probe.lengths, int(probe.weight)) for probe in grid((7,))]
        [((7,), 1)]
    """
    start = short(lengths)
    long = [axis for axis, length in enumerate(lengths) if length != start[axis]]
    steps = [Fraction(length - begun, _STEP) for length, begun in zip(lengths, start, strict=True)]
    found: dict[tuple[int, ...], list[Fraction]] = {}

    def add(weight: Fraction, square: Fraction, *terms: tuple[int, list[int]]) -> None:
        """A difference's part: it is the sum of factor x f, where f is a step on for each axis named."""
        for factor, axes in terms:
            at = tuple(begun + _STEP * axes.count(axis) for axis, begun in enumerate(start))
            entry = found.setdefault(at, [Fraction(0), Fraction(0)])
            entry[0] += factor * weight
            entry[1] += factor * square

    none = Fraction(0)
    add(Fraction(1), none, (1, []))
    for axis in long:
        u, whole = steps[axis], Fraction(lengths[axis], _STEP)
        add(u, none, (1, [axis]), (-1, []))
        add(u * (u - 1) / 2, whole * whole / 2, (1, [axis, axis]), (-2, [axis]), (1, []))
    if len(long) == 2:
        both = Fraction(lengths[0] * lengths[1], _STEP**2)
        add(steps[0] * steps[1], both, (1, [0, 1]), (-1, [0]), (-1, [1]), (1, []))
    return [Probe(at, weight, square) for at, (weight, square) in found.items()]


def short(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The shortest of the lengths that are looked at."""
    return tuple(length if length <= 3 * _STEP else _STEP for length in lengths)


@dataclass(frozen=True)
class Sample:
    """What one short pass took.

    Args:
        course: bytes alive after each operation, parameters aside: (outside of feed-forward networks, what is
            between their projections, the output that they are about to give).
        steps: what was taken and freed, and when the trace told of what it holds.
        bytes: the sizes that the steps name.
        inside: which of them are of what is made by rows of a long text.
        kept: bytes that the passages hold; 0 without listeners.
        tables: those of them that are tables of relative positions.
        windows: how far the windows of masks reach.
        sizes: of windows whose masks a model of transformers leaves out for shorter texts.
    """

    course: tuple[tuple[int, int, int], ...]
    steps: tuple[Step, ...]
    bytes: tuple[int, ...]
    inside: frozenset[int]
    kept: int
    tables: int
    windows: frozenset[int]
    sizes: frozenset[int]


_SEEN: WeakKeyDictionary[Network, dict[Any, Sample]] = WeakKeyDictionary()


def sample(
    network: Network,
    lengths: tuple[int, ...],
    keeping: Keeping | None,
    beyond: frozenset[int] = frozenset(),
) -> Sample:
    """Run the network on a text of these lengths, and write down what it takes; remembered with the network.

    Of a network with edits, the one without them runs, and at each tap that they write all of it is written:
    their words and positions are those of the text, not of a short one.

    Args:
        network: what runs.
        lengths: tokens of the text, and of what a decoder beside an encoder reads.
        keeping: what is kept; None lets nobody listen.
        beyond: `Sample.sizes` whose masks are made all the same.
    """
    parameters = list(network.plain.parameters())
    state = (len(parameters), sum(each.numel() for each in parameters), parameters[0].dtype)
    key = (lengths, keeping, beyond, network.written, state, parameters[0].device)
    known = _SEEN.setdefault(network.plain, {})
    if key not in known:
        known[key] = _run(network, lengths, keeping, beyond)
    return known[key]


def _run(
    network: Network, lengths: tuple[int, ...], keeping: Keeping | None, beyond: frozenset[int]
) -> Sample:
    plain, windows = network.plain, Windows(beyond)
    course = _Course([*plain.parameters(), *plain.buffers()], plain)
    listening = None if keeping is None else Listening(network, keeping, _Written(course))
    taps = None if listening is None else listening.taps()
    if network.written:
        taps = Taps(dict.fromkeys(network.written, _as_an_edit)).then(taps)
    texts = [[0] * length for length in lengths]
    with looking_at(windows), course:
        run_quietly(plain, texts[0], texts[1] if len(texts) > 1 else None, taps=taps)
    sizes = frozenset(windows.seen)
    if listening is None:
        return Sample(course.alive(), *course.steps(), 0, 0, frozenset(), sizes)
    passages: tuple[Passage, ...] = tuple(
        listening.passage(kind, Encoding.from_ids(text))
        for kind, text in zip(network.prefixes, texts, strict=True)
    )
    tables = tuple(term.table for term in _terms(passages))
    kept, of_tables = kept_bytes(passages), kept_bytes(tables)
    return Sample(course.alive(), *course.steps(), kept, of_tables, _windows(passages), sizes)


def _as_an_edit(value: Tensor) -> Tensor:
    """What an edit of all of a tensor takes: another one, and where they differ."""
    written = value.clone()
    (written != value).any()
    return written


class _Course(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows what is alive: after every operation, the bytes of all memory that operations have given out.

    Args:
        owned: tensors that were there before.
        network: whose feed-forward networks, or activations, which work by rows of a long text, are told
            apart.
    """

    def __init__(self, owned: Sequence[Tensor], network: Network) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._network = network
        self._owned = {tensor.untyped_storage()._cdata for tensor in owned}
        # Of each piece of memory: whether it lives, its bytes, whether a feed-forward network works with it,
        # and which of the sizes it has.
        self._memory: dict[int, tuple[StorageWeakRef, int, bool, int]] = {}
        self._steps: list[Step] = []
        self._sizes: list[int] = []
        self._inside: set[int] = set()
        self._seen: list[tuple[int, int]] = []
        self._outputs: list[tuple[int, int, int]] = []
        self._entered: int | None = None
        self._hooks: list[RemovableHandle] = []

    def alive(self) -> tuple[tuple[int, int, int], ...]:
        """See `Sample.course`."""
        course = [(outside, inside, 0) for outside, inside in self._seen]
        for first, last, output in self._outputs:
            course[first:last] = [(outside, inside, output) for outside, inside, _ in course[first:last]]
        return tuple(course) or ((0, 0, 0),)

    def steps(self) -> tuple[tuple[Step, ...], tuple[int, ...], frozenset[int]]:
        """See `Sample.steps`, `Sample.bytes` and `Sample.inside`."""
        return tuple(self._steps), tuple(self._sizes), frozenset(self._inside)

    def holds(self, tensors: Sequence[Tensor]) -> None:
        """The trace tells of what it holds from now on."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        self._steps.append(Step("holds", tuple(map(self._size, sizes))))

    def _size(self, size: int) -> int:
        self._sizes.append(size)
        return len(self._sizes) - 1

    def _let_go(self) -> None:
        for place, (reference, _, _, number) in [*self._memory.items()]:
            if _is_gone(reference):
                del self._memory[place]
                self._steps.append(Step("frees", (number,)))

    def __enter__(self) -> "_Course":
        for module in self._network.modules():
            if isinstance(module, FeedForward | GatedFeedForward) or is_activation(module):
                self._hooks.append(module.register_forward_pre_hook(self._enter))
                self._hooks.append(module.register_forward_hook(self._leave))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: nn.Module, args: Any) -> None:
        if (
            torch.utils._python_dispatch._get_current_dispatch_mode() is self
        ):  # another thread's pass is not ours
            self._entered = len(self._seen)

    def _leave(self, module: nn.Module, args: Any, output: Tensor) -> None:
        if self._entered is None or torch.utils._python_dispatch._get_current_dispatch_mode() is not self:
            return
        place = output.untyped_storage()._cdata
        if place in self._memory:
            reference, size, _, number = self._memory[place]
            self._memory[place] = reference, size, False, number
            self._inside.discard(number)
            self._outputs.append((self._entered, len(self._seen), size))
        self._entered = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._let_go()
        result = func(*args, **(kwargs or {}))
        self._let_go()  # what only the operation held, whose place another may have got
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self._owned and storage._cdata not in self._memory:
                    size, is_inside = storage.nbytes(), self._entered is not None
                    number = self._size(size)
                    self._memory[storage._cdata] = _reference(storage), size, is_inside, number
                    if is_inside:
                        self._inside.add(number)
                    self._steps.append(Step("takes", (number,)))
        inside = sum(size for _, size, is_inside, _ in self._memory.values() if is_inside)
        self._seen.append((sum(size for _, size, _, _ in self._memory.values()) - inside, inside))
        return result


class _Written(Heap):
    """A heap that gives nothing back, and has it written down when it would be told."""

    def __init__(self, course: _Course) -> None:
        super().__init__()
        self._course = course

    def grows(self, *tensors: Tensor) -> None:
        self._course.holds([tensor for tensor in tensors if tensor.is_cpu])


def _reference(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]


def _layers(passages: Sequence[Passage]) -> list[AttentionTrace]:
    return [
        layer
        for passage in passages
        for layers in (passage.attention, passage.cross_attention)
        for layer in (layers.kept.values() if isinstance(layers, Partial) else layers)
    ]


def _terms(passages: Sequence[Passage]) -> list[DistanceTerm]:
    biases = [layer.inputs.bias for layer in _layers(passages)]
    terms = [getattr(bias, name, None) for bias in biases for name in ("c2p", "p2c")]
    return [term for term in terms if isinstance(term, DistanceTerm)]


def _windows(passages: Sequence[Passage]) -> frozenset[int]:
    masks = [layer.inputs.mask for layer in _layers(passages)]
    return frozenset(
        (part.left or 0) + (part.right or 0)
        for mask in masks
        if mask is not None
        for part in mask.parts()
        if isinstance(part, Window)
    )


def table_rows_of(network: Network, lengths: tuple[int, ...]) -> int:
    """How many relative positions have a row at a length; 1 where there is no such table."""
    tables = [module for module in network.modules() if isinstance(module, RelativePositions)]
    return sum(len(table.of_length(lengths[0])[0]) for table in tables) or 1
