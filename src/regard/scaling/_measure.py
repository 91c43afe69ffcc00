"""Measures attentions: time in turns in this process, memory in others."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.core.memory import CPU, check_room
from regard.scaling._cases import Case, Shape, Softmax, case_named, names_of
from regard.scaling._closeness import closeness
from regard.scaling._memory import peaks
from regard.scaling._scaling import Scaling, costs_of

LENGTHS = (256, 512, 1024, 2048, 4096)
"""What is measured by default."""

_REPEATS, _ENOUGH = 5, 0.4  # of a pass: at least so many, and until so many seconds have passed

Advance = Callable[[int, int, str], None]
"""Called with what is done, of how much, and what comes next."""


def scaling(
    names: Sequence[str] | None = None,
    lengths: Sequence[int] = LENGTHS,
    *,
    causal: bool = False,
    heads: int = 12,
    head_dim: int = 32,
    tokens: int = 256,
    advance: Advance = lambda done, of, what: None,
) -> Scaling:
    """Measure time and memory of attentions over length, and how far each is from softmax attention.

    A forward pass without gradients over one text in float32, on the CPU with torch's threads. Times are
    medians of at least five passes after one that does not count, taken in turns, so that a slow spell of
    the machine falls on all. Peaks are of forks that do nothing else. Each answer is checked to be finite.

    Args:
        names: of attentions, by default all that have this form; softmax is always among them.
        lengths: tokens, at least two different ones for exponents.
        causal: whether a query sees only what is before it.
        heads, head_dim: those of the default model, if nothing is said.
        tokens: of the text that the errors are of; see `closeness`.
        advance: told how far it is.

    Raises:
        InputError: an unknown attention, one without this form, lengths that are none, or lengths that memory
            would not hold.

    Example:
        >>> found = scaling(["linear"], [64, 128], tokens=32)
        >>> [cost.name for cost in found.costs]
        ['softmax', 'linear']
    """
    fused = Softmax.name
    wanted = names_of(causal=causal) if names is None else names
    cases = {name: case_named(name) for name in dict.fromkeys((fused, *wanted))}
    asked = _checked(lengths)
    for case in cases.values():
        case.check(causal=causal)
    whole("heads", heads, least=1)
    whole("head_dim", head_dim, least=2)
    shapes = [Shape(length=each, heads=heads, head_dim=head_dim, causal=causal) for each in asked]
    _check_fits(cases, shapes)
    every, done = len(cases) * (2 * len(shapes) + 1), 0

    def step(what: str) -> Callable[[], None]:
        def one() -> None:
            nonlocal done
            done += 1
            advance(done, every, what)

        return one

    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for shape in shapes:
        for name, median in _times(cases, shape, step(f"time at {shape.length:,} tokens")).items():
            seconds[name].append(median)
    every_one = [(name, each.length, heads, head_dim, causal) for name in cases for each in shapes]
    found = iter(peaks(every_one, step("memory")))
    peak = {name: [next(found) for _ in shapes] for name in cases}
    errors = closeness(list(cases), tokens=tokens, causal=causal, advance=step("closeness to softmax"))
    return Scaling(
        lengths=asked,
        heads=heads,
        head_dim=head_dim,
        causal=causal,
        threads=torch.get_num_threads(),
        tokens=tokens,
        costs=costs_of(asked, seconds, peak, errors, fused),
    )


def _checked(lengths: Sequence[int]) -> tuple[int, ...]:
    found = tuple(sorted(set(lengths)))
    if not found or found[0] < 2:
        raise InputError(f"lengths must be whole numbers from 2 on, at least one; got {list(lengths)}.")
    return found


def _check_fits(cases: dict[str, Case], shapes: Sequence[Shape]) -> None:
    """Refuse what memory would not hold, before anything is measured."""
    for name, case in cases.items():
        # All others are compared with the fused kernel: it is never left out.
        way, out = "give shorter lengths", "" if name == Softmax.name else f", or leave {name} out"
        for shape in shapes:  # from the shortest to the longest
            needed = shape.record_bytes + 4 * case.numbers(shape)
            check_room(f"{name} at {shape.length:,} tokens", needed, CPU, way + out)
            way = f"give lengths up to {shape.length:,}"


def _times(cases: dict[str, Case], shape: Shape, advance: Callable[[], None]) -> dict[str, float]:
    inputs = shape.record()
    found: dict[str, list[float]] = {name: [] for name in cases}
    with torch.no_grad():
        for case in cases.values():
            case.context(inputs)
        waiting = set(cases)
        while waiting:
            for name, case in cases.items():
                if name not in waiting:
                    continue
                start = time.perf_counter()
                case.context(inputs)
                found[name].append(time.perf_counter() - start)
                if len(found[name]) >= _REPEATS and sum(found[name]) >= _ENOUGH:
                    waiting.remove(name)
                    advance()
    return {name: statistics.median(times) for name, times in found.items()}
