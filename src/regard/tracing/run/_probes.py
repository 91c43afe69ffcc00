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

from regard._lens import Windows, is_activation, looking_at
from regard.blocks import FeedForward, GatedFeedForward, MultiHeadAttention
from regard.core import AttentionInputs, Taps
from regard.models import Network
from regard.models.deberta import DistanceTerm, RelativePositions
from regard.text import Encoding
from regard.tracing.record import AttentionTrace, Heap, Keeping, Partial, Passage, ScoreInputs, kept_bytes
from regard.tracing.run._listening import Listening, run_quietly

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
            between their projections, the output that they are about to give, 1 in attention layers and 0
            elsewhere).
        held: bytes of each tensor that the trace told its `Heap` of.
        kept: bytes that the passages hold; 0 without listeners.
        tables: those of them that are tables of relative positions.
        attention: where values are kept, records of attention layers, one token long, each with the axes of
            `lengths` that its queries and keys have; of layers that are alike only the first.
        sizes: of windows whose masks a model of transformers leaves out for shorter texts.
    """

    course: tuple[tuple[int, int, int, int], ...]
    held: tuple[int, ...]
    kept: int
    tables: int
    attention: tuple[tuple[AttentionInputs, int, int], ...]
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
    if not known:
        _run(network, lengths, keeping, beyond)  # tables of positions are made by the first pass alone
    if key not in known:
        known[key] = _run(network, lengths, keeping, beyond)
    return known[key]


def _run(
    network: Network, lengths: tuple[int, ...], keeping: Keeping | None, beyond: frozenset[int]
) -> Sample:
    plain, windows = network.plain, Windows(beyond)
    course = _Course([*plain.parameters(), *plain.buffers()], plain)
    heap = _Noted()
    listening = None if keeping is None else Listening(network, keeping, heap)
    taps = None if listening is None else listening.taps()
    if network.written:
        taps = Taps(dict.fromkeys(network.written, _as_an_edit)).then(taps)
    texts = [[0] * length for length in lengths]
    with looking_at(windows), course:
        run_quietly(plain, texts[0], texts[1] if len(texts) > 1 else None, taps=taps)
    sizes = frozenset(windows.seen)
    if listening is None:
        return Sample(course.alive(), (), 0, 0, (), sizes)
    passages: tuple[Passage, ...] = tuple(
        listening.passage(kind, Encoding.from_ids(text))
        for kind, text in zip(network.prefixes, texts, strict=True)
    )
    tables = tuple(term.table for term in _terms(passages))
    kept, of_tables = kept_bytes(passages), kept_bytes(tables)
    return Sample(course.alive(), tuple(heap.held), kept, of_tables, _attention(passages), sizes)


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
        # Of each piece of memory: whether it lives, its bytes, whether a feed-forward network works with it.
        self._memory: dict[int, tuple[StorageWeakRef, int, bool]] = {}
        self._seen: list[tuple[int, int, int]] = []
        self._outputs: list[tuple[int, int, int]] = []
        self._entered: int | None = None
        self._attends = 0
        self._hooks: list[RemovableHandle] = []

    def alive(self) -> tuple[tuple[int, int, int, int], ...]:
        """See `Sample.course`."""
        outputs = [0] * len(self._seen)
        for first, last, output in self._outputs:
            outputs[first:last] = [output] * (last - first)
        course = zip(self._seen, outputs, strict=True)
        return tuple((outside, inside, output, at) for (outside, inside, at), output in course) or ((0,) * 4,)

    def __enter__(self) -> "_Course":
        for module in self._network.modules():
            if isinstance(module, FeedForward | GatedFeedForward) or is_activation(module):
                self._hooks.append(module.register_forward_pre_hook(self._enter))
                self._hooks.append(module.register_forward_hook(self._leave))
            elif isinstance(module, MultiHeadAttention):
                self._hooks.append(module.register_forward_pre_hook(self._attend))
                self._hooks.append(module.register_forward_hook(self._attended))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    def _is_mine(self) -> bool:
        """Whether it is this pass that goes through a module, and not another thread's."""
        return torch.utils._python_dispatch._get_current_dispatch_mode() is self

    def _attend(self, module: nn.Module, args: Any) -> None:
        if self._is_mine():
            self._attends = 1

    def _attended(self, module: nn.Module, args: Any, output: Tensor) -> None:
        if self._is_mine():
            self._attends = 0

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self._is_mine():
            self._entered = len(self._seen)

    def _leave(self, module: nn.Module, args: Any, output: Tensor) -> None:
        if self._entered is None or not self._is_mine():
            return
        place = output.untyped_storage()._cdata
        if place in self._memory:
            reference, size, _ = self._memory[place]
            self._memory[place] = reference, size, False
            self._outputs.append((self._entered, len(self._seen), size))
        self._entered = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._memory = {place: each for place, each in self._memory.items() if not _is_gone(each[0])}
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self._owned and storage._cdata not in self._memory:
                    is_inside = self._entered is not None
                    self._memory[storage._cdata] = _reference(storage), storage.nbytes(), is_inside
        inside = sum(size for _, size, is_inside in self._memory.values() if is_inside)
        outside = sum(size for _, size, _ in self._memory.values()) - inside
        self._seen.append((outside, inside, self._attends))
        return result


class _Noted(Heap):
    """A heap that gives nothing back, and notes of what it would be told."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []

    def grows(self, *tensors: Tensor) -> None:
        self.held += [tensor.numel() * tensor.element_size() for tensor in tensors]


def _reference(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]


def _layers(layers: Sequence[AttentionTrace]) -> Sequence[AttentionTrace]:
    return tuple(layers.kept.values()) if isinstance(layers, Partial) else layers


def _terms(passages: Sequence[Passage]) -> list[DistanceTerm]:
    both = [(passage.attention, passage.cross_attention) for passage in passages]
    biases = [layer.inputs.bias for pair in both for layers in pair for layer in _layers(layers)]
    terms = [getattr(bias, name, None) for bias in biases for name in ("c2p", "p2c")]
    return [term for term in terms if isinstance(term, DistanceTerm)]


def _attention(passages: Sequence[Passage]) -> tuple[tuple[AttentionInputs, int, int], ...]:
    """See `Sample.attention`."""
    found: dict[object, tuple[AttentionInputs, int, int]] = {}
    for axis, passage in enumerate(passages):
        for layers, axes in ((passage.attention, (axis, axis)), (passage.cross_attention, (axis, 0))):
            for layer in _layers(layers):
                if not isinstance(layer.inputs, ScoreInputs):
                    of_one = {name: getattr(layer.inputs, name)[:, :, :1].clone() for name in ("q", "k", "v")}
                    alike = id(layer.inputs.mask), type(layer.inputs.bias), axes
                    found.setdefault(alike, (layer.inputs.changed(**of_one), *axes))
    return tuple(found.values())


def table_rows_of(network: Network, lengths: tuple[int, ...]) -> int:
    """How many relative positions have a row at a length; 1 where there is no such table."""
    tables = [module for module in network.modules() if isinstance(module, RelativePositions)]
    return sum(len(table.of_length(lengths[0])[0]) for table in tables) or 1
